"""Cuts a stream into frames, four bytes of length and then as many bytes, piece by piece and never beyond a limit."""

import sys
from collections.abc import Sequence
from struct import Struct
from typing import Any

from penstock.protocol.errors import DecodeError

LENGTH = Struct(">i")
_unpack_length = LENGTH.unpack_from
DEFAULT_LIMIT = 100 * 1024 * 1024
# Frames of these sizes may be received in place.
LARGE_BYTES = 128 * 1024
LARGEST_IN_PLACE = 64 * 1024 * 1024
# What a reader keeps for frames to come.
SPARES = 3
LARGEST_SPARE = 8 * 1024 * 1024
# The first bytes of a TLS handshake record, which on a plaintext port would be read as a length of 369 million or so.
TLS_HELLO = b"\x16\x03"


class FrameReader:
    """Cuts received bytes into frames. A frame that lies whole in what was received is a view of it, without a copy;
    one that is spread over several pieces is gathered in a buffer that grows with the bytes that really came."""

    __slots__ = ("_filled", "_large", "_spares", "_tail", "limit")

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._tail = bytearray()
        self._large: memoryview | None = None
        self._filled = 0
        self._spares: list[bytearray] = []

    @property
    def waiting_bytes(self) -> int:
        """How much of an unfinished frame is held here."""
        return len(self._tail) + self._filled

    def is_whole(self, data: memoryview) -> bool:
        """Whether these bytes are one frame, no more and no less, and nothing came before them."""
        length = len(data) - 4
        return 0 <= length <= self.limit and not self._tail and _unpack_length(data)[0] == length

    def room(self) -> memoryview | None:
        """If a large frame has begun, the place for what is missing of it: a caller that trusts the sender's length
        receives into it without a copy, and must say how much by `fill` before anything else."""
        if self._large is None:
            if len(self._tail) < 4:
                return None
            length: int = _unpack_length(self._tail)[0]
            if not LARGE_BYTES <= length <= LARGEST_IN_PLACE:
                return None
            self._large = memoryview(self._place(length))[:length]
            self._filled = len(self._tail) - 4
            self._large[: self._filled] = memoryview(self._tail)[4:]
            self._tail = bytearray()
        return self._large[self._filled :]

    def fill(self, count: int) -> memoryview | None:
        """`count` bytes were received into the `room`. Returns the frame, if that completes it."""
        assert self._large is not None
        self._filled += count
        if self._filled < len(self._large):
            return None
        frame, self._large, self._filled = self._large, None, 0
        return frame

    def _place(self, length: int) -> bytearray:
        """Memory for a large frame: that of an earlier one that is no longer in use, if there is some. To get new
        memory from the system, cleared, costs as much as to receive into it."""
        for spare in self._spares:
            if length <= len(spare) <= 2 * length and _is_unused(spare):
                return spare
        place = bytearray(-(-length // LARGE_BYTES) * LARGE_BYTES)
        if len(place) <= LARGEST_SPARE:
            self._spares = [*self._spares[-SPARES + 1 :], place]
        return place

    def feed(self, data: memoryview, at_most: int = sys.maxsize) -> list[memoryview]:
        """The frames that `data` completes, up to `at_most`; what comes after them is kept for `more`. Views into
        `data` are good only as long as its bytes stay as they are."""
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


def _is_unused(buffer: bytearray) -> bool:
    """Python does not let the size of a buffer change while there is a view of it."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True


def frame(chunks: Sequence[Any]) -> list[Any]:
    """The chunks of one message, with the length of them all in front."""
    return [LENGTH.pack(sum(map(len, chunks))), *chunks]
