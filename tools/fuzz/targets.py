"""The targets are functions that take any bytes. A DecodeError is their answer to bad ones, anything else a finding."""

from collections.abc import Callable, Iterable, Iterator

from penstock.protocol.apis import all_apis
from penstock.protocol.batch import BatchHeader, check_produced, read_header, split, stamp_crc, verify
from penstock.protocol.codec import decode, encode
from penstock.protocol.compression import Codec, decompress
from penstock.protocol.control import read_control
from penstock.protocol.errors import DecodeError
from penstock.protocol.framing import FrameReader
from penstock.protocol.records import iterate
from penstock.protocol.schema import Message
from penstock.protocol.schemas.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription, EndTxnMarker
from penstock.protocol.schemas.fetch import FetchRequest
from penstock.protocol.schemas.headers import RequestHeader, ResponseHeader
from penstock.protocol.schemas.metadata import MetadataRequest
from penstock.protocol.schemas.versions import ApiVersionsRequest
from penstock.protocol.session import ClientSession, Request, ServerSession

MAX_DECOMPRESSED_BYTES = 1024 * 1024
FRAME_LIMIT = 64 * 1024

# Message classes by the first byte of an input: API keys as they are, and numbers above them for what has no key. An
# input that is kept as a regression so means the same message tomorrow.
CLASSES: dict[int, tuple[type[Message], type[Message]]] = {
    **{api.key: (api.request, api.response) for api in all_apis()},
    250: (RequestHeader, ResponseHeader),
    251: (ConsumerProtocolSubscription, ConsumerProtocolAssignment),
    252: (EndTxnMarker, EndTxnMarker),
}
KEYS = sorted(CLASSES)


def fuzz_codec(data: bytes) -> None:
    """A message: its class, its version, its bytes. What can be read can be written and read again, to the same."""
    if len(data) < 2:
        return
    cls, version = chosen(data[0], data[1])
    try:
        message = decode(cls, version, data, 2)
    except DecodeError:
        return
    written = encode(message, version)
    assert encode(decode(cls, version, written), version) == written


def chosen(key: int, variant: int) -> tuple[type[Message], int]:
    cls = CLASSES[key if key in CLASSES else KEYS[key % len(KEYS)]][variant & 1]
    first, last = cls.schema.versions
    return cls, first + (variant >> 1) % (last - first + 1)


def choice(cls: type[Message], version: int) -> bytes:
    """The two bytes by which `chosen` chooses this."""
    key = next(key for key, classes in CLASSES.items() if cls in classes)
    return bytes([key, (version - cls.schema.versions.first) << 1 | CLASSES[key].index(cls)])


def fuzz_batch(data: bytes) -> None:
    """A field of record batches. Checksums are made right, or nothing would get past them."""
    try:
        batches = split(bytearray(data))
    except DecodeError:
        return
    for damaged, view in batches:
        attempt(verify, damaged, view)
        stamp_crc(view)
        header = read_header(view)
        attempt(check_produced, header)
        attempt(verify, header, view)
        attempt(read_records, header, view)


def attempt(function: Callable[..., None], *arguments: object) -> None:
    try:
        function(*arguments)
    except DecodeError:
        pass


def read_records(header: BatchHeader, view: memoryview) -> None:
    records = list(iterate(view, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES))
    assert len(records) == header.record_count
    assert all(header.base_offset <= record.offset <= header.last_offset for record in records)
    if header.is_control:
        for record in records:
            read_control(record)


def fuzz_compression(data: bytes) -> None:
    """Compressed bytes after the number of their codec."""
    if not data:
        return
    codec = Codec(data[0] % len(Codec))
    try:
        decompressed = decompress(codec, memoryview(data)[1:], limit=MAX_DECOMPRESSED_BYTES)
    except DecodeError:
        return
    assert len(decompressed) <= MAX_DECOMPRESSED_BYTES


def fuzz_framing(data: bytes) -> None:
    """A stream, after the size of the pieces that it comes in: the frames are those of the stream in one piece."""
    if not data:
        return
    stream = data[1:]
    assert read_frames([stream]) == read_frames(cut(stream, data[0]))


def read_frames(pieces: Iterable[bytes]) -> tuple[list[bytes], int] | str:
    """The frames and what is left over, or the refusal: then there are no frames, for the connection is closed."""
    reader = FrameReader(FRAME_LIMIT)
    try:
        frames = [bytes(frame) for piece in pieces for frame in reader.feed(memoryview(piece))]
    except DecodeError as error:
        return str(error)
    return frames, reader.waiting_bytes


def cut(stream: bytes, size: int) -> Iterator[bytes]:
    step = size or len(stream) or 1
    return (stream[start : start + step] for start in range(0, len(stream), step))


def fuzz_session(data: bytes) -> None:
    """A stream, after the size of its pieces, as a client's requests to us and as a broker's replies to us."""
    if not data:
        return
    attempt(serve, data[1:], data[0])
    attempt(read_replies, data[1:], data[0])


def serve(stream: bytes, size: int) -> None:
    server = ServerSession(Request, FRAME_LIMIT)
    for piece in cut(stream, size):
        for request in server.receive(piece):
            attempt(decode_body, request)
            assert server.answer(request, None) == []
    assert server.unanswered == 0


def decode_body(request: Request) -> None:
    request.decode()


def read_replies(stream: bytes, size: int) -> None:
    client = ClientSession("fuzz", FRAME_LIMIT)
    for message, version in ((ApiVersionsRequest(), 3), (MetadataRequest(), 13), (FetchRequest(), 12)):
        client.send(message, version)
    for piece in cut(stream, size):
        client.receive(piece)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "codec": fuzz_codec,
    "batch": fuzz_batch,
    "compression": fuzz_compression,
    "framing": fuzz_framing,
    "session": fuzz_session,
}
