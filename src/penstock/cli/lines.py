"""Lines of input as records to send."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.protocol.records import NewRecord


class LineSplitter:
    """Chunks of input become lines, without their ends; the last one need not have an end."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        head, newline, tail = chunk.partition(b"\n")
        if not newline:
            # Collected and joined once: a line of many chunks would otherwise be copied for each.
            self._rest.append(chunk)
            return []
        lines = [b"".join([*self._rest, head]), *tail.split(b"\n")]
        self._rest = [last] if (last := lines.pop()) else []
        return lines

    def finish(self) -> list[bytes]:
        rest, self._rest = b"".join(self._rest), []
        return [rest] if rest else []


@dataclass(slots=True, frozen=True, kw_only=True)
class LineFormat:
    """How a line is read. Without the separator in it, all of it is the value."""

    key_separator: bytes | None = None
    null: bytes | None = None
    """A key or value of just this is null."""
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def records(self, lines: Iterable[bytes], timestamp: int) -> "Iterator[NewRecord]":
        from penstock.protocol.records import NewRecord

        separator, null, headers = self.key_separator, self.null, self.headers
        for line in lines:
            key: bytes | None = None
            value: bytes | None = line
            if separator is not None:
                first, found, rest = line.partition(separator)
                if found:
                    key, value = first, rest
            if null is not None:
                key = None if key == null else key
                value = None if value == null else value
            yield NewRecord(value, key, headers, timestamp)
