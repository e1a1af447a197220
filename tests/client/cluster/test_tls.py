"""TLS for real: certificates that are right and wrong, and settings in the words of Java and of librdkafka."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from penstock.client.cluster.connection import Connection
from penstock.client.cluster.security import Security
from penstock.client.cluster.tls import explain, make_context
from penstock.client.errors import AuthenticationError, BadReplyError, ConnectionLostError
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.schemas.versions import ApiVersionsRequest
from tests.client.peer import Peer, Raw, peer
from tests.client.secured import AUTHORITY, HOST, STRANGER, server_context, tls_peer, trusting
from tests.waiting import in_loop

CLIENT = AUTHORITY.issue_cert("client@example.org")


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    AUTHORITY.cert_pem.write_to_path(path)
    return path


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "client.crt"
    CLIENT.cert_chain_pems[0].write_to_path(path)
    return path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "client.key"
    CLIENT.private_key_pem.write_to_path(path)
    return path


def pkcs8(password: str | None = None) -> str:
    """The client's key in the format that Java reads."""
    made = serialization.load_pem_private_key(CLIENT.private_key_pem.bytes(), None)
    how = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    pem = made.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
    return pem.decode()


async def exchange(broker: Peer, security: Security | None, host: str = HOST) -> Connection:
    """A connection that was opened, used and closed."""
    connection = await Connection.open(host, broker.port, security=security)
    try:
        assert isinstance(await connection.request(MetadataRequest()), MetadataResponse)
    finally:
        await connection.close()
    return connection


@in_loop
async def test_requests_and_replies_go_through_tls(ca: Path) -> None:
    security = Security(protocol="SSL", context=make_context({"ssl.ca.location": str(ca)}))
    async with tls_peer() as broker:
        await exchange(broker, security)
        await broker.until(lambda: not broker.connections)
        assert broker.versions_of(MetadataRequest)


@in_loop
async def test_a_broker_whose_certificate_nobody_we_trust_has_signed_is_refused() -> None:
    async with tls_peer(server_context(STRANGER.issue_cert(HOST))) as broker:
        with pytest.raises(AuthenticationError, match=r"certificate of 127\.0\.0\.1.*issuer.*ssl\.ca\.location"):
            await exchange(broker, trusting())


@in_loop
async def test_a_broker_with_the_certificate_of_another_host_is_refused() -> None:
    async with tls_peer(server_context(AUTHORITY.issue_cert("broker.example.org"))) as broker:
        with pytest.raises(AuthenticationError, match=r"mismatch.*ssl\.endpoint\.identification\.algorithm"):
            await exchange(broker, trusting())
        await exchange(broker, trusting(**{"ssl.endpoint.identification.algorithm": ""}))
        await exchange(broker, trusting(**{"ssl.endpoint.identification.algorithm": "none"}))


@in_loop
async def test_without_the_check_of_names_a_certificate_must_still_be_signed() -> None:
    async with tls_peer(server_context(STRANGER.issue_cert(HOST))) as broker:
        with pytest.raises(AuthenticationError, match="issuer"):
            await exchange(broker, trusting(**{"ssl.endpoint.identification.algorithm": ""}))


@in_loop
async def test_verification_can_be_switched_off_altogether() -> None:
    async with tls_peer(server_context(STRANGER.issue_cert("elsewhere"))) as broker:
        await exchange(broker, trusting(**{"enable.ssl.certificate.verification": False}))


@in_loop
async def test_a_certificate_that_has_expired_or_is_not_valid_yet_is_refused() -> None:
    now = datetime.now(UTC)
    expired = AUTHORITY.issue_cert(HOST, not_before=now - timedelta(9), not_after=now - timedelta(1))
    async with tls_peer(server_context(expired)) as broker:
        with pytest.raises(AuthenticationError, match="expired; have it renewed"):
            await exchange(broker, trusting())
    early = AUTHORITY.issue_cert(HOST, not_before=now + timedelta(1), not_after=now + timedelta(9))
    async with tls_peer(server_context(early)) as broker:
        with pytest.raises(AuthenticationError, match="not yet valid; check the clock"):
            await exchange(broker, trusting())


@in_loop
async def test_tls_to_a_plaintext_port_is_told() -> None:
    async with peer() as broker:
        broker.answers[ApiVersionsRequest] = lambda _: Raw(b"never said")
        with pytest.raises((ConnectionLostError, BadReplyError), match=r"speaks TLS .*PLAINTEXT"):
            await exchange(broker, trusting())


@in_loop
async def test_plaintext_to_a_tls_port_is_told() -> None:
    async with tls_peer() as broker:
        with pytest.raises((ConnectionLostError, BadReplyError), match=r"TLS.*security\.protocol"):
            await exchange(broker, None)


@in_loop
async def test_a_tls_alert_in_answer_to_plaintext_is_told() -> None:
    async with peer() as broker:
        broker.answers[ApiVersionsRequest] = lambda _: Raw(b"\x15\x03\x03\x00\x02\x02\x46")
        with pytest.raises(BadReplyError, match=r"speaks TLS: set security\.protocol to SSL"):
            await exchange(broker, None)


@in_loop
async def test_a_broker_that_wants_our_certificate_gets_it(ca: Path, certificate: Path, key: Path) -> None:
    files = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    async with tls_peer(server_context(clients=AUTHORITY)) as broker:
        await exchange(broker, trusting(**files))
        with pytest.raises(ConnectionLostError, match=r"certificate.*ssl\.certificate\.location"):
            await exchange(broker, trusting())


@in_loop
async def test_a_certificate_of_ours_that_the_broker_does_not_trust_is_told(tmp_path: Path) -> None:
    path = tmp_path / "stranger.pem"
    STRANGER.issue_cert("client@example.org").private_key_and_cert_chain_pem.write_to_path(path)
    async with tls_peer(server_context(clients=AUTHORITY)) as broker:
        with pytest.raises(ConnectionLostError, match=r"ssl\.certificate\.location"):
            await exchange(broker, trusting(**{"ssl.certificate.location": path}))


@pytest.mark.parametrize("form", ["librdkafka", "java file", "java text", "java text in one line", "encrypted"])
@in_loop
async def test_trust_and_identity_are_read_in_every_form(
    form: str, tmp_path: Path, ca: Path, certificate: Path
) -> None:
    trust, chain = AUTHORITY.cert_pem.bytes().decode(), CLIENT.cert_chain_pems[0].bytes().decode()
    both, encrypted = tmp_path / "both.pem", tmp_path / "encrypted.key"
    both.write_text(pkcs8() + chain)
    encrypted.write_text(pkcs8("open sesame"))
    text = {"ssl.truststore.certificates": trust, "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": pkcs8()}
    forms: dict[str, dict[str, object]] = {
        "librdkafka": {"ssl.ca.location": str(ca), "ssl.certificate.location": str(both)},
        "java file": {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(ca),
            "ssl.keystore.type": "pem",
            "ssl.keystore.location": str(both),
        },
        "java text": {**text, "ssl.keystore.type": "PEM"},
        "java text in one line": {name: " ".join(value.split("\n")) for name, value in text.items()},
        "encrypted": {
            "ssl.ca.location": ca,
            "ssl.certificate.location": certificate,
            "ssl.key.location": encrypted,
            "ssl.key.password": "open sesame",
        },
    }
    async with tls_peer(server_context(clients=AUTHORITY)) as broker:
        security = Security.from_properties({"security.protocol": "SSL", **forms[form]})
        await exchange(broker, security)


@in_loop
async def test_an_encrypted_key_as_text_is_opened_by_its_password() -> None:
    text = {
        "ssl.keystore.certificate.chain": CLIENT.cert_chain_pems[0].bytes().decode(),
        "ssl.keystore.key": pkcs8("open sesame"),
        "ssl.key.password": "open sesame",
    }
    async with tls_peer(server_context(clients=AUTHORITY)) as broker:
        await exchange(broker, trusting(**text))


@pytest.mark.parametrize("password", [None, "close sesame"])
def test_a_key_that_cannot_be_opened_is_told_without_its_password(
    password: str | None, tmp_path: Path, certificate: Path
) -> None:
    encrypted = tmp_path / "encrypted.key"
    encrypted.write_text(pkcs8("open sesame"))
    settings: dict[str, object] = {"ssl.certificate.location": certificate, "ssl.key.location": encrypted}
    if password is not None:
        settings["ssl.key.password"] = password
    with pytest.raises(ValueError, match=r"cannot be loaded.*ssl\.key\.password") as caught:
        make_context(settings)
    assert "sesame" not in str(caught.value)


def test_no_key_is_left_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    chain = CLIENT.cert_chain_pems[0].bytes().decode()
    make_context({"ssl.keystore.certificate.chain": chain, "ssl.keystore.key": pkcs8()})
    assert not list(tmp_path.iterdir())


def test_a_context_of_ones_own_is_taken_as_it_is() -> None:
    own = ssl.create_default_context()
    assert make_context({"ssl.context": own}) is own


def test_whom_the_operating_system_trusts_is_trusted_unless_told_otherwise() -> None:
    context = make_context({})
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    trusted = context.get_ca_certs()
    assert trusted == ssl.create_default_context().get_ca_certs()


def test_a_folder_of_certificates_is_searched_by_openssl(tmp_path: Path) -> None:
    assert make_context({"ssl.ca.location": tmp_path}).get_ca_certs() == []


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"ssl.ca.location": "/no/such/file"}, "ssl.ca.location: .*'/no/such/file': No such file"),
        ({"ssl.ca.location": __file__}, "ssl.ca.location: no PEM certificates"),
        ({"ssl.truststore.certificates": "nonsense"}, "ssl.truststore.certificates: no PEM certificates .* the text"),
        ({"ssl.truststore.location": "trust.jks"}, "type JKS; .*keytool -list -rfc.*ssl.ca.location.*type to PEM"),
        (
            {"ssl.truststore.location": "t.p12", "ssl.truststore.type": "PKCS12", "ssl.truststore.password": "secret"},
            "type PKCS12; .*keytool",
        ),
        ({"ssl.keystore.location": "keys.jks"}, "type JKS; .*openssl pkcs12.*ssl.certificate.location"),
        ({"ssl.keystore.location": "k", "ssl.keystore.type": "PEM", "ssl.keystore.password": "secret"}, "no ssl.keyst"),
        ({"ssl.key.location": "client.key"}, "ssl.key.location is set and ssl.certificate.location is not"),
        ({"ssl.keystore.key": "secret"}, "ssl.keystore.key is set and ssl.keystore.certificate.chain is not"),
        ({"ssl.key.password": "secret"}, "no key is"),
        ({"ssl.ca.location": "a", "ssl.truststore.certificates": "b"}, "say the same"),
        ({"ssl.certificate.location": "a", "ssl.keystore.certificate.chain": "b"}, "say the same"),
        ({"ssl.certificate.location": "/no/such/file"}, "ssl.certificate.location: .*No such file"),
        ({"ssl.endpoint.identification.algorithm": "sometimes"}, "https, or none"),
        ({"enable.ssl.certificate.verification": "perhaps"}, "true or false"),
        ({"ssl.context": "default"}, "give an ssl.SSLContext"),
        ({"ssl.context": ssl.create_default_context(), "ssl.ca.location": "a"}, "no effect beside ssl.context"),
    ],
)
def test_settings_that_cannot_be_right_are_refused_and_say_what_to_do(settings: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        make_context(settings)
    assert "secret" not in str(caught.value)


def test_the_alerts_by_which_a_broker_refuses_our_certificate_are_understood() -> None:
    for reason in ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_BAD_CERTIFICATE", "TLSV1_ALERT_UNKNOWN_CA"):
        error = ssl.SSLError(1, f"[SSL: {reason}]")
        error.reason = reason
        told = explain("broker:9093", error)
        assert isinstance(told, AuthenticationError)
        assert "ssl.certificate.location" in str(told)
