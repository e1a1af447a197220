"""Frames carry orders and results between a broker and its helper: four bytes of length and a msgpack message."""

from struct import Struct
from typing import Final, TypeVar

import msgspec

MAX_ORDER_BYTES: Final = 128 * 1024 * 1024
"""A job names its files or carries a batch, which may be as large as a request."""
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
"""A result tells of one file or one batch. Either side takes a longer frame for a broken pipe."""

LENGTH: Final = Struct(">I")
T = TypeVar("T")


class Order(msgspec.Struct, tag=True, frozen=True):
    """To the helper: do this."""

    number: int
    task: str
    job: msgspec.Raw


class Cancel(msgspec.Struct, tag=True, frozen=True):
    """To the helper: the rest of the results is not wanted."""

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
    """The bytes that came are no frame of ours."""


def write(message: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(message)
    limit = MAX_ORDER_BYTES if isinstance(message, Order) else MAX_ANSWER_BYTES
    if len(body) > limit:
        raise FrameError(f"a message of {len(body)} bytes is over the limit of {limit}; make the job smaller")
    return LENGTH.pack(len(body)) + body


def length(prefix: bytes, limit: int) -> int:
    """The number of bytes that follow the first four."""
    (size,) = LENGTH.unpack(prefix)
    if size > limit:
        raise FrameError(f"a frame of {size} bytes is over the limit of {limit}")
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
