"""`authenticate` speaks SASL with Kafka's brokers: a handshake about the mechanism, then PLAIN (RFC 4616) or SCRAM (RFC
5802)."""

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.client.errors import AuthenticationError, UnsendableError, broker_error
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message, Versions
from penstock.protocol.schemas.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# Before version 1 what follows the handshake is in no request, and errors have no message.
HANDSHAKE_VERSIONS: Final = Versions(1, 1)
# Kafka's brokers keep 4,096 to 16,384 iterations; a broker that asks for more than this only keeps the client busy.
MAX_ITERATIONS: Final = 1_000_000

Conversation = Generator[bytes, bytes, None]
"""Yields what to send and is sent what came back; it is over when nothing is left to prove, on either side."""


@dataclass(slots=True, frozen=True)
class Credentials:
    mechanism: str
    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise ValueError(f"sasl.mechanism is {self.mechanism!r}: use {', '.join(MECHANISMS)}")
        for name, value in (("sasl.username", self.username), ("sasl.password", self.password)):
            if not value:
                raise ValueError(f"{name} is not set: {self.mechanism} needs it")
            if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in value):
                raise ValueError(
                    f"{name} has characters in it that cannot be sent: a null, or half of a surrogate pair"
                )
        if self.mechanism != "PLAIN":
            _import_scramp()


async def authenticate(
    ask: Callable[[Message, Versions | None], Awaitable[Any]], credentials: Credentials, broker: object
) -> int:
    """Authenticate with a broker, by requests that `ask` sends. Returns for how many milliseconds that holds; 0: as
    long as the connection."""
    mechanism = credentials.mechanism
    try:
        handshake: SaslHandshakeResponse = await ask(SaslHandshakeRequest(mechanism=mechanism), HANDSHAKE_VERSIONS)
    except UnsendableError as error:
        raise AuthenticationError(
            f"{error}; if it wants no password, set security.protocol to PLAINTEXT or SSL"
        ) from error
    if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise AuthenticationError(
            f"{broker} does not offer {mechanism}: set sasl.mechanism to what it offers "
            f"({', '.join(handshake.mechanisms) or 'nothing'})"
        )
    if handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationError(
            f"{broker} expects no password now: if it never does, set security.protocol to PLAINTEXT or SSL"
        )
    if handshake.error_code:
        raise AuthenticationError(str(broker_error(handshake.error_code, f"{broker} refused the SASL handshake")))
    conversation = converse(credentials)
    said = next(conversation)
    while True:
        answer: SaslAuthenticateResponse = await ask(SaslAuthenticateRequest(auth_bytes=said), None)
        if answer.error_code:
            why = answer.error_message or str(broker_error(answer.error_code, "its answer"))
            raise AuthenticationError(
                f"{broker} does not let in {credentials.username!r} by {mechanism}: {why.rstrip('.')}; "
                "check sasl.username, sasl.password and sasl.mechanism"
            )
        try:
            said = conversation.send(bytes(answer.auth_bytes))
        except StopIteration:
            return answer.session_lifetime_ms
        except ValueError as error:
            raise AuthenticationError(
                f"{broker} failed to prove by {mechanism} that it knows the password of {credentials.username!r}: "
                f"{error}; make sure that it is the broker you mean"
            ) from error


def converse(credentials: Credentials) -> Conversation:
    """The client's side of a mechanism. ValueError: what came back is not what the mechanism demands."""
    return _plain(credentials) if credentials.mechanism == "PLAIN" else _scram(credentials)


def _plain(credentials: Credentials) -> Conversation:
    yield f"\0{credentials.username}\0{credentials.password}".encode()


def _scram(credentials: Credentials) -> Conversation:
    scramp = _import_scramp()
    client = scramp.ScramClient([credentials.mechanism], "-", "-")
    client.username, client.password = _Verbatim(credentials.username), _Verbatim(credentials.password)
    try:
        server_first = yield client.get_client_first().encode()
        client.set_server_first(server_first.decode())
        if int(client.iterations) > MAX_ITERATIONS:
            raise ValueError(f"it asks for {client.iterations} iterations")
        server_final = yield client.get_client_final().encode()
        client.set_server_final(server_final.decode())
    except scramp.ScramException as error:
        raise ValueError(str(error)) from error


class _Verbatim(str):
    """A name or a password as scramp takes it, in unchanged UTF-8: Kafka does without SASLprep (RFC 4013), by which
    scramp would change some characters and refuse others."""

    def escape(self) -> str:
        return self.replace("=", "=3D").replace(",", "=2C")

    def __bytes__(self) -> bytes:
        return self.encode()


def _import_scramp() -> Any:
    try:
        import scramp
    except ImportError:
        raise ImportError("SCRAM needs the package scramp: pip install 'penstock-mq[security]'") from None
    return scramp
