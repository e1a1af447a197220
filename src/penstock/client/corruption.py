"""Batches that cannot be read: these functions say what is wrong, find where they end, and count those that were passed
over."""

import logging
import time
from collections.abc import Callable
from typing import Final

from penstock.client.errors import CorruptBatchError
from penstock.client.metadata import TopicPartition
from penstock.protocol.batch import CRC_START, HEADER, MAGIC, BatchHeader, read_header, split
from penstock.protocol.crc32c import crc32c
from penstock.protocol.errors import DecodeError
from penstock.protocol.varint import Buffer

LOG_INTERVAL_S: Final = 1.0
"""At most one line is logged in this time about batches that a reader passes over."""
WHOLE_RECORDS: Final = 100
"""A batch of up to this many records is decoded before the first of its messages is taken, and refused as a whole if
one of them is broken. A larger one is decoded as it is taken: the memory that its messages need is bounded that way."""

logger = logging.getLogger(__name__)


def corrupt_batch(
    key: TopicPartition, offset: int, next_offset: int | None, why: object, *, advice: str | None = None
) -> CorruptBatchError:
    """The error. `next_offset` is where to go on, if that is known. Without `advice` the text is for users of a
    consumer."""
    if next_offset is None:
        advice = "where it ends cannot be told: go on at a later offset, or restore the partition on the broker"
    elif advice is None:
        advice = f"`seek` to offset {next_offset} to go on after it, or set on_corrupt='skip' to pass over such batches"
    return CorruptBatchError(
        f"{_facts(key, offset, why)}; {advice}",
        partition=key,
        offset=offset,
        next_offset=next_offset,
        why=why,
    )


def end_of_batch(
    header: BatchHeader, *, is_intact: bool, position: int, following: BatchHeader | None, log_end: int
) -> int | None:
    """The offset at which to go on after a batch that cannot be read, from `position` on, or None if that is unknown.

    A header whose checksum is right is believed (`is_intact`). Otherwise the next batch that was fetched says where
    this one ends; without one the header is believed if the log holds what it claims.
    """
    claimed = header.next_offset
    if is_intact and claimed >= position:
        return claimed
    if following is not None:
        return following.base_offset if following.magic == MAGIC and following.base_offset > position else None
    is_plausible = header.magic == MAGIC and header.last_offset_delta >= 0 and header.base_offset >= 0
    return claimed if is_plausible and position < claimed <= log_end else None


def has_right_crc(header: BatchHeader, view: Buffer) -> bool:
    """Whether the header of a whole batch is what its producer wrote."""
    return len(view) >= HEADER.size and header.magic == MAGIC and crc32c(memoryview(view)[CRC_START:]) == header.crc


def split_damaged(records: memoryview) -> list[tuple[BatchHeader, memoryview, DecodeError | None]]:
    """The batches of a records field of which some are none, each with what is wrong with it. Where a length makes no
    sense the rest is one piece; a last batch that was cut off is left out (KIP-74)."""
    pieces: list[tuple[BatchHeader, memoryview, DecodeError | None]] = []
    position, end = 0, len(records)
    while position < end:
        left = end - position
        header = read_header(bytes(records[position : position + HEADER.size]).ljust(HEADER.size, b"\0"))
        is_cut_off = left < HEADER.size or header.size > left
        if is_cut_off and position:
            break
        if is_cut_off or header.size < HEADER.size:
            size = left
        else:
            size = header.size
        view = records[position : position + size]
        try:
            split(view)
        except DecodeError as error:
            pieces.append((header, view, error))
        else:
            pieces.append((header, view, None))
        position += size
    return pieces


class PassedOver:
    """The batches that a reader has passed over. `report` is called with a line about some of them."""

    def __init__(
        self, report: Callable[[str], object] = logger.warning, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.count = 0
        self._report = report
        self._clock = clock
        self._silent_until = float("-inf")
        self._untold = 0

    def note(self, error: CorruptBatchError) -> None:
        """Count one more. Of several within a short time one is logged, with the number of the others."""
        self.count += 1
        now = self._clock()
        if now < self._silent_until:
            self._untold += 1
            return
        others = f" ({self._untold} others were passed over since the last such line)" if self._untold else ""
        facts = _facts(error.partition, error.offset, error.why)
        self._report(f"{facts}; it is passed over, going on at offset {error.next_offset}{others}")
        self._silent_until = now + LOG_INTERVAL_S
        self._untold = 0


def _facts(key: tuple[str, int] | None, offset: int, why: object) -> str:
    place = "a partition" if key is None else TopicPartition(*key)
    return f"{place}: the batch at offset {offset} cannot be read: {why}"
