"""The audit: duplicates, gaps and what compaction took, in whole logs and in logs that several tasks look at."""

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from penstock.protocol.batch import CONTROL_BIT, BatchHeader
from penstock.spark.statistics.audit import MAX_FINDINGS, MAX_SPANS, SEQUENCES, Auditor, Kind, Part, merge


def batch(
    offset: int, count: int, sequence: int, *, producer: int = 7, epoch: int = 0, kept: int | None = None, bits: int = 0
) -> BatchHeader:
    records = count if kept is None else kept
    return BatchHeader(offset, 100, 0, 2, 0, bits, count - 1, 0, 0, producer, epoch, sequence, records)


def parts_of(batches: Sequence[BatchHeader], *, start: int = 0, cuts: Sequence[int] = ()) -> list[Part]:
    """As tasks have them that each look at the log between two cuts, and get the batch that lies across one too."""
    parts = []
    for first, last in pairwise([start, *cuts, batches[-1].next_offset]):
        auditor = Auditor(first, last, is_lead=first == start, is_from_beginning=first == 0)
        auditor.add(each for each in batches if each.last_offset >= first and each.base_offset < last)
        parts.append(auditor.finish())
    return parts


def audit(batches: Sequence[BatchHeader], *, start: int = 0, cuts: Sequence[int] = ()) -> Part:
    return merge(parts_of(batches, start=start, cuts=cuts))


def told(part: Part) -> list[tuple[Kind, int, int, int]]:
    return [(each.kind, each.offset, each.sequence, each.count) for each in part.findings]


def test_a_log_without_faults_has_no_findings() -> None:
    part = audit([batch(0, 10, 0), batch(10, 5, 0, producer=8), batch(15, 5, 10), batch(20, 1, 0, epoch=1)])
    assert (part.records, part.duplicates, part.gaps, part.removed, part.findings) == (21, 0, 0, 0, [])


@pytest.mark.parametrize("cuts", [(), (10,), (13,), (10, 15, 20)])
def test_a_batch_that_came_twice_is_a_duplicate(cuts: Sequence[int]) -> None:
    part = audit([batch(0, 10, 0), batch(10, 5, 10), batch(15, 5, 10), batch(20, 5, 15)], cuts=cuts)
    assert (part.duplicates, part.gaps, part.records) == (5, 0, 25)
    assert told(part) == [(Kind.DUPLICATE, 15, 10, 5)]


@pytest.mark.parametrize("cuts", [(), (20,), (22,), (25,), (10, 20, 25)])
def test_what_comes_again_much_later_is_a_duplicate_and_sets_nobody_back(cuts: Sequence[int]) -> None:
    part = audit([batch(0, 10, 0), batch(10, 10, 10), batch(20, 5, 0), batch(25, 5, 20)], cuts=cuts)
    assert (part.duplicates, part.gaps, part.records) == (5, 0, 30)
    assert told(part) == [(Kind.DUPLICATE, 20, 0, 5)]


@pytest.mark.parametrize("cuts", [(), (20,), (25,), (27, 30)])
def test_batches_that_came_again_one_after_the_other_are_one_finding(cuts: Sequence[int]) -> None:
    part = audit([batch(0, 20, 0), batch(20, 5, 0), batch(25, 5, 5), batch(30, 15, 10)], cuts=cuts)
    assert (part.duplicates, part.gaps, told(part)) == (20, 0, [(Kind.DUPLICATE, 20, 0, 20)])


@pytest.mark.parametrize("cuts", [(), (10,), (12,), (5, 10, 14)])
def test_numbers_that_are_missing_where_no_offset_is_missing_are_a_gap(cuts: Sequence[int]) -> None:
    part = audit([batch(0, 10, 0), batch(10, 4, 0, producer=8), batch(14, 5, 13)], cuts=cuts)
    assert (part.duplicates, part.gaps, part.removed) == (0, 3, 0)
    assert told(part) == [(Kind.GAP, 14, 10, 3)]


@pytest.mark.parametrize("cuts", [(), (10,), (12,), (20,), (12, 14, 18)])
def test_what_compaction_took_is_told_apart_from_a_gap(cuts: Sequence[int]) -> None:
    part = audit([batch(0, 10, 0), batch(20, 5, 20), batch(25, 5, 27)], cuts=cuts)
    assert (part.gaps, part.removed, part.holes) == (2, 10, 10)
    assert [each for each in told(part) if each[0] is Kind.GAP] == [(Kind.GAP, 25, 25, 2)]


def test_more_numbers_missing_than_offsets_are_partly_a_gap() -> None:
    part = audit([batch(0, 10, 0), batch(14, 5, 20)])
    assert (part.removed, part.gaps) == (4, 6)


def test_records_that_compaction_took_out_of_a_batch_are_no_gap() -> None:
    part = audit([batch(0, 10, 0, kept=3), batch(10, 10, 10, kept=0), batch(20, 1, 20)])
    assert (part.records, part.thinned, part.gaps, part.removed) == (4, 17, 0, 0)


def test_the_numbers_begin_again_behind_the_largest() -> None:
    first = SEQUENCES - 5
    part = audit([batch(3, 5, first - 5), batch(8, 10, first), batch(18, 5, 5), batch(23, 5, 5)], start=3)
    assert (part.gaps, part.duplicates) == (0, 5)


def test_who_begins_with_another_number_than_0_has_a_gap_if_the_whole_log_is_known() -> None:
    assert audit([batch(0, 5, 3)]).gaps == 3
    assert audit([batch(10, 5, 3)], start=10).gaps == 0


@pytest.mark.parametrize("cuts", [(), (15,), (17,)])
def test_an_epoch_begins_with_0_if_the_producer_had_another_before(cuts: Sequence[int]) -> None:
    part = audit([batch(10, 5, 3), batch(15, 5, 2, epoch=1)], start=10, cuts=cuts)
    assert told(part) == [(Kind.GAP, 15, 0, 2)]


def test_markers_and_producers_that_number_nothing_are_not_audited() -> None:
    part = audit([batch(0, 5, -1, producer=-1), batch(5, 1, -1, bits=CONTROL_BIT), batch(6, 2, 0)])
    assert (part.plain_records, part.records, part.gaps, part.holes) == (5, 2, 0, 0)


@pytest.mark.parametrize("cuts", [(), (5,), (8,), (10,)])
def test_a_batch_of_nobodys_that_stands_where_compaction_took_all_counts_as_missing(cuts: Sequence[int]) -> None:
    filler = batch(5, 5, -1, producer=-1, kept=1, bits=CONTROL_BIT)
    part = audit([batch(0, 5, 0), filler, batch(10, 2, 10)], cuts=cuts)
    assert (part.removed, part.gaps, part.holes, part.thinned, part.plain_records) == (5, 0, 5, 0, 0)


def test_of_a_batch_across_the_beginning_of_a_log_only_the_rest_counts() -> None:
    part = audit([batch(0, 10, 0), batch(10, 5, 10)], start=4)
    assert (part.records, part.holes, part.gaps, part.duplicates) == (11, 0, 0, 0)


def test_behind_what_nobody_has_looked_at_numbers_begin_anew() -> None:
    parts = []
    for first, each in ((0, batch(0, 10, 0)), (20, batch(20, 10, 500))):
        auditor = Auditor(first, first + 10, is_from_beginning=first == 0)
        auditor.add([each])
        parts.append(auditor.finish())
    whole = merge(parts)
    assert (whole.records, whole.gaps, whole.removed) == (20, 0, 0)
    assert merge([]).records == 0


def test_so_many_findings_are_kept_and_all_are_counted() -> None:
    part = audit([batch(number, 1, number * 2) for number in range(500)])
    assert (len(part.findings), part.gaps) == (MAX_FINDINGS, 499)


def test_what_compaction_took_does_not_crowd_out_the_faults() -> None:
    taken = [batch(number * 2, 1, number * 2) for number in range(2 * MAX_FINDINGS)]
    end = taken[-1].next_offset
    part = audit([*taken, batch(end, 1, end + 3)])
    assert (part.removed, part.gaps, len(part.findings)) == (len(taken) - 1, 3, MAX_FINDINGS)
    assert told(part)[-1] == (Kind.GAP, end, end, 3)


@pytest.mark.parametrize("cuts", [(), (2_500,)])
def test_a_part_keeps_so_many_spans_and_counts_what_is_behind_them(cuts: Sequence[int]) -> None:
    batches = [batch(number, 1, number * 2 - number % 5 // 4 * 8) for number in range(5_000)]
    batches.append(batch(5_000, 1, 0, producer=8))
    parts = parts_of(batches, cuts=cuts)
    assert [len(each.spans) for each in parts][-1] == MAX_SPANS + 1
    assert all(len(each.findings) <= MAX_FINDINGS for each in parts)
    part = merge(parts)
    records, missing, duplicates = count_by_hand(batches)
    assert (part.records, part.gaps, part.duplicates) == (records, missing, duplicates)
    assert part.findings == merge(parts_of(batches[:1_000])).findings


def count_by_hand(batches: Sequence[BatchHeader], *, start: int = 0) -> tuple[int, int, int]:
    """Records, numbers that are missing, and duplicates: one number after the other."""
    following: dict[tuple[int, int], int] = {}
    records = missing = duplicates = 0
    for each in batches:
        producer, epoch = each.producer_id, each.producer_epoch
        is_known = start == 0 or any(producer == other for other, _ in following)
        expected = following.get((producer, epoch), 0 if is_known else each.base_sequence)
        for number in range(each.base_sequence, each.base_sequence + each.record_count):
            missing += max(0, number - expected)
            duplicates += number < expected
            expected = max(expected, number + 1)
        following[producer, epoch] = expected
        records += min(each.record_count, each.next_offset - start)
    return records, missing, duplicates


def make_log(chance: random.Random) -> list[BatchHeader]:
    """One with all that can be wrong: gaps, duplicates of the last batch and of old ones, epochs that do not begin with
    0, and offsets that nobody has."""
    following: dict[int, int] = {}
    epochs: dict[int, int] = {}
    batches, offset = [], 0
    for _ in range(200):
        producer, count = chance.randrange(5), chance.randrange(1, 6)
        sequence = following.get(producer, 0)
        match chance.randrange(12):
            case 0:
                sequence += 3
            case 1 if sequence >= count:
                sequence -= count
            case 2:
                sequence = chance.randrange(sequence + 1)
            case 3:
                epochs[producer] = epochs.get(producer, 0) + 1
                sequence = following[producer] = chance.choice([0, 0, 2])
            case 4:
                offset += chance.randrange(1, 10)
        batches.append(batch(offset, count, sequence, producer=producer, epoch=epochs.get(producer, 0)))
        following[producer] = max(following.get(producer, 0), sequence + count)
        offset += count
    return batches


@pytest.mark.parametrize("seed", range(20))
def test_however_a_log_is_cut_the_audit_is_the_same(seed: int) -> None:
    chance = random.Random(seed)
    batches = make_log(chance)
    end = batches[-1].next_offset
    for start in (0, *chance.sample(range(1, end // 2), 5)):
        there = [each for each in batches if each.last_offset >= start]
        whole = audit(there, start=start)
        counted = whole.records, whole.gaps + whole.removed, whole.duplicates
        assert counted == count_by_hand(there, start=start), start
        for _ in range(5):
            cuts = sorted(chance.sample(range(start + 1, end), 6))
            assert audit(there, start=start, cuts=cuts) == whole, (start, cuts)
