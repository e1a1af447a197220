"""Models the two ends of a connection without its socket: bytes go in, requests or replies come out, and replies keep
the order of requests."""

import sys
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from struct import Struct, error
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.protocol.apis import Api, api
from penstock.protocol.codec import decode, decoder, encoder, stepwise_encoder
from penstock.protocol.errors import DecodeError
from penstock.protocol.framing import DEFAULT_LIMIT, FrameReader, frame
from penstock.protocol.schema import Message
from penstock.protocol.schemas.headers import RequestHeader, ResponseHeader
from penstock.protocol.schemas.metadata import MetadataRequest
from penstock.protocol.schemas.produce import ProduceRequest

# A slice of a long response has as many chunks as this, and those of its last item.
_CHUNKS_AT_ONCE = 500


@dataclass(slots=True, eq=False)
class Request:
    """A request that has come in: its header, and its body, which is decoded when it is asked for."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body: memoryview
    written: list[Any] | None = None
    answered: bool = False

    @property
    def is_supported(self) -> bool:
        """Whether the tables know this version. Only ApiVersions can be answered when they do not."""
        return self.version in self.api.request.schema.versions

    def decode(self) -> Message:
        try:
            return decode(self.api.request, self.version, self.body)
        except DecodeError:
            # librdkafka up to 2.16 asks for all topics with a null of four bytes where a flexible version has one.
            if self.api.request is MetadataRequest and self.version >= 9 and self.body[:4] == bytes(4):
                return decode(self.api.request, self.version, self.body[3:])
            raise


R = TypeVar("R", bound=Request)


class ServerSession(Generic[R]):
    """The broker's end. `make` is what requests become."""

    def __init__(self, make: Callable[[Api, int, int, str | None, memoryview], R], limit: int = DEFAULT_LIMIT) -> None:
        self.frames = FrameReader(limit)
        self._make = make
        self._unanswered: deque[R] = deque()

    @property
    def unanswered(self) -> int:
        return len(self._unanswered)

    def receive(self, data: bytes | memoryview, at_most: int = sys.maxsize) -> list[R]:
        """The requests that these bytes complete, up to `at_most`; what comes after them is kept for `more`.
        DecodeError means that the connection has to be closed."""
        return self._read(self.frames.feed(memoryview(data), at_most))

    def receive_one(self, data: memoryview) -> R | None:
        """The request, if these bytes are just one and nothing is kept, as they mostly are. If not, they are still to
        be received."""
        if not self.frames.is_whole(data):
            return None
        request = read_request(data[4:], self._make)
        self._unanswered.append(request)
        return request

    def more(self, at_most: int) -> list[R]:
        """Requests that were kept."""
        return self._read(self.frames.more(at_most))

    def _read(self, frames: list[memoryview]) -> list[R]:
        make = self._make
        requests = [read_request(received, make) for received in frames]
        self._unanswered.extend(requests)
        return requests

    def answer(self, request: R, response: Message | None, version: int | None = None) -> list[Any]:
        """Give a request its reply (None: it wants none) and get the chunks that may now be sent: none while an earlier
        request is unanswered, and perhaps several replies at once."""
        written = None
        if response is not None:
            written = write_response(request, response, request.version if version is None else version)
        return self.answer_written(request, written)

    def answer_written(self, request: R, reply: list[Any] | None) -> list[Any]:
        """Like `answer`, with a reply that is in chunks already, framed."""
        assert not request.answered, "a request is answered once"
        request.written = reply
        request.answered = True
        waiting = self._unanswered
        if waiting[0] is not request:
            return []
        waiting.popleft()
        if not waiting or not waiting[0].answered:
            return reply or []
        chunks = list(reply or ())
        while waiting and waiting[0].answered:
            chunks += waiting.popleft().written or ()
        return chunks

    def is_next(self, request: R) -> bool:
        """Whether all earlier requests have been answered."""
        return self._unanswered[0] is request

    @property
    def first(self) -> R:
        """The request that all later ones have to wait for."""
        return self._unanswered[0]

    def answered(self) -> list[R]:
        """Requests whose replies wait for an earlier one."""
        return [request for request in self._unanswered if request.answered]

    def abandon(self) -> list[R]:
        """The connection is gone: what was left, answered or not."""
        left, self._unanswered = list(self._unanswered), deque()
        return left


class Reply(NamedTuple):
    correlation_id: int
    response: Message


class ClientSession:
    """The client's end."""

    def __init__(self, client_id: str | None = None, limit: int = DEFAULT_LIMIT) -> None:
        self.client_id = client_id
        self.frames = FrameReader(limit)
        self._next_id = 0
        self._awaited: deque[tuple[int, Api, int]] = deque()

    @property
    def awaited(self) -> int:
        return len(self._awaited)

    def send(self, message: Message, version: int) -> tuple[int, list[Any]]:
        """A request's correlation id and its chunks to send."""
        key = type(message).schema.key
        assert key is not None, "only a request can be sent"
        kind = api(key)
        correlation_id = self._next_id
        chunks: list[Any] = []
        header_version = kind.request_header_version(version)
        header = RequestHeader(
            request_api_key=kind.key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self.client_id,
        )
        encoder(RequestHeader, header_version)(header, chunks)
        encoder(kind.request, version)(message, chunks)
        self._next_id = (correlation_id + 1) & 0x7FFFFFFF
        if not (isinstance(message, ProduceRequest) and message.acks == 0):
            self._awaited.append((correlation_id, kind, version))
        return correlation_id, frame(chunks)

    def receive(self, data: bytes | memoryview) -> list[Reply]:
        """The replies that these bytes complete; DecodeError means that the connection has to be closed."""
        return [self._read_reply(received) for received in self.frames.feed(memoryview(data))]

    def room(self) -> memoryview | None:
        """Where to put what comes next, if that is known: see `FrameReader.room`. Then it is `fill`ed, not received."""
        return self.frames.room()

    def fill(self, count: int) -> list[Reply]:
        """The reply that these bytes complete, if they do."""
        frame = self.frames.fill(count)
        return [] if frame is None else [self._read_reply(frame)]

    def _read_reply(self, received: memoryview) -> Reply:
        if not self._awaited:
            raise DecodeError("a reply came that nobody asked for")
        correlation_id, kind, version = self._awaited.popleft()
        header, position = decoder(ResponseHeader, kind.response_header_version(version))(received, 0)
        if header.correlation_id != correlation_id:
            raise DecodeError(f"a reply to request {header.correlation_id} came in place of one to {correlation_id}")
        return Reply(correlation_id, decode(kind.response, version, received, position))


def read_request(received: memoryview, make: Callable[[Api, int, int, str | None, memoryview], R]) -> R:
    """The request in a frame. An API that we have no tables for cannot even have its header read."""
    try:
        key, version, correlation_id, length = _HEADER(received)
    except error:
        raise DecodeError(f"a request of {len(received)} bytes has no header") from None
    try:
        kind, is_flexible = _KINDS.get((key, version)) or _learn_kind(key, version)
    except KeyError:
        raise DecodeError(f"unknown API key {key}") from None
    position = _HEADER_SIZE + max(length, 0)
    try:
        if length >= -1 and position + is_flexible <= len(received) and not (is_flexible and received[position]):
            client_id = None if length < 0 else str(received[_HEADER_SIZE:position], "utf-8")
            return make(kind, version, correlation_id, client_id, received[position + is_flexible :])
    except UnicodeDecodeError:
        pass
    # Something is unusual about it: tagged fields, or damage, which the tables know how to name.
    header, position = decoder(RequestHeader, kind.request_header_version(version))(received, 0)
    return make(kind, version, correlation_id, header.client_id, received[position:])


# Key, version, correlation id, and the length of the client id.
_HEADER = Struct(">hhih").unpack_from
_HEADER_SIZE = 10
_KINDS: dict[tuple[int, int], tuple[Api, bool]] = {}


def _learn_kind(key: int, version: int) -> tuple[Api, bool]:
    kind = api(key)
    known = kind, kind.request_header_version(version) == 2
    if version in kind.request.schema.versions:
        _KINDS[key, version] = known
    return known


def write_response(request: Request, response: Message, version: int) -> list[Any]:
    """The framed chunks of a response. `version` is the request's, but for an ApiVersions that we do not know."""
    chunks: list[Any] = []
    header = ResponseHeader(correlation_id=request.correlation_id)
    encoder(ResponseHeader, request.api.response_header_version(version))(header, chunks)
    encoder(type(response), version)(response, chunks)
    return frame(_joined(chunks))


def write_response_in_slices(request: Request, response: Message) -> Generator[int, None, list[Any]]:
    """Like `write_response`, for a response that may be long: stops after every slice and says how many bytes there are
    so far, before those of the slice are copied. Returns the framed chunks."""
    chunks: list[Any] = []
    header = ResponseHeader(correlation_id=request.correlation_id)
    encoder(ResponseHeader, request.api.response_header_version(request.version))(header, chunks)
    written: list[bytes] = []
    size = 0
    for _ in stepwise_encoder(type(response), request.version)(response, chunks):
        if len(chunks) >= _CHUNKS_AT_ONCE:
            size += sum(map(len, chunks))
            yield size
            written.append(b"".join(chunks))
            chunks.clear()
    yield size + sum(map(len, chunks))
    written.append(b"".join(chunks))
    return frame(written)


def _joined(chunks: list[Any]) -> list[Any]:
    """The small pieces of a message put together, so that no later step has to deal with each of them again. What is no
    bytes, such as a range of a file, stays as it is."""
    others = [number for number, chunk in enumerate(chunks) if type(chunk) is not bytes]
    if not others:
        if len(chunks) > _CHUNKS_AT_ONCE:
            # Python takes 80 bytes for each chunk that it joins: for many small ones ten times what they hold.
            begins = range(0, len(chunks), _CHUNKS_AT_ONCE)
            chunks = [b"".join(chunks[begin : begin + _CHUNKS_AT_ONCE]) for begin in begins]
        return [b"".join(chunks)]
    joined: list[Any] = []
    begin = 0
    for number in others:
        joined += b"".join(chunks[begin:number]), chunks[number]
        begin = number + 1
    joined.append(b"".join(chunks[begin:]))
    return joined
