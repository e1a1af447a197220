"""`Connection` is one connection to a broker: it is secured and its versions are negotiated when it opens, many
requests may be in flight on it, and every wait ends. The reply to a cancelled request is dropped when it comes."""

import asyncio
import random
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from penstock import __version__
from penstock.client.cluster.sasl import authenticate
from penstock.client.cluster.security import Security
from penstock.client.cluster.tls import explain
from penstock.client.errors import BadReplyError, ClientError, ConnectionLostError, TimedOutError, UnsendableError
from penstock.client.metadata import Address
from penstock.protocol.apis import API_VERSIONS
from penstock.protocol.codec import decode
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError, EncodeError
from penstock.protocol.schema import Message, Versions
from penstock.protocol.schemas.fetch import FetchRequest
from penstock.protocol.schemas.produce import ProduceRequest
from penstock.protocol.schemas.versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.session import ClientSession

CONNECT_TIMEOUT_MS = 10_000
REQUEST_TIMEOUT_MS = 30_000
CLOSE_TIMEOUT_MS = 5_000
# Beyond these a request waits for its turn.
MAX_IN_FLIGHT = 100
MAX_UNSENT_BYTES = 1024 * 1024
RECEIVE_BYTES = 64 * 1024
# A broker may ask a client that exceeds its quota to pause. No pause longer than this is believed.
MAX_THROTTLE_MS = 60_000
# Below these versions a broker has waited itself before it answers (KIP-219). With other requests, which are few, it
# does no harm to wait once more.
_SILENT_FROM: dict[type[Message], int] = {ProduceRequest: 6, FetchRequest: 8}
# Authentication ends with its session; the client authenticates again when this share of it has passed (KIP-368).
SESSION_SHARE = (0.85, 0.95)


class Connection(asyncio.BufferedProtocol):
    """Made by `Connection.open`. The methods after `close` are for the event loop to call."""

    def __init__(
        self, address: Address, *, client_id: str, request_timeout_ms: int, security: Security | None = None
    ) -> None:
        self.address = address
        self.versions: dict[int, Versions] = {}
        """What the broker offers, by API key."""
        self.throttled_until = 0.0
        """The loop's time until which the broker wants to hear nothing here (KIP-219)."""
        self.lost: Callable[[ClientError, bool], object] | None = None
        """Called when the connection has ended and was not closed here: with the reason, and whether requests were
        under way."""
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
        # Requests leave in the order in which they were made: the one that has the turn waits for room, the others for
        # the turn.
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
        """Open a connection, within `timeout_ms`: the broker has reported its versions and accepted the client's
        credentials."""
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
        """Requests that the broker has not answered, whether or not a caller still waits for them."""
        return len(self._in_flight)

    @property
    def silent_seconds(self) -> float:
        """How long the oldest request has waited for its answer, besides the time for which the broker was asked to
        hold that back, or has asked for a pause itself."""
        if not self._in_flight:
            return 0.0
        expected_at = self._in_flight[0].timer.when() - self._request_timeout_ms / 1000
        return max(0.0, self._loop.time() - expected_at)

    def version_for(self, kind: type[Message], versions: Versions | None = None) -> int:
        """The highest version of a request that this client, the broker and the caller's `versions` have in common."""
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
        come in order, so all later requests would wait for it too."""
        version = self.version_for(type(message), versions)
        timeout_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        # The time for which the broker wants silence is not its delay.
        deadline = max(self._loop.time(), self.throttled_until) + timeout_ms / 1000
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
        if reply is None:
            return None
        response = await reply
        if pause_ms := throttle_ms(type(message), version, response):
            self.throttled_until = max(self.throttled_until, self._loop.time() + pause_ms / 1000)
        return response

    @property
    def is_free(self) -> bool:
        """Whether a request would leave at once."""
        return self._failure is None and not (
            self._turn.locked()
            or self._is_congested
            or len(self._in_flight) >= MAX_IN_FLIGHT
            or self.throttled_until > self._loop.time()
            or (self._authenticate_at is not None and self._loop.time() >= self._authenticate_at)
        )

    async def until_free(self, timeout_ms: int | None = None) -> None:
        """Wait until the connection is free; a broker that takes in nothing for the timeout is taken for dead."""
        timeout_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        try:
            deadline = max(self._loop.time(), self.throttled_until) + timeout_ms / 1000
            async with asyncio.timeout_at(deadline), self._turn:
                await self._wait_for_room()
                if self._authenticate_at is not None and self._loop.time() >= self._authenticate_at:
                    await self._authenticate_again()
        except TimeoutError:
            why = f"{self.address} took in nothing within {timeout_ms} ms"
            self._fail(ConnectionLostError(f"{why}; the connection is closed"))
            raise TimedOutError(why) from None

    def post(self, message: Message, version: int, *, timeout_ms: int | None = None) -> asyncio.Future[Any] | None:
        """As `request`, without waiting, for a connection that `is_free`: a future of the response, or None when there
        will be none."""
        timeout_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        return self._send(message, version, self._loop.time() + timeout_ms / 1000, timeout_ms)

    async def close(self) -> None:
        """Send what is written, and end. Callers that still wait for a reply get a ConnectionLostError."""
        self.lost = None
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
        # Views in a response outlive this call, and the buffer is filled again; a large frame has a buffer of its own.
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
        """Authenticate, if the settings say so."""
        if self._security is None or self._security.credentials is None:
            return
        try:
            lifetime_ms = await authenticate(self._ask, self._security.credentials, self.address)
        except ClientError as error:
            # No request has been sent yet whose outcome could be unknown.
            raise self._copy(error) from error
        lasts = lifetime_ms / 1000 * random.uniform(*SESSION_SHARE)
        self._authenticate_at = self._loop.time() + lasts if lifetime_ms > 0 else None

    async def _authenticate_again(self) -> None:
        """Authenticate again; done by the request that has the turn. If its caller gives up, this goes on: a broker
        that is left in the middle of it takes in nothing else."""
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
        """Send a request for a caller that has the turn already."""
        version = self.version_for(type(message), versions)
        if self._failure is not None:
            raise self._copy(self._failure)
        deadline = self._loop.time() + self._request_timeout_ms / 1000
        reply = self._send(message, version, deadline, self._request_timeout_ms)
        assert reply is not None, "only a produce may want no reply"
        return await reply

    async def _wait_for_room(self) -> None:
        while self._failure is None and (left := self.throttled_until - self._loop.time()) > 0:
            await asyncio.wait([self._ended], timeout=left)
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
        """Close the connection, as nothing more can be read from it that would make sense."""
        self._end(failure)
        self._transport.abort()

    def _end(self, failure: ClientError) -> None:
        """Fail all requests that wait; the first failure is the one that counts."""
        if self._failure is not None:
            return
        self._failure = failure
        if self.lost is not None:
            self.lost(failure, bool(self._in_flight) or self._turn.locked())
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
        """One exception for each waiting task: a traceback belongs to one task."""
        return type(failure)(str(failure), outcome_unknown=outcome_unknown)


# The first bytes of a broker's answer to something that is not TLS: an alert of TLS 1.x.
_TLS_ALERT = b"\x15\x03"


class _InFlight(NamedTuple):
    reply: asyncio.Future[Any]
    timer: asyncio.TimerHandle


def throttle_ms(kind: type[Message], version: int, response: Message) -> int:
    """How long a broker wants to hear nothing after this answer to a request of that kind and version."""
    told = int(getattr(response, "throttle_time_ms", 0))
    return min(told, MAX_THROTTLE_MS) if told > 0 and version >= _SILENT_FROM.get(kind, 0) else 0


def read_greeting(received: memoryview, correlation_id: int, version: int) -> ApiVersionsResponse:
    """The answer to an ApiVersions request. A broker that does not know the version answers in version 0, and every
    version begins with the error code (KIP-511)."""
    if len(received) < 6 or int.from_bytes(received[:4], "big", signed=True) != correlation_id:
        raise DecodeError("the first reply does not belong to the first request")
    if int.from_bytes(received[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION:
        version = 0
    return decode(ApiVersionsResponse, version, received, 4)


def _name(kind: type[Message]) -> str:
    return kind.__name__.removesuffix("Request")
