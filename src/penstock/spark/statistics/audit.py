"""Audits a partition by its producers' sequence numbers: which records came twice, never came, or were compacted away.

An idempotent producer numbers its records in each partition from 0 on, and every batch says in its header with which
number it begins. So headers are enough, and parts of a log can be audited apart and merged afterwards. A part cannot
know whether it begins with a duplicate: it only notes where numbers follow each other, and they are compared when all
parts are there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from penstock.protocol.batch import BatchHeader

MAX_FINDINGS: Final = 100
"""Limits the findings of a partition that are listed; the rest is only counted."""
MAX_SPANS: Final = 1_000
"""Limits the spans that a part keeps; it always keeps the first of each producer and epoch. A part compares later spans
itself, with what the producer has in this part, which is right unless all of that consists of duplicates."""
SEQUENCES: Final = 2**31
"""Numbers begin again at 0 after the largest."""


class Kind(StrEnum):
    DUPLICATE = "duplicate"
    """The records have numbers that the producer had used before."""
    GAP = "gap"
    """The numbers were never written here."""
    REMOVED = "removed"
    """The numbers are missing where offsets are missing too: compaction has taken the records."""


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
    """Batches of a producer, with one epoch, whose numbers follow each other. If nothing is wrong, and compaction has
    taken no batch, that is all that the producer has in a part."""

    producer_id: int
    epoch: int
    first_sequence: int
    first_offset: int
    holes_before: int
    """Offsets without a batch, from the beginning of the part up to here."""
    holes_until: int = 0
    """Offsets without a batch, from the beginning of the part up to the last batch of the span."""
    numbers: int = 0
    """How many sequence numbers were used."""
    records: int = 0
    """How many records with these numbers are there."""

    @property
    def key(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    @property
    def next_sequence(self) -> int:
        return (self.first_sequence + self.numbers) % SEQUENCES

    def leads_to(self, other: "Span") -> bool:
        return self.next_sequence == other.first_sequence

    def extend(self, other: "Span") -> None:
        """Append a later span of this producer."""
        self.numbers += _distance(self.next_sequence, other.next_sequence)
        self.holes_until = other.holes_until
        self.records += other.records


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
    """Records of producers that number nothing; the audit says nothing about them."""
    spans: list[Span] = field(default_factory=list)
    duplicates: int = 0
    gaps: int = 0
    removed: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def records(self) -> int:
        """Records that carry a number."""
        return sum(each.records for each in self.spans)

    def note(self, kind: Kind, span: Span, sequence: int, count: int) -> None:
        if not count:
            return
        match kind:
            case Kind.DUPLICATE:
                self.duplicates += count
            case Kind.GAP:
                self.gaps += count
            case Kind.REMOVED:
                self.removed += count
        found = Finding(kind, span.producer_id, span.epoch, span.first_offset, sequence % SEQUENCES, count)
        self.findings.append(found)


class Auditor:
    """Audits the batches of a part in order.

    A batch across the start of a part belongs to the part before it. No part comes before one that `is_lead`.
    """

    def __init__(self, start: int, end: int, *, is_lead: bool = True, is_from_beginning: bool = False) -> None:
        self.part = Part(start, end, is_from_beginning=is_from_beginning)
        self._is_lead = is_lead
        self._position = start
        self._last: dict[tuple[int, int], Span] = {}
        self._furthest: dict[tuple[int, int], Span] = {}

    def add(self, headers: Iterable[BatchHeader]) -> None:
        """Add the next batches. Batches that an answer repeats or that lie beyond the end are left out."""
        for header in headers:
            if header.last_offset < self._position or header.base_offset >= self.part.end:
                continue
            if header.base_offset >= self.part.start or self._is_lead:
                self._add(header)
            self._position = header.next_offset

    def finish(self) -> Part:
        """End the audit: the offsets that are left up to the end have no batch."""
        self._pass(self.part.end)
        self.part.findings = _choose(self.part.findings)
        return self.part

    def _add(self, header: BatchHeader) -> None:
        part = self.part
        self._pass(header.base_offset)
        if header.is_control:
            # A transaction's marker has a producer. A batch without one stands where compaction has taken all records.
            if header.producer_id < 0:
                part.holes += header.last_offset_delta + 1
            return
        part.thinned += header.last_offset_delta + 1 - header.record_count
        # DeleteRecords has taken the first part of a batch across the start.
        count = min(header.record_count, header.next_offset - part.start)
        if header.producer_id < 0 or header.base_sequence < 0:
            part.plain_records += count
            return
        self._append(
            Span(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.base_offset,
                holes_before=part.holes,
                holes_until=part.holes,
                numbers=header.last_offset_delta + 1,
                records=count,
            )
        )

    def _append(self, span: Span) -> None:
        last = self._last.get(span.key)
        if last is not None and last.leads_to(span):
            last.extend(span)
        elif last is None or len(self.part.spans) < MAX_SPANS:
            self.part.spans.append(span)
            self._last[span.key] = last = span
        else:
            _compare(self.part, self._furthest[span.key], span)
            if len(self.part.findings) > 2 * MAX_FINDINGS:
                self.part.findings = _choose(self.part.findings)
            return
        furthest = self._furthest.get(span.key, last)
        if _is_ahead(furthest.next_sequence, last.next_sequence):
            self._furthest[span.key] = last

    def _pass(self, offset: int) -> None:
        self.part.holes += max(0, offset - self._position)
        self._position = max(self._position, offset)


def merge(parts: Iterable[Part]) -> Part:
    """The parts of one partition, given in their order, as one. The result does not depend on how the log was
    divided."""
    sections: list[list[Part]] = []
    for part in parts:
        if sections and sections[-1][-1].end == part.start:
            sections[-1].append(part)
        else:
            # Offsets before this part were not audited, so its numbers begin anew.
            sections.append([part])
    if not sections:
        return Part(0, 0)
    whole = Part(sections[0][0].start, sections[-1][-1].end, is_from_beginning=sections[0][0].is_from_beginning)
    for section in sections:
        joined = _join(section)
        _compare_all(joined)
        _add_up(whole, joined)
    whole.findings = _choose(whole.findings)
    return whole


def _join(parts: Sequence[Part]) -> Part:
    """Adjacent parts as one, whose spans go on from one part to the next."""
    joined = Part(parts[0].start, parts[-1].end, is_from_beginning=parts[0].is_from_beginning)
    last: dict[tuple[int, int], Span] = {}
    for part in parts:
        for each in part.spans:
            span = replace(
                each, holes_before=joined.holes + each.holes_before, holes_until=joined.holes + each.holes_until
            )
            before = last.get(span.key)
            if before is not None and before.leads_to(span):
                before.extend(span)
            else:
                last[span.key] = span
                joined.spans.append(span)
        _add_up(joined, replace(part, spans=[]))
    return joined


def _compare_all(part: Part) -> None:
    """Note the findings of all spans, each compared with what its producer had before."""
    reached: dict[tuple[int, int], Span] = {}
    known: set[int] = set()
    for span in part.spans:
        before = reached.get(span.key)
        if before is not None:
            _compare(part, before, span)
            continue
        # A producer begins with 0 if the log is audited from its beginning, or if it had another epoch before.
        if part.is_from_beginning or span.producer_id in known:
            _note_missing(part, span, 0, span.first_sequence, span.holes_before)
        known.add(span.producer_id)
        reached[span.key] = replace(span)


def _compare(part: Part, before: Span, span: Span) -> None:
    """Note how a span continues what its producer had before, and append it. A duplicate does not set the producer
    back."""
    if _is_ahead(before.next_sequence, span.first_sequence):
        missing = _distance(before.next_sequence, span.first_sequence)
        _note_missing(part, span, before.next_sequence, missing, span.holes_before - before.holes_until)
    else:
        behind = _distance(span.first_sequence, before.next_sequence)
        part.note(Kind.DUPLICATE, span, span.first_sequence, min(behind, span.numbers))
        if span.numbers <= behind:
            before.records += span.records
            return
    before.extend(span)


def _note_missing(part: Part, span: Span, sequence: int, missing: int, holes: int) -> None:
    """Note missing numbers: those for which there are offsets without a batch were written and removed, and the others
    were never written."""
    removed = min(missing, holes)
    part.note(Kind.REMOVED, span, sequence, removed)
    part.note(Kind.GAP, span, sequence + removed, missing - removed)


def _choose(findings: Iterable[Finding]) -> list[Finding]:
    """The first findings. What compaction took is no fault, and does not displace faults."""
    first = sorted(findings, key=lambda each: (each.kind is Kind.REMOVED, each.offset))[:MAX_FINDINGS]
    return sorted(first, key=lambda each: each.offset)


def _add_up(whole: Part, part: Part) -> None:
    whole.holes += part.holes
    whole.thinned += part.thinned
    whole.plain_records += part.plain_records
    whole.spans += part.spans
    whole.duplicates += part.duplicates
    whole.gaps += part.gaps
    whole.removed += part.removed
    whole.findings += part.findings


def _is_ahead(first: int, second: int) -> bool:
    """Whether the second number is the first one or comes after it; half of all numbers are ahead, half behind."""
    return _distance(first, second) < SEQUENCES // 2


def _distance(first: int, second: int) -> int:
    return (second - first) % SEQUENCES
