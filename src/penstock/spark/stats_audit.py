"""What producers' sequence numbers tell about a partition: what came twice, what never came, and what compaction took.

An idempotent producer numbers its records in each partition from 0 on, and every batch says in its header with which
number it begins. So headers are enough, and parts of a log can be looked at apart and put together afterwards.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from penstock.protocol.batch import BatchHeader

MAX_FINDINGS: Final = 100
"""So many are told one by one; the rest is counted."""
SEQUENCES: Final = 2**31
"""Numbers begin again at 0 behind the largest."""


class Kind(StrEnum):
    DUPLICATE = "duplicate"
    """Records with numbers that the producer had used before."""
    GAP = "gap"
    """Numbers that were never written here."""
    REMOVED = "removed"
    """Numbers that are missing where offsets are missing too: compaction has taken the records."""


@dataclass(slots=True, frozen=True)
class Finding:
    """`count` records of a producer, noticed at the batch that begins at `offset`."""

    kind: Kind
    producer_id: int
    epoch: int
    offset: int
    sequence: int
    """The first number that is doubled or missing."""
    count: int


@dataclass(slots=True)
class Span:
    """What a producer has written, with one epoch, in a part of the log."""

    producer_id: int
    epoch: int
    first_sequence: int
    first_offset: int
    holes_before: int
    """Offsets that nobody has, from the beginning of the part up to here."""
    next_sequence: int = 0
    next_offset: int = 0
    holes_until: int = 0
    """The same up to the last batch of the producer."""
    records: int = 0
    batches: int = 0


@dataclass(slots=True)
class Part:
    """An audit of offsets from `start` to `end`."""

    start: int
    end: int
    is_from_beginning: bool = False
    """Whether nothing was ever written to the partition before."""
    holes: int = 0
    """Offsets without a batch."""
    thinned: int = 0
    """Offsets within batches that have no record any more."""
    plain_records: int = 0
    """Of producers that number nothing: about those nothing can be said."""
    spans: list[Span] = field(default_factory=list)
    duplicates: int = 0
    gaps: int = 0
    removed: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def records(self) -> int:
        """Those that carry a number."""
        return sum(each.records for each in self.spans)

    def note(self, kind: Kind, span: Span, offset: int, sequence: int, count: int) -> None:
        if not count:
            return
        match kind:
            case Kind.DUPLICATE:
                self.duplicates += count
            case Kind.GAP:
                self.gaps += count
            case Kind.REMOVED:
                self.removed += count
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(Finding(kind, span.producer_id, span.epoch, offset, sequence % SEQUENCES, count))


class Auditor:
    """Looks at the batches of a part in order.

    A batch across the start of a part belongs to the part before; if it `is_lead`, no part comes before this one.
    """

    def __init__(self, start: int, end: int, *, is_lead: bool = True, is_from_beginning: bool = False) -> None:
        self.part = Part(start, end, is_from_beginning=is_from_beginning)
        self._is_lead = is_lead
        self._position = start
        self._spans: dict[tuple[int, int], Span] = {}

    def add(self, headers: Iterable[BatchHeader]) -> None:
        """The next ones; of those that an answer has twice or beyond the end nothing is taken."""
        for header in headers:
            if header.last_offset < self._position or header.base_offset >= self.part.end:
                continue
            if header.base_offset >= self.part.start or self._is_lead:
                self._add(header)
            self._position = header.next_offset

    def finish(self) -> Part:
        """Nothing more comes: what is left up to the end is not there."""
        self._pass(self.part.end)
        self.part.spans = list(self._spans.values())
        return self.part

    def _add(self, header: BatchHeader) -> None:
        part = self.part
        self._pass(header.base_offset)
        if header.is_control:
            # A marker that ends a transaction is somebody's. One of nobody's stands where compaction has taken all.
            if header.producer_id < 0:
                part.holes += header.last_offset_delta + 1
            return
        part.thinned += header.last_offset_delta + 1 - header.record_count
        # Of a batch across the start, DeleteRecords has taken the rest.
        count = min(header.record_count, header.next_offset - part.start)
        if header.producer_id < 0 or header.base_sequence < 0:
            part.plain_records += count
            return
        key = header.producer_id, header.producer_epoch
        numbers = header.last_offset_delta + 1
        span = self._spans.get(key)
        if span is None:
            first = header.base_sequence
            span = self._spans[key] = Span(*key, first, header.base_offset, part.holes, next_sequence=first)
        else:
            _compare(
                part,
                span,
                sequence=header.base_sequence,
                offset=header.base_offset,
                numbers=numbers,
                holes=part.holes - span.holes_until,
            )
        _go_on(span, header.base_sequence + numbers)
        span.next_offset = header.next_offset
        span.holes_until = part.holes
        span.records += count
        span.batches += 1

    def _pass(self, offset: int) -> None:
        self.part.holes += max(0, offset - self._position)
        self._position = max(self._position, offset)


def merge(parts: Iterable[Part]) -> Part:
    """The parts of one partition as a whole, given in their order."""
    ordered = list(parts)
    if not ordered:
        return Part(0, 0)
    whole = Part(ordered[0].start, ordered[0].start, is_from_beginning=ordered[0].is_from_beginning)
    spans: dict[tuple[int, int], Span] = {}
    known: set[int] = set()
    for part in ordered:
        if part.start != whole.end:
            # Between them is something that nobody has looked at: numbers that go on behind it begin anew.
            whole.spans += spans.values()
            spans, known = {}, set()
            whole.is_from_beginning = False
        for span in part.spans:
            _append(whole, spans, known, span)
        known |= {span.producer_id for span in part.spans}
        whole.end = part.end
        whole.holes += part.holes
        whole.thinned += part.thinned
        whole.plain_records += part.plain_records
        whole.duplicates += part.duplicates
        whole.gaps += part.gaps
        whole.removed += part.removed
        whole.findings += part.findings
    whole.spans += spans.values()
    whole.findings = sorted(whole.findings, key=lambda each: each.offset)[:MAX_FINDINGS]
    return whole


def _append(whole: Part, spans: dict[tuple[int, int], Span], known: set[int], span: Span) -> None:
    """Add what a producer has written in the next part."""
    key = span.producer_id, span.epoch
    holes_before = whole.holes + span.holes_before
    before = spans.get(key)
    if before is None:
        before = spans[key] = replace(
            span, holes_before=holes_before, holes_until=whole.holes + span.holes_until, next_sequence=0
        )
        # Whoever had a part from the beginning on, or another epoch before, begins with 0.
        if whole.is_from_beginning or span.producer_id in known:
            _note_missing(whole, before, span.first_offset, span.first_sequence, holes_before)
        before.next_sequence = span.next_sequence
        return
    _compare(
        whole,
        before,
        sequence=span.first_sequence,
        offset=span.first_offset,
        numbers=_distance(span.first_sequence, span.next_sequence),
        holes=holes_before - before.holes_until,
    )
    _go_on(before, span.next_sequence)
    before.next_offset = span.next_offset
    before.holes_until = whole.holes + span.holes_until
    before.records += span.records
    before.batches += span.batches


def _compare(part: Part, span: Span, *, sequence: int, offset: int, numbers: int, holes: int) -> None:
    """Note what a batch that begins with `sequence` says, behind which holes since the producer's last one."""
    ahead = _distance(span.next_sequence, sequence)
    if ahead < SEQUENCES // 2:
        _note_missing(part, span, offset, ahead, holes)
    else:
        part.note(Kind.DUPLICATE, span, offset, sequence, min(SEQUENCES - ahead, numbers))


def _note_missing(part: Part, span: Span, offset: int, missing: int, holes: int) -> None:
    """Numbers for which there are offsets without a batch were written; for the others there is no place."""
    removed = min(missing, holes)
    part.note(Kind.REMOVED, span, offset, span.next_sequence, removed)
    part.note(Kind.GAP, span, offset, span.next_sequence + removed, missing - removed)


def _go_on(span: Span, next_sequence: int) -> None:
    """A duplicate does not set the producer back."""
    if _distance(span.next_sequence, next_sequence) < SEQUENCES // 2:
        span.next_sequence = next_sequence % SEQUENCES


def _distance(first: int, second: int) -> int:
    return (second - first) % SEQUENCES
