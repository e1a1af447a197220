"""The pieces that the quick ways of Produce and Fetch have in common: lengths and topics of requests, and the parts of
replies that are the same in every reply of a version, cut out of one that the tables wrote."""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.protocol.apis import api
from penstock.protocol.errors import DecodeError
from penstock.protocol.schema import Message
from penstock.protocol.session import Request, write_response
from penstock.protocol.varint import read_uvarint, uvarint

FRAME: Final = Struct(">ii")
"""The length of a reply and its correlation id."""

_ID_BYTES: Final = 16
_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")


def read_length(body: memoryview, position: int, *, is_flexible: bool) -> tuple[int, int]:
    """The length of an array or of records, -1 if there is none, and the position after it."""
    if not is_flexible:
        return _INT.unpack_from(body, position)[0], position + 4
    byte = body[position]
    if byte < 0x80:
        return byte - 1, position + 1
    value, end = read_uvarint(body, position)
    if end - position != len(uvarint(value)):
        # Replies repeat some of these bytes, and the tables write no zeros that mean nothing.
        raise DecodeError("the length takes more bytes than it needs")
    return value - 1, end


def read_text(body: memoryview, position: int, *, is_flexible: bool) -> tuple[str, int]:
    """The text, which is not null, and the position after it."""
    if is_flexible:
        size, position = read_length(body, position, is_flexible=True)
    else:
        [size] = _SHORT.unpack_from(body, position)
        position += 2
    end = position + size
    if size < 0 or end > len(body):
        raise DecodeError("the text is null, or ends after the request")
    return str(body[position:end], "utf-8"), end


def read_topic(body: memoryview, position: int, *, is_flexible: bool, by_id: bool) -> tuple[str | bytes, int]:
    """A topic's name or id, and the position after it."""
    if not by_id:
        return read_text(body, position, is_flexible=is_flexible)
    return bytes(body[position : position + _ID_BYTES]), position + _ID_BYTES


def skip_no_tags(body: memoryview, position: int) -> int:
    """The position after a section of tagged fields, which has to be empty."""
    if body[position]:
        raise DecodeError("there are tagged fields")
    return position + 1


def write_length(length: int, *, is_flexible: bool) -> bytes:
    return uvarint(length + 1) if is_flexible else _INT.pack(length)


def write_topic(topic: str | bytes, partitions: int, *, is_flexible: bool) -> bytes:
    """A topic's name or id, and the number of its partitions."""
    count = write_length(partitions, is_flexible=is_flexible)
    if isinstance(topic, bytes):
        return topic + count
    name = topic.encode()
    return (uvarint(len(name) + 1) if is_flexible else _SHORT.pack(len(name))) + name + count


class ReplyParts(NamedTuple):
    """What lies around the numbers of the partitions in replies of a version."""

    start: bytes
    """Between the correlation id and the number of topics."""
    after_row: bytes
    """After the numbers of a partition."""
    after_topic: bytes
    end: bytes


def cut_reply(response: Message, version: int, *, topics: Sequence[bytes], row: bytes, is_flexible: bool) -> ReplyParts:
    """The parts of a reply with two topics, as `write_topic` writes them. The first has one partition and the second
    two, and all three begin with `row`, which is nowhere else."""
    key = type(response).schema.key
    assert key is not None
    request = Request(api(key), version, 0, None, memoryview(b""))
    written = b"".join(write_response(request, response, version))
    before, between, after_row, rest = written[FRAME.size :].split(row)
    start = before.removesuffix(write_length(2, is_flexible=is_flexible) + topics[0])
    after_topic = between.removeprefix(after_row).removesuffix(topics[1])
    return ReplyParts(start, after_row, after_topic, rest.removeprefix(after_row + after_topic))
