"""A peer is one connection to another broker: both sides have proved the secret of the cluster, many requests may be
under way, and every wait ends."""

import asyncio
import socket
from collections import deque
from typing import Any, Final, NamedTuple, Self

from penstock import __version__
from penstock.machines.broker_proof import MECHANISM, ConnectingSide, ProofError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError, EncodeError
from penstock.protocol.framing import DEFAULT_LIMIT
from penstock.protocol.schema import Message, Versions
from penstock.protocol.schemas.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from penstock.protocol.schemas.versions import ApiVersionsRequest
from penstock.protocol.session import ClientSession

# Beyond these a request waits for its turn.
MAX_OUTSTANDING: Final = 100
MAX_UNSENT_BYTES: Final = 1024 * 1024
# A host that acknowledges nothing for so long is cut off, whatever time a caller would still give it. The kernel asks a
# silent one whether it is there.
CUT_SECONDS: Final = 10
_NOTICING: Final = {
    "TCP_KEEPIDLE": CUT_SECONDS // 2,
    "TCP_KEEPINTVL": CUT_SECONDS // 4,
    "TCP_KEEPCNT": 2,
    "TCP_USER_TIMEOUT": CUT_SECONDS * 1000,
}
_RECEIVE_BYTES: Final = 64 * 1024
# The largest reply from a side that has not proved anything yet.
_UNPROVED_LIMIT: Final = 64 * 1024
# Versions in which peers greet each other, before they know what the other side offers.
_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 2
_API_VERSIONS_VERSION: Final = 4


class PeerError(Exception):
    """Another broker cannot be asked, or has not answered. If `outcome_unknown` it may have done what it was asked."""

    def __init__(self, message: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown


class Address(NamedTuple):
    """Where a broker listens for other brokers, and the epoch in which it registered that."""

    host: str
    port: int
    broker_epoch: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Peer(asyncio.BufferedProtocol):
    """Made by `Peer.open`. The methods after `close` are for the event loop to call."""

    def __init__(self, broker_id: int, address: Address) -> None:
        self._name = f"broker {broker_id} at {address}"
        self._loop = asyncio.get_running_loop()
        self._session = ClientSession("penstock-broker", _UNPROVED_LIMIT)
        self._received = memoryview(bytearray(_RECEIVE_BYTES))
        self._is_in_place = False
        self._versions: dict[int, Versions] = {}
        self._outstanding: deque[asyncio.Future[Message]] = deque()
        # Requests leave in the order in which they were made: the first of them waits for room, the others for their
        # turn.
        self._turn = asyncio.Lock()
        self._room: asyncio.Future[None] | None = None
        self._is_congested = False
        self._is_retired = False
        self._failure: str | None = None
        self._transport: asyncio.Transport
        self._heard_at = self._loop.time()
        self.used_at = self._heard_at

    @classmethod
    async def open(cls, broker_id: int, address: Address, proof: ConnectingSide) -> Self:
        """Connect, and prove the secret to each other. The caller limits the time."""
        try:
            _, peer = await asyncio.get_running_loop().create_connection(
                lambda: cls(broker_id, address), address.host, address.port
            )
        except OSError as error:
            raise PeerError(f"broker {broker_id} at {address} cannot be reached: {error.strerror or error}") from error
        try:
            await peer._prove(broker_id, proof)
            await peer._learn_versions()
        except BaseException:
            peer._fail("the connection was never finished")
            raise
        return peer

    @property
    def is_open(self) -> bool:
        return self._failure is None

    @property
    def outstanding(self) -> int:
        """Requests without a reply, whether or not a caller still waits for it."""
        return len(self._outstanding)

    async def request(self, message: Message, deadline: float) -> Any:
        """The reply, in the highest version that both sides know; PeerError if there is none until the deadline."""
        asked_at = self.used_at = self._loop.time()
        try:
            async with asyncio.timeout_at(deadline), self._turn:
                await self._wait_for_room()
                reply = self._send(message, self._version_for(type(message)))
        except TimeoutError:
            # Those that take up the room may have given up already, and none of them may look at it any more.
            self._fail_if_silent_since(asked_at)
            raise PeerError(f"{self._name} took in no request in time") from None
        return await self._answer(reply, deadline)

    def retire(self) -> None:
        """Close the connection when it has no request under way any more."""
        self._is_retired = True
        if not self._outstanding and not self._turn.locked():
            self.close("the connection is not needed any more")

    def close(self, reason: str) -> None:
        self._fail(reason)

    # The event loop calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        _notice_cuts(transport.get_extra_info("socket"))

    def get_buffer(self, sizehint: int) -> memoryview:
        room = None if self._failure is not None else self._session.room()
        self._is_in_place = room is not None
        return self._received if room is None else room

    def buffer_updated(self, nbytes: int) -> None:
        if self._failure is not None:
            return
        self._heard_at = self._loop.time()
        try:
            # Views in a reply outlive this call, and the buffer is filled again; a large frame has a buffer of its own.
            replies = (
                self._session.fill(nbytes)
                if self._is_in_place
                else self._session.receive(bytes(self._received[:nbytes]))
            )
        except DecodeError as error:
            self._fail(f"it sent what is no reply ({error})")
            return
        for reply in replies:
            waiting = self._outstanding.popleft()
            if not waiting.done():
                waiting.set_result(reply.response)
        self._make_room()
        if self._is_retired:
            self.retire()

    def pause_writing(self) -> None:
        self._is_congested = True

    def resume_writing(self) -> None:
        self._is_congested = False
        self._make_room()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"it closed the connection{f' ({error})' if error else ''}")

    # How it begins

    async def _prove(self, broker_id: int, proof: ConnectingSide) -> None:
        handshake = await self._ask(SaslHandshakeRequest(mechanism=MECHANISM), _HANDSHAKE_VERSION)
        if handshake.error_code:
            raise PeerError(
                f"{self._name} does not let brokers in by that listener (error {_error(handshake.error_code)}): set "
                "the same inter.broker.listener.name for all brokers"
            )
        challenge = await self._ask(SaslAuthenticateRequest(auth_bytes=proof.hello), _AUTHENTICATE_VERSION)
        try:
            identity, answer = proof.answer(challenge.auth_bytes)
        except ProofError as error:
            raise PeerError(f"{self._name} is no broker of this cluster: {error}") from error
        if identity.node_id != broker_id:
            raise PeerError(f"{self._name} is in fact broker {identity.node_id}: check the advertised addresses")
        accepted = await self._ask(SaslAuthenticateRequest(auth_bytes=answer), _AUTHENTICATE_VERSION)
        if accepted.error_code:
            raise PeerError(f"{self._name} refuses this broker: {accepted.error_message}")
        self._session.frames.limit = DEFAULT_LIMIT

    async def _learn_versions(self) -> None:
        hello = ApiVersionsRequest(client_software_name="penstock", client_software_version=__version__)
        offered = await self._ask(hello, _API_VERSIONS_VERSION)
        if offered.error_code:
            raise PeerError(f"{self._name} does not say which versions it offers: error {_error(offered.error_code)}")
        self._versions = {each.api_key: Versions(each.min_version, each.max_version) for each in offered.api_keys}

    async def _ask(self, message: Message, version: int) -> Any:
        return await self._send(message, version)

    # Requests and replies

    def _version_for(self, kind: type[Message]) -> int:
        key, ours = kind.schema.key, kind.schema.versions
        assert key is not None, "only a request can be sent"
        theirs = self._versions.get(key, Versions.parse("none"))
        version = min(ours.last, theirs.last)
        if version < max(ours.first, theirs.first):
            raise PeerError(f"{self._name} does not offer {kind.__name__} in a version that this broker knows")
        return version

    async def _wait_for_room(self) -> None:
        while self._failure is None and (self._is_congested or len(self._outstanding) >= MAX_OUTSTANDING):
            self._room = self._loop.create_future()
            try:
                await self._room
            finally:
                self._room = None

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _send(self, message: Message, version: int) -> asyncio.Future[Message]:
        if self._failure is not None:
            raise PeerError(f"{self._name}: {self._failure}")
        try:
            _, chunks = self._session.send(message, version)
        except EncodeError as error:
            raise PeerError(f"a request to {self._name} cannot be written: {error}") from error
        self._transport.write(b"".join(chunks))
        reply: asyncio.Future[Message] = self._loop.create_future()
        self._outstanding.append(reply)
        return reply

    async def _answer(self, reply: asyncio.Future[Message], deadline: float) -> Message:
        asked_at = self._loop.time()
        try:
            async with asyncio.timeout_at(deadline):
                return await reply
        except TimeoutError:
            # Replies come in order, so all later requests would wait for this one too.
            self._fail_if_silent_since(asked_at)
            raise PeerError(f"{self._name} did not answer in time", outcome_unknown=True) from None

    def _fail_if_silent_since(self, moment: float) -> None:
        if self._heard_at < moment:
            self._fail("it has not answered for too long")

    def _fail(self, reason: str) -> None:
        """End the connection, and all waits; the first reason is the one that counts."""
        if self._failure is not None:
            return
        self._failure = reason
        while self._outstanding:
            waiting = self._outstanding.popleft()
            if not waiting.done():
                waiting.set_exception(PeerError(f"{self._name}: {reason}", outcome_unknown=True))
                # A caller that was cancelled does not look at it.
                waiting.exception()
        self._make_room()
        self._transport.abort()


def _notice_cuts(sock: socket.socket) -> None:
    """As far as the system lets a connection choose the times."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _NOTICING.items():
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _error(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
