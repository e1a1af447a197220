"""Turns messages into bytes and back. The functions for a class and version are compiled when they are first asked
for."""

from functools import cache
from typing import Any, TypeVar

from penstock.protocol.decoder import Decoder, compile_decoder
from penstock.protocol.encoder import Encoder, StepwiseEncoder, compile_encoder, compile_stepwise_encoder
from penstock.protocol.errors import DecodeError, EncodeError
from penstock.protocol.schema import Message

M = TypeVar("M", bound=Message)


def decode(cls: type[M], version: int, buffer: bytes | bytearray | memoryview, position: int = 0) -> M:
    """The message that `buffer` holds from `position` to its end. Record bytes in it are views of the buffer."""
    message: M
    message, end = decoder(cls, version)(memoryview(buffer), position)
    if end != len(buffer):
        raise DecodeError(f"{cls.__name__} v{version}: {len(buffer) - end} bytes too many behind it")
    return message


def encode(message: Message, version: int) -> bytes:
    """The bytes of a message, in one piece."""
    try:
        return b"".join(encode_chunks(message, version))
    except TypeError as bad:
        raise EncodeError(f"{type(message).__name__} v{version}: a value does not fit its field: {bad}") from bad


def encode_chunks(message: Message, version: int) -> list[Any]:
    """The bytes of a message in pieces, in which record bytes stand uncopied, as whatever they were given as."""
    chunks: list[Any] = []
    encoder(type(message), version)(message, chunks)
    return chunks


@cache
def decoder(cls: type[Message], version: int) -> Decoder:
    """`decode(buffer, position) -> (message, position after it)`; the buffer should be a memoryview."""
    if version not in cls.schema.versions:
        raise DecodeError(f"{cls.__name__} has no version {version}")
    return compile_decoder(cls, version)


@cache
def encoder(cls: type[Message], version: int) -> Encoder:
    """`encode(message, chunks)`, which appends to a list of chunks."""
    if version not in cls.schema.versions:
        raise EncodeError(f"{cls.__name__} has no version {version}")
    return compile_encoder(cls, version)


@cache
def stepwise_encoder(cls: type[Message], version: int) -> StepwiseEncoder:
    """`encode(message, chunks)`, a generator that stops after each message of each array."""
    if version not in cls.schema.versions:
        raise EncodeError(f"{cls.__name__} has no version {version}")
    return compile_stepwise_encoder(cls, version)
