"""Decides what stays of a batch when its log is compacted, for one batch after the other in ascending order."""

from dataclasses import dataclass, field
from enum import Enum, auto

from penstock.protocol.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from penstock.protocol.errors import DecodeError
from penstock.storage.compaction.key_offsets import KeyOffsets
from penstock.storage.compaction.record_spans import read_keys, read_spans, unpack
from penstock.storage.compaction.rewriting import is_filler, keep_some
from penstock.storage.compaction.survey import Survey


class Fate(Enum):
    KEEP = auto()
    DROP = auto()
    FILL = auto()
    """No record of the batch stays, but its header does: it is the last batch of a producer."""


@dataclass(slots=True)
class Verdicts:
    """The newest record of each key stays, and what is not clean enough yet to be judged. Tombstones, and markers of
    transactions of which nothing is left, stay until they have been clean for long enough, which they have been below
    `delete_before`; the last batches of producers likewise, below `producers_before`."""

    survey: Survey
    newest: KeyOffsets
    # Below it keys are unique already, and only what is written from there on makes a record old.
    dirty_from: int
    # From there on nothing is known about keys.
    cleaned_to: int
    delete_before: int
    producers_before: int
    # The offset of the first record that stays for the time being.
    first_tombstone: int = -1
    # Producers with records that stay and whose transaction's marker was not seen yet: it stays, too.
    _unmarked: set[int] = field(default_factory=set)

    def are_all_dead(self, base_offset: int, end_offset: int) -> bool:
        """Whether it is known without a look at them that no batch in a range of offsets stays, nor a filler for it."""
        return (
            base_offset >= self.dirty_from
            and end_offset <= self.cleaned_to
            and not self.newest.has_unreadable
            and not self.newest.count_live(base_offset, end_offset - 1)
            and not self.survey.has_special(base_offset, end_offset)
        )

    def judge(self, header: BatchHeader, data: bytes, start: int) -> Fate | bytearray:
        """The verdict on the batch that begins at `start`, or what is left of it."""
        attributes = header.attributes
        if attributes & CONTROL_BIT:
            return self._judge_control(header)
        if header.base_offset + header.last_offset_delta >= self.dirty_from:
            fate = self._judge_dirty(header, data, start)
        else:
            fate = self._judge_clean(header, data, start)
        if fate is Fate.DROP:
            return Fate.FILL if self._is_last_word(header) else fate
        if attributes & TRANSACTIONAL_BIT:
            self._unmarked.add(header.producer_id)
        return fate

    def _judge_control(self, header: BatchHeader) -> Fate:
        if is_filler(header):
            return Fate.KEEP if self._is_last_word(header) else Fate.DROP
        if header.producer_id in self._unmarked:
            self._unmarked.discard(header.producer_id)
            return Fate.KEEP
        if header.base_offset < self.delete_before:
            return Fate.DROP
        self._note_tombstone(header.base_offset)
        return Fate.KEEP

    def _judge_dirty(self, header: BatchHeader, data: bytes, start: int) -> Fate | bytearray:
        base_offset, newest = header.base_offset, self.newest
        if base_offset >= self.cleaned_to or newest.is_unreadable(base_offset):
            return Fate.KEEP
        # What was aborted was never put among the newest.
        last_offset = base_offset + header.last_offset_delta
        count = newest.count_live(base_offset, last_offset)
        if count == 0:
            return Fate.DROP
        if count == header.record_count:
            return Fate.KEEP
        live = set(newest.live(base_offset, last_offset))
        records, position, _ = unpack(header, data, start)
        return keep_some(header, records, [span for span in read_spans(header, records, position) if span[0] in live])

    def _judge_clean(self, header: BatchHeader, data: bytes, start: int) -> Fate | bytearray:
        try:
            records, position, end = unpack(header, data, start)
            keys, offsets, tombstones = read_keys(header, records, position, end)
        except DecodeError:
            # A batch that cannot be read is kept.
            return Fate.KEEP
        has, gone = self.newest.has, {offset for offset in tombstones if offset < self.delete_before}
        if gone or self.newest.has_any(keys) or None in keys:
            gone.update(offset for key, offset in zip(keys, offsets, strict=True) if key is None or has(key))
            if len(gone) == len(keys):
                return Fate.DROP
        for offset in tombstones:
            if offset not in gone:
                self._note_tombstone(offset)
                break
        if not gone:
            return Fate.KEEP
        spans = read_spans(header, records, position)
        return keep_some(header, records, [span for span in spans if span[0] not in gone])

    def _is_last_word(self, header: BatchHeader) -> bool:
        return (
            header.base_sequence >= 0
            and self.survey.last_batches.get(header.producer_id) == header.base_offset
            and header.base_offset >= self.producers_before
        )

    def _note_tombstone(self, offset: int) -> None:
        if 0 <= offset < self.cleaned_to and (self.first_tombstone < 0 or offset < self.first_tombstone):
            self.first_tombstone = offset
