"""What an idempotent producer may send, and what it is told about what it sent before."""

import random

import pytest

from penstock.machines.producers import MAX_REFUSED, WINDOW, Duplicate, Producers, Rejected
from penstock.protocol.batch import BatchHeader
from penstock.protocol.error_codes import ErrorCode

LAST = 0x7FFF_FFFF


def header(sequence: int, *, count: int = 1, epoch: int = 0, producer: int = 7, offset: int = 0) -> BatchHeader:
    return BatchHeader(offset, 49, 0, 2, 0, 0, count - 1, 1000, 1000 + sequence, producer, epoch, sequence, count)


def append(producers: Producers, batch: BatchHeader, offset: int) -> None:
    assert producers.check(batch) is None
    producers.appended(batch, offset, now_ms=5)


def test_batches_in_sequence_are_taken() -> None:
    producers = Producers()
    append(producers, header(0, count=3), 0)
    append(producers, header(3, count=2), 3)
    append(producers, header(5), 5)


def test_a_batch_without_a_producer_id_is_never_looked_at() -> None:
    producers = Producers()
    for _ in range(2):
        append(producers, header(-1, producer=-1, epoch=-1), 0)
    assert len(producers) == 0


@pytest.mark.parametrize("number", range(WINDOW))
def test_each_of_the_last_five_batches_is_known_again_with_its_offset(number: int) -> None:
    producers = Producers()
    for sequence in range(20):
        append(producers, header(sequence * 2, count=2), 100 + sequence * 2)
    sequence = 19 - number
    assert producers.check(header(sequence * 2, count=2)) == Duplicate(100 + sequence * 2, 1000 + sequence * 2)


def test_what_lies_further_back_is_out_of_order() -> None:
    producers = Producers()
    for sequence in range(WINDOW + 1):
        append(producers, header(sequence), sequence)
    refused = producers.check(header(0))
    assert isinstance(refused, Rejected)
    assert refused.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_out_of_order_and_says_what_comes_next() -> None:
    producers = Producers()
    append(producers, header(0), 0)
    refused = producers.check(header(2))
    assert isinstance(refused, Rejected)
    assert refused.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert "where 1 comes next" in refused.message


def test_the_same_first_sequence_with_another_count_is_no_duplicate() -> None:
    producers = Producers()
    append(producers, header(0, count=2), 0)
    assert isinstance(producers.check(header(0, count=1)), Rejected)


def test_sequences_wrap_around_to_zero() -> None:
    producers = Producers()
    append(producers, header(LAST - 1, count=2), 0)
    append(producers, header(0), 2)
    producers = Producers()
    append(producers, header(LAST, count=3), 0)
    append(producers, header(2), 3)


def test_an_older_epoch_is_fenced() -> None:
    producers = Producers()
    append(producers, header(0, epoch=3), 0)
    refused = producers.check(header(1, epoch=2))
    assert isinstance(refused, Rejected)
    assert refused.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_new_epoch_begins_with_sequence_zero_and_an_empty_window() -> None:
    producers = Producers()
    append(producers, header(0), 0)
    assert isinstance(producers.check(header(1, epoch=1)), Rejected)
    append(producers, header(0, epoch=1), 1)
    assert producers.check(header(0, epoch=1)) == Duplicate(1, 1000)


def test_of_an_unknown_producer_any_sequence_is_taken() -> None:
    append(Producers(), header(41), 0)


def test_of_an_unknown_producer_nothing_is_taken_before_what_was_refused() -> None:
    producers = Producers()
    producers.refused(header(1))
    producers.refused(header(0))
    rejected = producers.check(header(2))
    assert rejected == Rejected(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "producer 7 sent sequence 2, and 0 was refused")
    assert producers.check(header(2, producer=8)) is None
    append(producers, header(0), 0)
    append(producers, header(1), 1)


def test_what_was_refused_in_an_earlier_epoch_is_not_waited_for() -> None:
    producers = Producers()
    producers.refused(header(3))
    assert producers.check(header(0, epoch=1)) is None
    producers.refused(header(0, epoch=1))
    assert isinstance(producers.check(header(1, epoch=1)), Rejected)
    assert isinstance(producers.check(header(3)), Rejected)


def test_what_was_refused_of_a_known_producer_and_long_ago_leaves_no_trace() -> None:
    producers = Producers()
    producers.refused(header(0))
    append(producers, header(0), 0)
    producers.refused(header(1))
    producers.expire(now_ms=10_000, expiration_ms=5_000)
    append(producers, header(5), 1)
    producers.refused(header(0, producer=8))
    producers.expire(now_ms=10_000, expiration_ms=5_000)
    append(producers, header(5, producer=8), 2)


def test_refused_batches_are_remembered_of_a_thousand_producers_and_no_more() -> None:
    producers = Producers()
    for number in range(MAX_REFUSED + 1):
        producers.refused(header(1, producer=number))
    producers.refused(header(0, producer=0))
    assert producers.check(header(0, producer=0)) is None
    assert isinstance(producers.check(header(1, producer=0)), Rejected)
    assert isinstance(producers.check(header(2, producer=MAX_REFUSED - 1)), Rejected)
    assert producers.check(header(2, producer=MAX_REFUSED)) is None


def test_silent_producers_are_forgotten_and_busy_ones_are_not() -> None:
    producers = Producers()
    producers.appended(header(0, producer=1), 0, now_ms=1_000)
    producers.appended(header(0, producer=2), 1, now_ms=9_000)
    producers.expire(now_ms=10_000, expiration_ms=5_000)
    assert producers.check(header(5, producer=1)) is None
    assert isinstance(producers.check(header(5, producer=2)), Rejected)


def test_control_batches_leave_no_trace() -> None:
    producers = Producers()
    producers.appended(header(0)._replace(attributes=0x20, base_sequence=-1), 0, now_ms=0)
    assert len(producers) == 0


def test_what_compaction_leaves_of_a_last_batch_counts_like_the_batch() -> None:
    producers = Producers()
    producers.appended(header(4, count=3)._replace(attributes=0x20, record_count=1), 0, now_ms=0)
    assert producers.check(header(7)) is None
    assert isinstance(producers.check(header(8)), Rejected)


@pytest.mark.parametrize("seed", range(20))
def test_a_snapshot_and_the_headers_behind_it_are_the_same_as_all_headers(seed: int) -> None:
    rng = random.Random(seed)
    headers, offset, sequences = [], 0, dict.fromkeys(range(4), 0)
    for _ in range(100):
        producer = rng.randrange(4)
        batch = header(sequences[producer], count=rng.randint(1, 4), producer=producer, offset=offset)
        sequences[producer] += batch.record_count
        offset = batch.next_offset
        headers.append(batch)
    at = rng.randrange(100)
    everything, before = Producers(), Producers()
    everything.fold(headers, 9)
    before.fold(headers[:at], 9)
    restored = Producers.restore(before.snapshot())
    restored.fold(headers[at:], 9)
    assert restored.snapshot() == everything.snapshot(), f"seed {seed}"


def test_a_snapshot_as_of_an_offset_knows_nothing_of_what_comes_behind_it() -> None:
    producers = Producers()
    for sequence in range(3):
        append(producers, header(sequence), 10 + sequence)
    append(producers, header(0, producer=8), 13)
    restored = Producers.restore(producers.snapshot(12))
    assert restored.check(header(1)) == Duplicate(11, 1001)
    assert restored.check(header(2)) is None
    assert isinstance(restored.check(header(3)), Rejected)
    assert len(restored) == 1


class TestTakingTheNext:
    def test_the_next_batch_is_taken_and_counts_as_appended(self) -> None:
        producers, alike = Producers(), Producers()
        for each in (producers, alike):
            append(each, header(0, count=3), 0)
        assert producers.take_next(header(3, count=2), 3, now_ms=5)
        append(alike, header(3, count=2), 3)
        assert producers.snapshot() == alike.snapshot()
        assert producers.check(header(3, count=2)) == Duplicate(3, 1003)
        assert producers.take_next(header(5), 5, now_ms=5)

    def test_anything_else_is_left_to_the_check(self) -> None:
        producers = Producers()
        assert not producers.take_next(header(0), 0, now_ms=5), "a producer that is not known"
        append(producers, header(0), 0)
        before = producers.snapshot()
        for batch in (header(0), header(2), header(1, epoch=1), header(1, producer=8), header(-1, producer=-1)):
            assert not producers.take_next(batch, 1, now_ms=6)
        assert producers.snapshot() == before

    def test_sequences_wrap_around_to_zero(self) -> None:
        producers = Producers()
        append(producers, header(LAST - 1), 0)
        assert producers.take_next(header(LAST), 1, now_ms=5)
        assert producers.take_next(header(0, count=2), 2, now_ms=5)
        assert producers.take_next(header(2), 4, now_ms=5)

    def test_a_restored_producer_goes_on_where_it_was(self) -> None:
        producers = Producers()
        append(producers, header(7, count=3), 0)
        restored = Producers.restore(producers.snapshot())
        assert not restored.take_next(header(9), 3, now_ms=5)
        assert restored.take_next(header(10), 3, now_ms=5)

    def test_no_more_than_five_batches_are_kept(self) -> None:
        producers = Producers()
        append(producers, header(0), 0)
        for sequence in range(1, 20):
            assert producers.take_next(header(sequence), sequence, now_ms=5)
        assert [batch.base_offset for batch in producers._producers[7].batches] == [15, 16, 17, 18, 19]
