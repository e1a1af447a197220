"""`Printer` writes those messages that are wanted on standard output, until there are enough of them."""

import sys
from collections.abc import Iterable, Mapping
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.cli.formatting import Render
    from penstock.protocol.records import Record

# How much is gathered before it is written.
WRITE_BYTES = 256 * 1024


class Printer:
    """`renders` has a function for each topic; messages with another key than `key` are passed over, unless it is None;
    after `count` messages it is full."""

    def __init__(
        self,
        renders: "Mapping[str, Render]",
        *,
        key: bytes | None = None,
        count: int | None = None,
        sink: IO[bytes] | None = None,
    ) -> None:
        self._renders = renders
        self._key = key
        self._left = count
        self._sink = sink or sys.stdout.buffer
        self._pieces: list[bytes] = []
        self._pending_bytes = 0
        self.passed = 0
        """How many messages were looked at, of those that were wanted and of others."""

    @property
    def topics(self) -> list[str]:
        return list(self._renders)

    @property
    def is_full(self) -> bool:
        return self._left == 0

    def show(self, topic: str, partition: int, records: "Iterable[Record]", end: int | None = None) -> int | None:
        """Print records of a partition, up to the offset `end`. Returns the offset after the last one that was looked
        at, which is all that were given unless the printer became full; None if there was none."""
        render, pieces, key = self._renders[topic], self._pieces, self._key
        next_offset = None
        for record in records:
            if end is not None and record.offset >= end:
                break
            next_offset = record.offset + 1
            self.passed += 1
            if key is not None and record.key != key:
                continue
            piece = render(partition, record)
            pieces.append(piece)
            self._pending_bytes += len(piece)
            if self._left is not None:
                self._left -= 1
                if self._left == 0:
                    break
            if self._pending_bytes >= WRITE_BYTES:
                self.flush()
                pieces = self._pieces
        return next_offset

    def flush(self) -> None:
        if self._pieces:
            pieces, self._pieces, self._pending_bytes = self._pieces, [], 0
            self._sink.write(b"".join(pieces))
            self._sink.flush()
