"""Settings by Kafka's names: what they make, and what is refused."""

import ssl
from pathlib import Path

import pytest

from penstock.client.cluster.sasl import Credentials
from penstock.client.cluster.security import SECURITY_SETTINGS, Security
from tests.client.secured import AUTHORITY

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def made(**settings: object) -> Security:
    """From settings, with underscores for dots."""
    security = Security.from_properties({name.replace("_", "."): value for name, value in settings.items()})
    assert security is not None
    return security


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"security.protocol": "PLAINTEXT"},
        {"security.protocol": "plaintext", "ssl.ca.location": None},
        {"sasl.username": None},
    ],
)
def test_plaintext_needs_no_security(settings: dict[str, object]) -> None:
    assert Security.from_properties(settings) is None


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "sasl_plaintext"])
@pytest.mark.parametrize("name", ["sasl_mechanism", "sasl_mechanisms"])
def test_credentials_are_taken_in_javas_and_in_librdkafkas_words(protocol: str, name: str) -> None:
    security = made(
        security_protocol=protocol, sasl_username="alice", sasl_password="wonderland", **{name: "scram-sha-256"}
    )
    assert security.protocol == "SASL_PLAINTEXT"
    assert security.credentials == Credentials("SCRAM-SHA-256", "alice", "wonderland")
    assert security.context is None


def test_tls_and_sasl_go_together(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(path)
    security = made(
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password="wonderland",
        ssl_ca_location=path,
    )
    assert security.credentials is not None
    assert security.context is not None
    assert len(security.context.get_ca_certs()) == 1


def test_ssl_without_further_settings_trusts_whom_the_system_trusts() -> None:
    context = made(security_protocol="SSL").context
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


@pytest.mark.parametrize(
    ("mechanism", "text", "username", "password"),
    [
        ("PLAIN", f'{PLAIN_MODULE} required username="alice" password="wonderland";', "alice", "wonderland"),
        ("SCRAM-SHA-512", f"{SCRAM_MODULE} REQUIRED username='alice' password='a b';", "alice", "a b"),
        ("PLAIN", f"{PLAIN_MODULE} required username=alice password=wonder/land ;", "alice", "wonder/land"),
        ("PLAIN", rf'{PLAIN_MODULE} required password="say \"x\\\"" username="a;b=c";', "a;b=c", 'say "x\\"'),
        ("PLAIN", rf'{PLAIN_MODULE} required password="\101\tB" username="alice";', "alice", "A\tB"),
        (
            "SCRAM-SHA-256",
            f'{SCRAM_MODULE} required\n  // who we are\n  username="alice" /* and\n why */ password="it\'s";\n',
            "alice",
            "it's",
        ),
        ("PLAIN", f'{PLAIN_MODULE} required serviceName="kafka" username="alice" password="é€";', "alice", "é€"),
    ],
)
def test_javas_login_configuration_is_read(mechanism: str, text: str, username: str, password: str) -> None:
    security = made(security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism, sasl_jaas_config=text)
    assert security.credentials == Credentials(mechanism, username, password)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "does not begin with"),
        (f"{SCRAM_MODULE.lower()} required username=alice password=secret;", "does not begin with"),
        ("com.sun.security.auth.module.Krb5LoginModule required password=secret;", "does not begin with"),
        (f"{SCRAM_MODULE} required username=alice password=secret;", "not for sasl.mechanism PLAIN: .* SCRAM-SHA-256"),
        (f"{PLAIN_MODULE} required username=alice password=secret", "cannot be read"),
        (f"{PLAIN_MODULE} required username=alice password secret;", "cannot be read"),
        (f'{PLAIN_MODULE} required username=alice password="secret;', "quote that nothing ends"),
        (f"{PLAIN_MODULE} required username=alice password=;", "cannot be read"),
        (f"{PLAIN_MODULE} required password=secret;", "sasl.username is not set"),
        (PLAIN_MODULE, "cannot be read"),
        (f"{PLAIN_MODULE} required username=alice password=secret tokenauth=true;", "delegation token"),
    ],
)
def test_a_login_configuration_that_cannot_be_used_is_refused_and_not_repeated(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        made(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_jaas_config=text)
    assert "secret" not in str(caught.value)


SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "alice", "sasl.password": "secret"}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"security.protocol": "TLS"}, "'TLS': set it to PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
        ({"ssl.ca.location": "ca.pem"}, "ssl.ca.location .* no effect .*PLAINTEXT: set security.protocol to SSL or"),
        ({"sasl.password": "secret"}, "sasl.password is set and has no effect .* SASL_SSL or SASL_PLAINTEXT"),
        ({"security.protocol": "SSL", "sasl.username": "alice"}, "sasl.username is set and has no effect"),
        ({**SASL, "ssl.ca.location": "ca.pem"}, "ssl.ca.location is set and has no effect"),
        (SASL, "sasl.mechanism is not set: set it to PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "'GSSAPI', which is not supported: use PLAIN"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.login.class": "x"}, "'OAUTHBEARER', which is not supported"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.mechanisms": "SCRAM-SHA-256"}, "twice, to PLAIN and SCRAM"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": "x"}, "leave one of them out"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.kerberos.service.name": "x"}, "cannot be set here.*sasl.username"),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "x"}, "ssl.cipher.suites cannot be set here"),
        ({"security.protocol": "SSL", "security.providers": "x"}, "security.providers cannot be set here"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.username": None}, "sasl.username is not set"),
    ],
)
def test_settings_that_would_not_do_what_they_say_are_refused(settings: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        Security.from_properties(settings)
    assert "secret" not in str(caught.value)


def test_no_secret_is_shown() -> None:
    security = made(
        security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="alice", sasl_password="wonderland"
    )
    assert "alice" in repr(security)
    assert "wonderland" not in repr(security)


def test_the_parts_must_fit_the_protocol() -> None:
    context, credentials = ssl.create_default_context(), Credentials("PLAIN", "alice", "wonderland")
    with pytest.raises(ValueError, match="SASL_SSL needs credentials"):
        Security(protocol="SASL_SSL", context=context)
    with pytest.raises(ValueError, match="SASL_SSL needs an SSL context"):
        Security(protocol="SASL_SSL", credentials=credentials)
    with pytest.raises(ValueError, match="SSL has no use for credentials"):
        Security(protocol="SSL", context=context, credentials=credentials)
    with pytest.raises(ValueError, match="PLAINTEXT has no use for an SSL context"):
        Security(protocol="PLAINTEXT", context=context)
    with pytest.raises(ValueError, match="'TLS'"):
        Security(protocol="TLS", context=context)  # type: ignore[arg-type]


def test_all_names_are_kafkas_own_or_begin_like_them() -> None:
    assert all(name.startswith(("security.", "sasl.", "ssl.", "enable.ssl.")) for name in SECURITY_SETTINGS)
