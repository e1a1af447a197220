"""The table of foreign configs."""

from penstock.broker.config.foreign import FOREIGN_CONFIGS
from tests.broker.config.kafka_facts import differences


def test_the_rows_say_what_kafka_says() -> None:
    assert differences("broker", FOREIGN_CONFIGS) == []


def test_what_penstock_does_not_have_has_no_effect() -> None:
    assert [key.name for key in FOREIGN_CONFIGS if key.effect] == []
