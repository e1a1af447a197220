"""What goes through the pipes between a broker and its helper: frames of four bytes of length and a msgpack message."""

from struct import Struct
from typing import Final, TypeVar

import msgspec

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""A job names its files, and a result tells of one of them; both sides take a longer frame for a broken pipe."""

LENGTH: Final = Struct(">I")
T = TypeVar("T")


class Order(msgspec.Struct, tag=True, frozen=True):
    """To the helper: do this."""

    number: int
    task: str
    job: msgspec.Raw


class Cancel(msgspec.Struct, tag=True, frozen=True):
    """To the helper: nobody wants the rest of it."""

    number: int


class Result(msgspec.Struct, tag=True, frozen=True):
    """From the helper: one result, `kind` being the place of its type among those of the task."""

    number: int
    kind: int
    body: msgspec.Raw


class Done(msgspec.Struct, tag=True, frozen=True):
    """From the helper: there is no more."""

    number: int


class Failed(msgspec.Struct, tag=True, frozen=True):
    """From the helper: the job raised an error."""

    number: int
    kind: str
    error: str
    traceback: str


class FrameError(Exception):
    """What came is no frame of ours."""


def write(message: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise FrameError(f"a message of {len(body)} bytes is over the limit of {MAX_FRAME_BYTES}; make the job smaller")
    return LENGTH.pack(len(body)) + body


def length(prefix: bytes) -> int:
    """How many bytes follow the first four."""
    (size,) = LENGTH.unpack(prefix)
    if size > MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {size} bytes is over the limit of {MAX_FRAME_BYTES}")
    return int(size)


def read_order(body: bytes) -> Order | Cancel:
    return _read(_orders, body)


def read_answer(body: bytes) -> Result | Done | Failed:
    return _read(_answers, body)


_orders: Final[msgspec.msgpack.Decoder[Order | Cancel]] = msgspec.msgpack.Decoder(Order | Cancel)
_answers: Final[msgspec.msgpack.Decoder[Result | Done | Failed]] = msgspec.msgpack.Decoder(Result | Done | Failed)


def _read(decoder: msgspec.msgpack.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise FrameError(f"a frame cannot be read: {error}") from None
