"""The table of security configs."""

from penstock.broker.config.security import SECURITY_CONFIGS
from tests.broker.config.kafka_facts import differences


def test_the_rows_say_what_kafka_says() -> None:
    assert differences("broker", SECURITY_CONFIGS) == []


def test_secrets_are_passwords() -> None:
    secret = {key.name for key in SECURITY_CONFIGS if key.sensitive}
    named_so = {
        key.name for key in SECURITY_CONFIGS if key.name.endswith((".password", ".passphrase", ".secret", ".key"))
    }
    assert named_so <= secret
    assert "sasl.jaas.config" in secret


def test_nothing_here_has_an_effect_while_only_plaintext_is_built() -> None:
    assert [key.name for key in SECURITY_CONFIGS if key.effect] == []
