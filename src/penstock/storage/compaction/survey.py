"""Looks at the headers of all batches before they are compacted, for the last batch of each producer and the ends of
transactions."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.protocol.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from penstock.protocol.control import ControlType, read_control
from penstock.protocol.errors import DecodeError
from penstock.protocol.records import iterate
from penstock.storage.compaction.rewriting import is_filler
from penstock.storage.compaction.sources import OpenSource, SourceFolder
from penstock.storage.errors import CorruptLogError
from penstock.storage.log.cleaned import Source


class SourceFacts(NamedTuple):
    """What the headers of one segment say."""

    records: int
    # The leader epoch of its last batch.
    leader_epoch: int


@dataclass(slots=True)
class Survey:
    """What a batch does not say about itself."""

    sources: dict[Source, SourceFacts] = field(default_factory=dict)
    # The base offset of each idempotent producer's last batch.
    last_batches: dict[int, int] = field(default_factory=dict)
    # Where the transactions begin whose end was not seen, by producer.
    undecided: dict[int, int] = field(default_factory=dict)
    # For each producer, (marker's offset, first offset) of the transactions that were aborted, in ascending order.
    aborted: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    # The base offsets, in ascending order, of batches that are not judged by their keys alone.
    special: "array[int]" = field(default_factory=lambda: array("q"))

    def is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional or (ranges := self.aborted.get(header.producer_id)) is None:
            return False
        following = bisect_left(ranges, (header.base_offset, 0))
        return following < len(ranges) and ranges[following][1] <= header.base_offset

    def has_special(self, base_offset: int, end_offset: int) -> bool:
        """Whether there is a control batch in a range, or the last one of a producer."""
        return bisect_left(self.special, base_offset) < bisect_left(self.special, end_offset)

    def _look_at(self, source: OpenSource) -> None:
        records, leader_epoch = 0, -1
        last_batches = self.last_batches
        for batches in source.headers():
            for position, header in batches:
                _, _, leader_epoch, _, _, attributes, _, _, _, producer_id, _, sequence, count = header
                if not attributes & CONTROL_BIT:
                    records += count
                if sequence >= 0:
                    last_batches[producer_id] = header.base_offset
                if attributes & _BITS:
                    self._look_closer(source, position, header)
        self.sources[source.source] = SourceFacts(records, leader_epoch)

    def _look_closer(self, source: OpenSource, position: int, header: BatchHeader) -> None:
        if not header.is_control:
            self.undecided.setdefault(header.producer_id, header.base_offset)
            return
        self.special.append(header.base_offset)
        if not is_filler(header):
            first = self.undecided.pop(header.producer_id, None)
            if first is not None and _is_abort(source, position, header):
                self.aborted.setdefault(header.producer_id, []).append((header.base_offset, first))

    def _finish(self) -> None:
        # A batch without a producer may have any sequence.
        self.last_batches.pop(-1, None)
        self.special = array("q", sorted({*self.special, *self.last_batches.values()}))


def survey(folder: SourceFolder, sources: Iterable[Source]) -> Survey:
    """Look through segments, in ascending order."""
    found = Survey()
    for source in sources:
        with folder.open(source) as opened:
            found._look_at(opened)
    found._finish()
    return found


_BITS: Final = CONTROL_BIT | TRANSACTIONAL_BIT


def _is_abort(source: OpenSource, position: int, header: BatchHeader) -> bool:
    try:
        record = next(iterate(source.read(position, header.size)))
        return read_control(record).type is ControlType.ABORT
    except (DecodeError, StopIteration) as error:
        reason = f"the end of a transaction cannot be read: {error}"
        raise CorruptLogError(source.path, reason, position=position, offset=header.base_offset) from None
