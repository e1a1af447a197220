"""Batches fill, close and keep their bytes; a queue sends them in order and numbers them without gaps."""

import pytest

from penstock.client.producer.accumulator import CHUNK_RECORDS, SEQUENCES, Batch, PartitionQueue
from penstock.protocol.batch import read_header, verify
from penstock.protocol.compression import Codec
from penstock.protocol.records import iterate

BASE = 1_700_000_000_000
ME = (7, 0)
LAST: tuple[int, int] | None = (7, 0x7FFF)


def batch_with(*values: bytes, is_due: bool = True) -> Batch:
    batch = Batch("orders", 0, 0.0)
    for number, value in enumerate(values):
        batch.append(b"key", value, BASE + number, None, len(value))
    batch.is_due = is_due
    return batch


def queue_with(*batches: Batch) -> PartitionQueue:
    queue = PartitionQueue("orders", 0, leader=1)
    queue.waiting.extend(batches)
    return queue


def send_next(queue: PartitionQueue, now: float = 1.0) -> Batch:
    batch = queue.first_sendable(now)
    assert batch is not None
    batch.close()
    queue.send(batch, ME)
    return batch


def back(queue: PartitionQueue, batch: Batch) -> None:
    queue.in_flight.remove(batch)
    queue.put_back(batch)


@pytest.mark.parametrize("count", [1, CHUNK_RECORDS - 1, CHUNK_RECORDS, CHUNK_RECORDS + 1, 3 * CHUNK_RECORDS])
def test_a_batch_holds_what_was_appended(count: int) -> None:
    batch = Batch("orders", 0, 0.0)
    indices = [batch.append(b"%d" % n, b"value" if n % 3 else None, BASE + n, None, 10) for n in range(count)]
    batch.close()
    batch.stamp((5, 6), 7)

    assert indices == list(range(count))
    header = read_header(batch.data)
    verify(header, batch.data)
    assert (header.record_count, header.base_timestamp, header.max_timestamp) == (count, BASE, BASE + count - 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    found = [(record.key, record.value, record.timestamp) for record in iterate(batch.data)]
    assert found == [(b"%d" % n, b"value" if n % 3 else None, BASE + n) for n in range(count)]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_compressed_batch_is_smaller_and_says_the_same(codec: Codec) -> None:
    batch = batch_with(*[b"the same again and again" * 4] * 50)
    batch.close()
    before = len(batch.data)
    batch.compress(codec, None)
    batch.stamp(ME, 0)

    verify(read_header(batch.data), batch.data)
    assert len(batch.data) < before / 2
    assert read_header(batch.data).codec is codec
    assert [record.value for record in iterate(batch.data)] == [b"the same again and again" * 4] * 50


def test_parts_of_a_batch_have_their_records_and_its_place() -> None:
    batch = batch_with(b"a", b"b", b"c", b"d")
    batch.close()
    batch.compress(Codec.ZSTD, None)
    batch.tries = 1
    one, two = batch.parts([[0, 2], [3]])

    assert [[record.value for record in iterate(part.data)] for part in (one, two)] == [[b"a", b"c"], [b"d"]]
    assert {part.codec for part in (one, two)} == {Codec.ZSTD}
    assert {(part.rank, part.tries, part.is_closed) for part in (one, two)} == {(batch.rank, 1, True)}


def test_an_open_batch_waits_until_it_is_due() -> None:
    queue = queue_with(batch_with(b"a", is_due=False))
    assert queue.first_sendable(0.0) is None
    queue.waiting[0].is_due = True

    assert queue.first_sendable(0.0) is queue.waiting[0]


def test_batches_are_numbered_as_they_are_sent() -> None:
    queue = queue_with(batch_with(b"a", b"b"), batch_with(b"c"), batch_with(b"d"))

    assert [send_next(queue).sequence for _ in range(3)] == [0, 2, 3]


def test_numbers_begin_again_behind_the_largest() -> None:
    queue = queue_with(batch_with(b"a", b"b"), batch_with(b"c"))
    queue.next_sequence = SEQUENCES - 1

    assert [send_next(queue).sequence for _ in range(2)] == [SEQUENCES - 1, 1]


def test_without_an_identity_nothing_is_numbered() -> None:
    queue = queue_with(batch_with(b"a"))
    batch = queue.waiting[0]
    batch.close()
    queue.send(batch, None)

    assert read_header(batch.data)[9:12] == (-1, -1, -1)


def test_what_comes_back_keeps_its_place_and_its_numbers_and_goes_alone() -> None:
    queue = queue_with(*[batch_with(b"%d" % number) for number in range(4)])
    first, second, third = (send_next(queue) for _ in range(3))
    back(queue, second)
    # The first and the third are still out: the second may not overtake them, nor may the fourth.
    assert queue.first_sendable(1.0) is None
    back(queue, third)
    back(queue, first)

    assert list(queue.waiting)[:3] == [first, second, third]
    assert send_next(queue) is first
    assert queue.first_sendable(1.0) is None
    queue.in_flight.clear()
    assert send_next(queue) is second
    assert [first.sequence, second.sequence, third.sequence] == [0, 1, 2]


def test_nothing_goes_to_a_new_leader_while_the_old_one_has_not_answered() -> None:
    queue = queue_with(batch_with(b"a"), batch_with(b"b"))
    send_next(queue)
    queue.leader = 2
    assert queue.first_sendable(1.0) is None
    queue.in_flight.clear()

    assert queue.first_sendable(1.0) is not None


def test_what_failed_is_left_alone_for_a_while() -> None:
    queue = queue_with(batch_with(b"a"))
    queue.retry_at = 2.0
    assert queue.first_sendable(1.9) is None

    assert queue.first_sendable(2.0) is not None


def test_behind_a_refused_batch_everything_is_numbered_anew_once_nothing_is_in_flight() -> None:
    queue = queue_with(*[batch_with(b"%d" % number) for number in range(4)])
    first, second, third = (send_next(queue) for _ in range(3))
    queue.in_flight.remove(first)
    queue.leave_gap(first, is_refused=True)
    back(queue, second)
    assert queue.first_sendable(1.0) is None
    back(queue, third)

    assert send_next(queue) is second
    assert (second.producer, second.sequence) == ((7, 1), 0)


def test_before_a_refused_batch_numbers_are_kept() -> None:
    """The first may be written, though nobody said so; only its old numbers keep it from being written twice."""
    queue = queue_with(*[batch_with(b"%d" % number) for number in range(3)])
    first, second, third = (send_next(queue) for _ in range(3))
    back(queue, first)
    queue.in_flight.remove(second)
    queue.leave_gap(second, is_refused=True)
    back(queue, third)

    assert send_next(queue) is first
    assert (first.producer, first.sequence) == ((7, 0), 0)
    queue.in_flight.clear()
    assert send_next(queue) is third
    assert (third.producer, third.sequence) == ((7, 1), 0)


def test_after_a_batch_of_unknown_outcome_what_was_sent_keeps_its_numbers_and_new_ones_begin_an_epoch() -> None:
    queue = queue_with(*[batch_with(b"%d" % number) for number in range(3)])
    first, second = (send_next(queue) for _ in range(2))
    queue.in_flight.remove(first)
    queue.leave_gap(first, is_refused=False)
    back(queue, second)

    assert send_next(queue) is second
    assert (second.producer, second.sequence) == ((7, 0), 1)
    assert queue.first_sendable(1.0) is None
    queue.in_flight.clear()
    third = send_next(queue)
    assert (third.producer, third.sequence) == ((7, 1), 0)


def test_a_batch_without_numbers_leaves_no_gap() -> None:
    queue = queue_with()
    queue.leave_gap(batch_with(b"a"), is_refused=True)

    assert queue.gap is None


def test_an_id_without_epochs_left_is_spent() -> None:
    queue = queue_with(batch_with(b"a"), batch_with(b"b"))
    queue.producer = LAST
    first = send_next(queue)
    queue.in_flight.clear()
    queue.leave_gap(first, is_refused=True)

    assert queue.first_sendable(1.0) is not None
    assert queue.spent_id == 7
    assert queue.producer is None
