"""One connection to a broker: secured and its versions negotiated when it opens, many requests may be in flight on it,
and every wait ends. A request that is cancelled takes nothing with it: its reply is dropped when it comes."""

import asyncio
import random
import socket
import ssl
from collections import deque
from typing import Any, NamedTuple, Self

from penstock import __version__
from penstock.client.errors import BadReplyError, ClientError, ConnectionLostError, TimedOutError, UnsendableError
from penstock.client.sasl import authenticate
from penstock.client.security import Security
from penstock.client.tls import explain
from penstock.protocol.apis import API_VERSIONS
from penstock.protocol.codec import decode
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError, EncodeError
from penstock.protocol.schema import Message, Versions
from penstock.protocol.schemas.versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.session import ClientSession

DEFAULT_PORT = 9092
CONNECT_TIMEOUT_MS = 10_000
REQUEST_TIMEOUT_MS = 30_000
CLOSE_TIMEOUT_MS = 5_000
# Beyond these a request waits for its turn.
MAX_IN_FLIGHT = 100
MAX_UNSENT_BYTES = 1024 * 1024
RECEIVE_BYTES = 64 * 1024
# What a broker believes about us ends with its session; we show it again when this share of it has passed (KIP-368).
SESSION_SHARE = (0.85, 0.95)


class Address(NamedTuple):
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`host`, `host:port` or `[::1]:port`; without a port it is Kafka's, 9092."""
        host, colon, port = text.strip().rpartition(":")
        if not colon or (":" in host and not host.endswith("]")) or port.endswith("]"):
            host, port = text.strip(), str(DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(
                f"{text!r} is no broker's address: write it as host:port, such as localhost:{DEFAULT_PORT}"
            )
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Connection(asyncio.BufferedProtocol):
    """Made by `Connection.open`. The methods behind `close` are the event loop's to call."""

    def __init__(
        self, address: Address, *, client_id: str, request_timeout_ms: int, security: Security | None = None
    ) -> None:
        self.address = address
        self.versions: dict[int, Versions] = {}
        """What the broker offers, by API key."""
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._security = security
        self._authenticate_at: float | None = None
        self._authentication: asyncio.Task[None] | None = None
        self._was_answered = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._session = ClientSession(client_id)
        self._received = memoryview(bytearray(RECEIVE_BYTES))
        self._is_in_place = False
        self._greeting: asyncio.Future[memoryview] | None = None
        self._in_flight: deque[_InFlight] = deque()
        # Requests leave in the order in which they were made: who has the turn waits for room, the others for the turn.
        self._turn = asyncio.Lock()
        self._room: asyncio.Future[None] | None = None
        self._is_congested = False
        self._failure: ClientError | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "penstock",
        timeout_ms: int = CONNECT_TIMEOUT_MS,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        security: Security | None = None,
    ) -> Self:
        """A connection whose broker has said what it speaks and believes who we are, within `timeout_ms`."""
        address = Address(host, port)
        context = None if security is None else security.context
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, self = await loop.create_connection(
                    lambda: cls(address, client_id=client_id, request_timeout_ms=request_timeout_ms, security=security),
                    host,
                    port,
                    ssl=context,
                    server_hostname=None if context is None else host,
                )
                try:
                    await self._negotiate()
                    await self._authenticate()
                except BaseException:
                    self._fail(ConnectionLostError(f"the connection to {address} was never finished"))
                    raise
        except TimeoutError:
            raise ConnectionLostError(
                f"{address} gave no answer within {timeout_ms} ms; check the address and that the broker runs"
            ) from None
        except OSError as error:
            if context is not None and isinstance(error, ssl.SSLError | ConnectionResetError | ConnectionAbortedError):
                raise explain(address, error) from error
            raise ConnectionLostError(
                f"cannot connect to {address}: {error.strerror or error}; check the address and that the broker runs"
            ) from error
        return self

    @property
    def is_open(self) -> bool:
        return self._failure is None

    @property
    def in_flight(self) -> int:
        """Requests that the broker has not answered, whether somebody still waits for them or not."""
        return len(self._in_flight)

    def version_for(self, kind: type[Message], versions: Versions | None = None) -> int:
        """The highest version of a request that our tables, the broker and the caller's `versions` have in common."""
        key, ours = kind.schema.key, kind.schema.versions
        assert key is not None, "only a request has versions to choose from"
        theirs = self.versions.get(key)
        if theirs is None:
            raise UnsendableError(f"{self.address} does not offer {_name(kind)}: a newer broker may")
        wanted = ours
        if versions is not None:
            wanted = Versions(max(ours.first, versions.first), min(ours.last, versions.last))
        version = min(wanted.last, theirs.last)
        if version < max(wanted.first, theirs.first):
            older = "client" if theirs.first > wanted.last else "broker"
            raise UnsendableError(
                f"{self.address} offers {_name(kind)} in versions {theirs.first} to {theirs.last}, not in "
                f"{wanted.first} to {wanted.last}: upgrade the {older}"
            )
        return version

    async def request(
        self, message: Message, *, versions: Versions | None = None, timeout_ms: int | None = None
    ) -> Any:
        """The broker's response, in the highest version that both sides know and `versions` allows; None when the
        request (a produce with acks=0) has none. A request without an answer in time closes the connection: replies
        come in order, so whatever was asked later waits for it too."""
        version = self.version_for(type(message), versions)
        timeout_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline), self._turn:
                await self._wait_for_room()
                if self._authenticate_at is not None and self._loop.time() >= self._authenticate_at:
                    await self._authenticate_again()
                reply = self._send(message, version, deadline, timeout_ms)
        except TimeoutError:
            why = f"{self.address} took in no {_name(type(message))} within {timeout_ms} ms"
            self._fail(ConnectionLostError(f"{why}; the connection is closed"))
            raise TimedOutError(why) from None
        return None if reply is None else await reply

    @property
    def is_free(self) -> bool:
        """Whether a request would leave at once."""
        return self._failure is None and not (
            self._turn.locked()
            or self._is_congested
            or len(self._in_flight) >= MAX_IN_FLIGHT
            or (self._authenticate_at is not None and self._loop.time() >= self._authenticate_at)
        )

    async def until_free(self, timeout_ms: int | None = None) -> None:
        """Wait for that; a broker that takes in nothing for so long is taken for dead."""
        timeout_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._turn:
                await self._wait_for_room()
                if self._authenticate_at is not None and self._loop.time() >= self._authenticate_at:
                    await self._authenticate_again()
        except TimeoutError:
            why = f"{self.address} took in nothing within {timeout_ms} ms"
            self._fail(ConnectionLostError(f"{why}; the connection is closed"))
            raise TimedOutError(why) from None

    def post(self, message: Message, version: int, *, timeout_ms: int | None = None) -> asyncio.Future[Any] | None:
        """The same as `request` without waiting, for a connection that `is_free`: a future of the response, or None
        when there will be none."""
        timeout_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        return self._send(message, version, self._loop.time() + timeout_ms / 1000, timeout_ms)

    async def close(self) -> None:
        """Send what is written, and end. Whoever still waits for a reply gets a ConnectionLostError."""
        self._end(ConnectionLostError(f"the connection to {self.address} was closed here"))
        self._transport.close()
        try:
            await asyncio.wait([self._ended], timeout=CLOSE_TIMEOUT_MS / 1000)
            if self._authentication is not None:
                await asyncio.wait([self._authentication])
        finally:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        room = None if self._greeting is not None or self._failure is not None else self._session.room()
        self._is_in_place = room is not None
        return self._received if room is None else room

    def buffer_updated(self, nbytes: int) -> None:
        if self._failure is not None:
            return
        # Views in a response outlive this call, and the buffer is filled anew; a large frame has one of its own.
        data = b"" if self._is_in_place else bytes(self._received[:nbytes])
        try:
            if self._greeting is not None:
                self._read_greeting(self._greeting, data)
                return
            replies = self._session.fill(nbytes) if self._is_in_place else self._session.receive(data)
        except DecodeError as error:
            what = f"sent what is no Kafka reply ({error}); check the port, and TLS"
            if data.startswith(_TLS_ALERT):
                what = "speaks TLS: set security.protocol to SSL or SASL_SSL, or check the port"
            self._fail(BadReplyError(f"{self.address} {what}"))
            return
        self._was_answered = True
        for reply in replies:
            awaited = self._in_flight.popleft()
            awaited.timer.cancel()
            if not awaited.reply.done():
                awaited.reply.set_result(reply.response)
        self._make_room()

    def pause_writing(self) -> None:
        self._is_congested = True

    def resume_writing(self) -> None:
        self._is_congested = False
        self._make_room()

    def connection_lost(self, error: Exception | None) -> None:
        if isinstance(error, ssl.SSLError) and not self._was_answered:
            self._end(explain(self.address, error))
        self._end(self._loss(error))
        if not self._ended.done():
            self._ended.set_result(None)

    def _loss(self, error: Exception | None) -> ConnectionLostError:
        """Brokers do not say why they hang up, so this says what may be wrong with the settings."""
        why = f"{self.address} closed the connection{f': {error}' if error else ''}"
        has_tls = self._security is not None and self._security.context is not None
        has_password = self._security is not None and self._security.credentials is not None
        if self._was_answered or (has_password and self._greeting is None):
            return ConnectionLostError(why)
        if self._greeting is None:
            advice = f"a password, set security.protocol to {'SASL_SSL' if has_tls else 'SASL_PLAINTEXT'}"
        elif has_tls:
            advice = "a client's certificate, set ssl.certificate.location and ssl.key.location"
        else:
            advice = "TLS, set security.protocol to SSL or SASL_SSL"
        return ConnectionLostError(f"{why}; if this port wants {advice}")

    async def _negotiate(self) -> None:
        version = ApiVersionsRequest.schema.versions.last
        answer = await self._greet(version)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # A refusal may say what would have been understood; where it does not, version 0 is (KIP-511).
            offered = next((each.max_version for each in answer.api_keys if each.api_key == API_VERSIONS), 0)
            answer = await self._greet(max(0, min(offered, version - 1)))
        if answer.error_code:
            raise BadReplyError(
                f"{self.address} refused to say which versions it speaks: error code {answer.error_code}"
            )
        self.versions = {each.api_key: Versions(each.min_version, each.max_version) for each in answer.api_keys}

    async def _greet(self, version: int) -> ApiVersionsResponse:
        # In a session of its own: an answer in version 0 may come instead of the one asked for.
        self._session = ClientSession(self._client_id)
        hello = ApiVersionsRequest(client_software_name="penstock", client_software_version=__version__)
        correlation_id, chunks = self._session.send(hello, version)
        if self._failure is not None:
            raise self._copy(self._failure)
        self._greeting = self._loop.create_future()
        self._write(chunks)
        try:
            received = await self._greeting
            return read_greeting(received, correlation_id, version)
        except DecodeError as error:
            raise BadReplyError(
                f"{self.address} does not answer as a Kafka broker ({error}); check the port"
            ) from error
        finally:
            self._greeting = None
            self._session = ClientSession(self._client_id)

    def _read_greeting(self, greeting: asyncio.Future[memoryview], data: bytes) -> None:
        frames = self._session.frames.feed(memoryview(data))
        if len(frames) > 1 or (frames and greeting.done()):
            raise DecodeError("more replies than requests")
        if frames:
            greeting.set_result(frames[0])

    async def _authenticate(self) -> None:
        """Show who we are, if that is asked for."""
        if self._security is None or self._security.credentials is None:
            return
        try:
            lifetime_ms = await authenticate(self._ask, self._security.credentials, self.address)
        except ClientError as error:
            # Nothing has been asked for yet whose outcome could be unknown.
            raise self._copy(error) from error
        lasts = lifetime_ms / 1000 * random.uniform(*SESSION_SHARE)
        self._authenticate_at = self._loop.time() + lasts if lifetime_ms > 0 else None

    async def _authenticate_again(self) -> None:
        """Done by whoever has the turn. If he gives up it goes on without him: a broker left in the middle of it takes
        in nothing else."""
        if self._authentication is None:
            self._authentication = self._loop.create_task(self._renew())
        await asyncio.shield(self._authentication)
        if self._failure is not None:
            raise self._copy(self._failure)

    async def _renew(self) -> None:
        try:
            await self._authenticate()
        except ClientError as error:
            if self._failure is None:
                self._fail(error)
        finally:
            self._authentication = None

    async def _ask(self, message: Message, versions: Versions | None) -> Any:
        """A request of whoever has the turn already."""
        version = self.version_for(type(message), versions)
        if self._failure is not None:
            raise self._copy(self._failure)
        deadline = self._loop.time() + self._request_timeout_ms / 1000
        reply = self._send(message, version, deadline, self._request_timeout_ms)
        assert reply is not None, "only a produce may want no reply"
        return await reply

    async def _wait_for_room(self) -> None:
        while self._failure is None and (self._is_congested or len(self._in_flight) >= MAX_IN_FLIGHT):
            self._room = self._loop.create_future()
            try:
                await self._room
            finally:
                self._room = None
        if self._failure is not None:
            raise self._copy(self._failure)

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _send(self, message: Message, version: int, deadline: float, timeout_ms: int) -> asyncio.Future[Any] | None:
        before = self._session.awaited
        try:
            _, chunks = self._session.send(message, version)
        except EncodeError as error:
            raise UnsendableError(f"the request cannot be written: {error}") from error
        self._write(chunks)
        if self._session.awaited == before:
            return None
        reply: asyncio.Future[Any] = self._loop.create_future()
        why = f"{self.address} did not answer {_name(type(message))} within {timeout_ms} ms"
        timer = self._loop.call_at(deadline, self._expire, reply, why)
        self._in_flight.append(_InFlight(reply, timer))
        return reply

    def _write(self, chunks: list[Any]) -> None:
        # Not `writelines`: in the first releases of Python 3.12 and 3.13 it knows neither flow control nor a connection
        # that was just lost (CPython's issues 127655 and 136234).
        self._transport.write(b"".join(chunks))

    def _expire(self, reply: asyncio.Future[Any], why: str) -> None:
        if not reply.done():
            reply.set_exception(TimedOutError(why, outcome_unknown=True))
        self._fail(ConnectionLostError(f"{why}; the connection is closed"))

    def _fail(self, failure: ClientError) -> None:
        """Nothing more can be read here that would make sense."""
        self._end(failure)
        self._transport.abort()

    def _end(self, failure: ClientError) -> None:
        """Tell everybody who waits; the first failure is the one that counts."""
        if self._failure is not None:
            return
        self._failure = failure
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(self._copy(failure))
        while self._in_flight:
            awaited = self._in_flight.popleft()
            awaited.timer.cancel()
            if not awaited.reply.done():
                awaited.reply.set_exception(self._copy(failure, outcome_unknown=True))
        self._make_room()

    @staticmethod
    def _copy(failure: ClientError, *, outcome_unknown: bool = False) -> ClientError:
        """One exception for each who waits: a traceback belongs to one task."""
        return type(failure)(str(failure), outcome_unknown=outcome_unknown)


# How the answer of a broker begins that was told something else than TLS: an alert, of TLS 1.x.
_TLS_ALERT = b"\x15\x03"


class _InFlight(NamedTuple):
    reply: asyncio.Future[Any]
    timer: asyncio.TimerHandle


def read_greeting(received: memoryview, correlation_id: int, version: int) -> ApiVersionsResponse:
    """The answer to an ApiVersions request. A broker that does not know the version answers in version 0, and all
    versions begin with the error code that tells (KIP-511)."""
    if len(received) < 6 or int.from_bytes(received[:4], "big", signed=True) != correlation_id:
        raise DecodeError("the first reply does not belong to the first request")
    if int.from_bytes(received[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION:
        version = 0
    return decode(ApiVersionsResponse, version, received, 4)


def _name(kind: type[Message]) -> str:
    return kind.__name__.removesuffix("Request")
