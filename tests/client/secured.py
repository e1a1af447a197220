"""Brokers that want TLS or SASL: certificates made for the test, and scramp's server side behind a scripted broker."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import scramp
import trustme

from penstock.client.cluster.sasl import Credentials
from penstock.client.cluster.security import Security
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.client.peer import Peer

HOST = "127.0.0.1"
AUTHORITY = trustme.CA()
STRANGER = trustme.CA()


def server_context(certificate: trustme.LeafCert | None = None, *, clients: trustme.CA | None = None) -> ssl.SSLContext:
    """A broker's side of TLS; with `clients` it wants a certificate that this authority has signed."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    (certificate or AUTHORITY.issue_cert(HOST)).configure_cert(context)
    if clients is not None:
        clients.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def trusting(**more: object) -> Security:
    """A client that trusts our authority."""
    pem = AUTHORITY.cert_pem.bytes().decode()
    made = Security.from_properties({"security.protocol": "SSL", "ssl.truststore.certificates": pem, **more})
    assert made is not None
    return made


def known_as(mechanism: str, username: str = "alice", password: str = "wonderland") -> Security:
    return Security(protocol="SASL_PLAINTEXT", credentials=Credentials(mechanism, username, password))


@asynccontextmanager
async def tls_peer(context: ssl.SSLContext | None = None, **leaders: list[int]) -> AsyncIterator[Peer]:
    """A scripted broker behind TLS."""
    broker = Peer()
    broker.layout.leaders = dict(leaders)
    broker.tls = context or server_context()
    before = asyncio.all_tasks()
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
        # Handshakes that came to nothing, of which the loop's own tasks have still to hear.
        if late := asyncio.all_tasks() - before:
            await asyncio.wait(late)


@asynccontextmanager
async def tls_proxy(port: int) -> AsyncIterator[int]:
    """The port of something that takes the TLS off for a broker that has none, at `port`."""
    tasks: set[asyncio.Task[Any]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        inner_reader, inner_writer = await asyncio.open_connection(HOST, port)
        await asyncio.gather(relay(reader, inner_writer), relay(inner_reader, writer))
        for each in (writer, inner_writer):
            with suppress(ConnectionError):
                await each.wait_closed()

    server = await asyncio.start_server(serve, HOST, 0, ssl=server_context())
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.gather(*tasks)
        await server.wait_closed()


@dataclass
class Guard:
    """Makes a scripted broker want SASL. It serves one connection at a time."""

    users: dict[str, str] = field(default_factory=lambda: {"alice": "wonderland"})
    mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    lifetime_ms: int = 0
    iterations: int = 4096
    forge: Callable[[bytes], bytes] = lambda said: said
    """What becomes of each of the broker's words on their way."""
    entered: list[str] = field(default_factory=list)
    """The mechanism of each who was let in."""
    _mechanism: str = ""
    _scram: Any = None

    def watch(self, broker: Peer) -> None:
        broker.answers[SaslHandshakeRequest] = self.shake_hands
        broker.answers[SaslAuthenticateRequest] = self.authenticate

    def shake_hands(self, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        self._mechanism, self._scram = request.mechanism, None
        known = request.mechanism in self.mechanisms
        code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return SaslHandshakeResponse(error_code=code, mechanisms=self.mechanisms)

    def authenticate(self, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        try:
            said = self.hear(bytes(request.auth_bytes))
        except scramp.ScramException as error:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            return SaslAuthenticateResponse(error_code=code, error_message=f"Authentication failed: {error}.")
        return SaslAuthenticateResponse(auth_bytes=self.forge(said), session_lifetime_ms=self.lifetime_ms)

    def hear(self, said: bytes) -> bytes:
        """The broker's side of the mechanism; ScramException for whoever is not let in."""
        if self._mechanism == "PLAIN":
            authorized, username, password = said.decode().split("\0")
            if authorized or self.users.get(username) != password:
                raise scramp.ScramException("invalid user name or password")
            self.entered.append("PLAIN")
            return b""
        if self._scram is None:
            self._scram = scramp.ScramMechanism(self._mechanism).make_server(self.stored)
            self._scram.set_client_first(said.decode())
            return str(self._scram.get_server_first()).encode()
        self._scram.set_client_final(said.decode())
        self.entered.append(self._mechanism)
        return str(self._scram.get_server_final()).encode()

    def stored(self, username: str) -> tuple[bytes, bytes, bytes, int] | None:
        if username not in self.users:
            return None
        mechanism = scramp.ScramMechanism(self._mechanism)
        made: tuple[bytes, bytes, bytes, int] = mechanism.make_auth_info(self.users[username], self.iterations)
        return made
