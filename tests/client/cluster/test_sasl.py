"""SASL against scramp's server side: who is let in, who is not, and brokers that only claim to know the password."""

import hashlib
import hmac
import sys
from base64 import b64encode
from collections.abc import Callable

import pytest
import scramp

from penstock.client.cluster.connection import Connection
from penstock.client.cluster.sasl import MAX_ITERATIONS, Credentials, converse
from penstock.client.errors import AuthenticationError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Versions
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.schemas.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from penstock.protocol.schemas.versions import ApiVersionsRequest
from tests.client.peer import Peer, peer
from tests.client.secured import Guard, known_as
from tests.waiting import in_loop

ALL = pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
SCRAM = pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])


async def enter(broker: Peer, mechanism: str, username: str = "alice", password: str = "wonderland") -> None:
    """Open a connection, use it, close it."""
    connection = await Connection.open("127.0.0.1", broker.port, security=known_as(mechanism, username, password))
    try:
        assert isinstance(await connection.request(MetadataRequest()), MetadataResponse)
    finally:
        await connection.close()


@ALL
@in_loop
async def test_who_knows_the_password_is_let_in(mechanism: str) -> None:
    guard = Guard()
    async with peer() as broker:
        guard.watch(broker)
        await enter(broker, mechanism)
        assert guard.entered == [mechanism]
        kinds = [type(message) for _, message in broker.received]
        assert kinds[:2] == [ApiVersionsRequest, SaslHandshakeRequest]
        assert kinds.index(MetadataRequest) == len(kinds) - 1
        assert broker.versions_of(SaslHandshakeRequest) == [1]
        assert set(broker.versions_of(SaslAuthenticateRequest)) == {2}


@ALL
@in_loop
async def test_a_broker_that_knows_only_the_first_version_is_served(mechanism: str) -> None:
    guard = Guard()
    async with peer() as broker:
        guard.watch(broker)
        broker.offer(SaslAuthenticateRequest, 0, 0)
        await enter(broker, mechanism)
        assert guard.entered == [mechanism]


@ALL
@in_loop
async def test_a_wrong_password_is_refused_and_stays_a_secret(mechanism: str) -> None:
    guard = Guard()
    async with peer() as broker:
        guard.watch(broker)
        with pytest.raises(AuthenticationError, match=r"'alice' by .*Authentication failed.*check sasl\.") as caught:
            await enter(broker, mechanism, password="looking-glass")
        assert "looking-glass" not in repr(caught.value)
        assert not caught.value.outcome_unknown
        assert not guard.entered
        await broker.until(lambda: not broker.connections)


@ALL
@in_loop
async def test_an_unknown_user_is_refused(mechanism: str) -> None:
    async with peer() as broker:
        Guard().watch(broker)
        with pytest.raises(AuthenticationError, match="'bob'"):
            await enter(broker, mechanism, username="bob")


@ALL
@in_loop
async def test_names_and_passwords_may_have_any_character(mechanism: str) -> None:
    users = {"a=b,c=2C": "p=,\N{EURO SIGN} \u00e9", "zo\u00eb": 'quote"and\\'}
    guard = Guard(users=users)
    async with peer() as broker:
        guard.watch(broker)
        for username, password in users.items():
            await enter(broker, mechanism, username, password)
    assert len(guard.entered) == 2


@SCRAM
def test_passwords_are_hashed_as_they_are_for_kafka_does_without_saslprep(mechanism: str) -> None:
    """With it, ½ would become 1⁄2, and a new emoji would be refused."""
    password, salt, iterations = "\u00bd \U0001f9ff \u00ad", b"0123456789abcdef", 4096
    algorithm = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    stored_key = hashlib.new(algorithm, hmac.digest(salted, b"Client Key", algorithm)).digest()
    server_key = hmac.digest(salted, b"Server Key", algorithm)
    server = scramp.ScramMechanism(mechanism).make_server(lambda _: (salt, stored_key, server_key, iterations))

    client = converse(Credentials(mechanism, "alice", password))
    server.set_client_first(next(client).decode())
    server.set_client_final(client.send(server.get_server_first().encode()).decode())
    with pytest.raises(StopIteration):
        client.send(server.get_server_final().encode())


@in_loop
async def test_a_mechanism_that_the_broker_has_not_is_answered_with_those_it_has() -> None:
    async with peer() as broker:
        Guard(mechanisms=("GSSAPI", "SCRAM-SHA-512")).watch(broker)
        with pytest.raises(AuthenticationError, match=r"does not offer PLAIN.*\(GSSAPI, SCRAM-SHA-512\)"):
            await enter(broker, "PLAIN")


def forge_signature(said: bytes) -> bytes:
    return b"v=" + b64encode(bytes(32)) if said.startswith(b"v=") else said


def forget_signature(said: bytes) -> bytes:
    return b"" if said.startswith(b"v=") else said


def answer_another(said: bytes) -> bytes:
    return b"r=somebody-elses-nonce," + said.partition(b",")[2] if said.startswith(b"r=") else said


def ask_for_little(said: bytes) -> bytes:
    return said.replace(b"i=4096", b"i=4095")


def ask_for_much(said: bytes) -> bytes:
    return said.replace(b"i=4096", b"i=%d" % (MAX_ITERATIONS + 1))


def stammer(said: bytes) -> bytes:
    return b"\xff\xfe"


@pytest.mark.parametrize(
    "forge", [forge_signature, forget_signature, answer_another, ask_for_little, ask_for_much, stammer]
)
@SCRAM
@in_loop
async def test_a_broker_that_does_not_know_the_password_itself_is_not_trusted(
    mechanism: str, forge: Callable[[bytes], bytes]
) -> None:
    guard = Guard(forge=forge)
    async with peer() as broker:
        guard.watch(broker)
        with pytest.raises(AuthenticationError, match="make sure that it is the broker you mean"):
            await enter(broker, mechanism)
        assert not broker.requests(MetadataRequest)
        await broker.until(lambda: not broker.connections)


@SCRAM
@in_loop
async def test_a_broker_that_lets_anybody_in_at_once_is_not_trusted(mechanism: str) -> None:
    async with peer() as broker:
        Guard().watch(broker)
        broker.answers[SaslAuthenticateRequest] = lambda _: SaslAuthenticateResponse()
        with pytest.raises(AuthenticationError, match="failed to prove"):
            await enter(broker, mechanism)


@in_loop
async def test_a_port_without_sasl_is_told_apart() -> None:
    async with peer() as broker:
        broker.answers[SaslHandshakeRequest] = lambda _: SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        with pytest.raises(AuthenticationError, match=r"no password now.*security\.protocol to PLAINTEXT or SSL"):
            await enter(broker, "PLAIN")
        del broker.versions[17]
        with pytest.raises(AuthenticationError, match=r"does not offer SaslHandshake.*PLAINTEXT or SSL"):
            await enter(broker, "PLAIN")
        broker.versions[17] = Versions(0, 0)
        with pytest.raises(AuthenticationError, match="upgrade the broker"):
            await enter(broker, "PLAIN")


@in_loop
async def test_another_error_of_the_handshake_is_passed_on() -> None:
    async with peer() as broker:
        broker.answers[SaslHandshakeRequest] = lambda _: SaslHandshakeResponse(error_code=-1)
        with pytest.raises(AuthenticationError, match="UNKNOWN_SERVER_ERROR"):
            await enter(broker, "PLAIN")


def test_a_password_is_not_shown() -> None:
    shown = repr(Credentials("PLAIN", "alice", "wonderland"))
    assert "alice" in shown
    assert "wonderland" not in shown


@pytest.mark.parametrize(
    ("credentials", "told"),
    [
        (("GSSAPI", "alice", "secret"), "SCRAM-SHA-512"),
        (("PLAIN", "", "secret"), "sasl.username is not set"),
        (("PLAIN", "alice", ""), "sasl.password is not set"),
        (("PLAIN", "alice\0", "secret"), "sasl.username has characters"),
        (("PLAIN", "alice", "secret\udcff"), "sasl.password has characters"),
    ],
)
def test_credentials_that_no_broker_takes_are_refused(credentials: tuple[str, str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        Credentials(*credentials)
    assert "secret" not in str(caught.value)


def test_without_its_package_scram_says_how_to_install_it_and_plain_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scramp", None)
    with pytest.raises(ImportError, match=r"pip install 'penstock-mq\[security\]'"):
        Credentials("SCRAM-SHA-256", "alice", "wonderland")
    assert next(converse(Credentials("PLAIN", "alice", "wonderland"))) == b"\0alice\0wonderland"
