"""Defines what store server and remote store send each other: frames of msgpack behind a length of four bytes.

request   [number, call, arguments]      numbers grow; the call "cancel" names one that is no longer waited for
reply     [number, error or nil, value]  in any order
error     [name of the exception, its message, its number]
"""

import asyncio
from typing import Any, Final, NamedTuple

import msgspec

from penstock.metadata.store import (
    ConflictError,
    EntriesDroppedError,
    FencedError,
    Member,
    OutcomeUnknownError,
    SessionLostError,
    StoreClosedError,
    StoreError,
    StoreRefusedError,
)

PROTOCOL: Final = 1
CHUNK_BYTES: Final = 1024 * 1024
"""Snapshots travel in pieces of this size."""
MAX_SNAPSHOT_BYTES: Final = 256 * 1024 * 1024
FRAME_ROOM_BYTES: Final = 64 * 1024
"""What a frame may have beyond the largest entry or piece: 999 more entries of a slice, what brokers are."""

_LENGTH_BYTES: Final = 4


class Call(NamedTuple):
    """The types of a call's arguments and of its value."""

    arguments: Any
    value: Any


class Greeting(msgspec.Struct, array_like=True, frozen=True):
    """What the server says about its store."""

    protocol: int
    max_entry_bytes: int


class Piece(msgspec.Struct, array_like=True, frozen=True):
    """A piece of a snapshot of `total` bytes."""

    index: int
    total: int
    data: bytes


CALLS: Final[dict[str, Call]] = {
    "hello": Call(tuple[int, float], Greeting),
    "ping": Call(tuple[()], None),
    "cancel": Call(tuple[int], None),
    "cluster_id": Call(tuple[()], str),
    "secret": Call(tuple[()], bytes),
    "register": Call(tuple[int, bytes, str], int),
    "members": Call(tuple[()], dict[int, Member]),
    "wait_for_members": Call(tuple[dict[int, int]], None),
    "take_controller_lease": Call(tuple[int], int | None),
    "release_controller_lease": Call(tuple[()], None),
    "controller": Call(tuple[()], tuple[int, int] | None),
    "wait_for_lease": Call(tuple[()], None),
    # Epoch, index, entry, and whether the answer to an earlier request for it may have been lost.
    "append": Call(tuple[int, int, bytes, bool], None),
    "entries": Call(tuple[int], list[tuple[int, bytes]]),
    "wait_for_entries": Call(tuple[int], None),
    # Epoch, offset of the piece, piece.
    "save_snapshot": Call(tuple[int, int, Piece], None),
    # Offset of the piece.
    "load_snapshot": Call(tuple[int], Piece | None),
}


class Request(msgspec.Struct, array_like=True, frozen=True):
    number: int
    call: str
    arguments: msgspec.Raw


class Failure(msgspec.Struct, array_like=True, frozen=True):
    name: str
    message: str
    number: int = 0


class Reply(msgspec.Struct, array_like=True, frozen=True):
    number: int
    failure: Failure | None
    value: msgspec.Raw


class BrokenFrameError(Exception):
    """The other side sends what is no frame of ours."""


_encoder: Final = msgspec.msgpack.Encoder()


def frame(message: Request | Reply) -> bytes:
    body = _encoder.encode(message)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(_encoder.encode(value))


def max_frame_bytes(max_entry_bytes: int) -> int:
    return max(max_entry_bytes, CHUNK_BYTES) + FRAME_ROOM_BYTES


async def read_frame(reader: asyncio.StreamReader, max_bytes: int) -> bytes:
    """Return the next frame. Raises EOFError or OSError at the end of the connection."""
    size = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
    if size > max_bytes:
        raise BrokenFrameError(f"a frame of {size} bytes, and the largest has {max_bytes}")
    return await reader.readexactly(size)


def failure(error: Exception) -> Failure:
    """What a reply says about an error of the store."""
    match error:
        case FencedError():
            return Failure("fenced", str(error), error.newest)
        case ConflictError():
            return Failure("conflict", str(error), error.last)
        case EntriesDroppedError():
            return Failure("dropped", str(error))
        case OutcomeUnknownError():
            return Failure("unknown", str(error))
        case StoreRefusedError():
            return Failure("refused", str(error))
        case SessionLostError() | StoreClosedError():
            # Here the store beneath is meant, not the session of the client.
            return Failure("failed", f"the server's own store failed: {error}")
        case StoreError():
            return Failure("failed", str(error))
        case _:
            return Failure("bug", f"{type(error).__name__}: {error}")


def exception(failure: Failure, arguments: tuple[Any, ...]) -> StoreError | AssertionError:
    """The error that a reply tells about, as the store would have raised it for these arguments."""
    match failure.name:
        case "fenced":
            return FencedError(arguments[0], failure.number)
        case "conflict":
            return ConflictError(arguments[1], failure.number)
        case "dropped":
            return EntriesDroppedError(arguments[0] + 1)
        case "unknown":
            return OutcomeUnknownError(arguments[1])
        case "refused":
            return StoreRefusedError(failure.message)
        case "bug":
            return AssertionError(failure.message)
        case _:
            return StoreError(failure.message)
