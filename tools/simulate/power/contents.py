"""Reads what is in a log: its records by offset, its batches, and what it knows of producers."""

from collections.abc import Iterator
from typing import TypeAlias

from penstock.machines.producers import Producers
from penstock.protocol.batch import BatchHeader, split
from penstock.protocol.records import iterate
from penstock.storage.log.log import Log

Item: TypeAlias = tuple[bytes | None, bytes | None]
"""The key and the value of a record."""
Window: TypeAlias = tuple[int, ...]
"""A batch of a producer: first and last sequence, offset, timestamp."""
Windows: TypeAlias = dict[int, list[Window]]
"""The last batches of each producer."""


def batches_of(log: Log, first: int, end: int | None = None) -> Iterator[tuple[BatchHeader, memoryview]]:
    """All batches with an offset from `first` on, as far as they lie before the end, by the read path of production."""
    offset = max(first, log.start_offset)
    end = log.end_offset if end is None else end
    while offset < end and (found := log.read(offset, max_bytes=1 << 20, upper_bound=end)) is not None:
        with found:
            data = found.read()
        for header, view in split(data):
            yield header, view
            offset = header.next_offset


def items_of(log: Log, first: int, end: int | None = None) -> dict[int, Item]:
    """The records from an offset on. What compaction leaves of a producer's last batch is none."""
    first = max(first, log.start_offset)
    return {
        record.offset: (record.key, record.value)
        for header, view in batches_of(log, first, end)
        if not header.is_control
        for record in iterate(view)
        if record.offset >= first
    }


def windows_of(producers: Producers) -> Windows:
    return {number: [tuple(batch) for batch in producer.batches] for number, producer in producers._producers.items()}
