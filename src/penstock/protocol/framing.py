"""Frames on a stream: four bytes of length, then as many bytes. Read piece by piece and never beyond a limit."""

import sys
from collections.abc import Sequence
from struct import Struct
from typing import Any

from penstock.protocol.errors import DecodeError

LENGTH = Struct(">i")
_unpack_length = LENGTH.unpack_from
DEFAULT_LIMIT = 100 * 1024 * 1024
# The first bytes of a TLS handshake record, which on a plaintext port would be read as a length of 369 million or so.
TLS_HELLO = b"\x16\x03"


class FrameReader:
    """Cuts received bytes into frames. A frame that lies whole in what was received is a view of it, without a copy;
    one that is spread over several pieces is gathered in a buffer that grows with the bytes that really came."""

    __slots__ = ("_tail", "limit")

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._tail = bytearray()

    @property
    def waiting_bytes(self) -> int:
        """How much of an unfinished frame is held here."""
        return len(self._tail)

    def feed(self, data: memoryview, at_most: int = sys.maxsize) -> list[memoryview]:
        """The frames that `data` completes; what comes behind so many of them is kept for `more`. Views into `data` are
        good only as long as its bytes stay as they are."""
        frames: list[memoryview] = []
        position, end = 0, len(data)
        if self._tail:
            position = self._finish_tail(data, frames)
        limit = self.limit
        while end - position >= 4 and len(frames) < at_most:
            length = _unpack_length(data, position)[0]
            if not 0 <= length <= limit:
                self._check(length, data[position : position + 2])
            behind = position + 4 + length
            if behind > end:
                break
            frames.append(data[position + 4 : behind])
            position = behind
        if position < end:
            self._tail += data[position:]
        return frames

    def more(self, at_most: int) -> list[memoryview]:
        """The frames that lie whole in what was kept. There must be none left when more data is fed."""
        kept, self._tail = self._tail, bytearray()
        return self.feed(memoryview(kept), at_most)

    def _finish_tail(self, data: memoryview, frames: list[memoryview]) -> int:
        """Complete the frame begun earlier, if `data` does; returns how much of `data` that took."""
        tail = self._tail
        taken = 0
        if len(tail) < 4:
            taken = min(4 - len(tail), len(data))
            tail += data[:taken]
            if len(tail) < 4:
                return taken
        length: int = _unpack_length(tail)[0]
        self._check(length, tail[:2])
        missing = min(4 + length - len(tail), len(data) - taken)
        tail += data[taken : taken + missing]
        if len(tail) == 4 + length:
            frames.append(memoryview(tail)[4:])
            self._tail = bytearray()
        return taken + missing

    def _check(self, length: int, start: bytes | bytearray | memoryview) -> None:
        if 0 <= length <= self.limit:
            return
        if start == TLS_HELLO:
            raise DecodeError("a TLS handshake on a plaintext port: the client must use the TLS listener, or no TLS")
        if length < 0:
            raise DecodeError(f"a frame of negative length ({length})")
        raise DecodeError(f"a frame of {length} bytes is over the limit of {self.limit}")


def frame(chunks: Sequence[Any]) -> list[Any]:
    """The chunks of one message, with the length of them all in front."""
    return [LENGTH.pack(sum(map(len, chunks))), *chunks]
