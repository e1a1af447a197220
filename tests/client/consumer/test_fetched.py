"""What a fetch has brought: messages in order, and nothing of control batches and aborted transactions."""

import random
import tracemalloc
from typing import Any

import pytest

from penstock.client.consumer.fetched import HEAVY_BYTES, UNKNOWN, Batch, FetchedBatches, Returned, Rules
from penstock.client.corruption import WHOLE_RECORDS, PassedOver
from penstock.client.errors import CorruptBatchError
from penstock.client.message import Message
from penstock.client.metadata import TopicPartition
from penstock.protocol.batch import HEADER, split, stamp
from penstock.protocol.compression import Codec
from penstock.protocol.control import ControlType, build_end_marker
from penstock.protocol.errors import DecodeError
from penstock.protocol.records import NewRecord, build
from penstock.protocol.schemas.fetch import AbortedTransaction
from tests.hostile import poison

KEY = TopicPartition("orders", 0)


def batch(base_offset: int, *values: bytes, **options: Any) -> bytes:
    return bytes(build([NewRecord(value, timestamp=1000) for value in values], base_offset=base_offset, **options))


def marker(offset: int, producer_id: int, type: ControlType) -> bytes:
    return bytes(
        build_end_marker(
            type, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=offset
        )
    )


def fetched(data: bytes, offset: int = 0, **options: Any) -> FetchedBatches:
    return FetchedBatches(KEY, offset, memoryview(data), **options)


def drain(taken_from: FetchedBatches, most: int = 1000) -> list[tuple[int, bytes | None]]:
    found = []
    while messages := taken_from.take(most):
        assert len(messages) <= most
        found += [(message.offset, message.value) for message in messages]
    assert taken_from.is_exhausted
    return found


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_messages_come_from_the_offset_on_and_not_more_than_are_asked_for(codec: Codec, most: int) -> None:
    data = batch(10, b"a", b"b", b"c", codec=codec) + batch(13, b"d", b"e", codec=codec)
    found = fetched(data, 11)
    assert (found.end_offset, found.size) == (15, len(data))
    assert drain(found, most) == [(11, b"b"), (12, b"c"), (13, b"d"), (14, b"e")]
    assert found.next_offset == 15


def test_the_position_moves_with_what_is_taken_and_over_what_is_not_there() -> None:
    data = batch(10, b"a", b"b", leader_epoch=1) + batch(
        20, b"c", offset_deltas=[3], last_offset_delta=9, leader_epoch=2
    )
    found = fetched(data, 10)
    steps = []
    while messages := found.take(1):
        steps.append((messages[0].offset, found.next_offset, found.leader_epoch))
    assert steps == [(10, 11, 1), (11, 12, 1), (23, 24, 2)]
    assert (found.next_offset, found.end_offset, found.end_epoch) == (30, 30, 2)


def test_control_batches_and_empty_ones_are_passed_over() -> None:
    empty = batch(12, offset_deltas=[], last_offset_delta=4)
    data = marker(9, 1, ControlType.COMMIT) + batch(10, b"a", b"b") + empty + marker(17, 1, ControlType.ABORT)
    found = fetched(data, 9)
    assert drain(found) == [(10, b"a"), (11, b"b")]
    assert found.next_offset == 18


def test_of_aborted_transactions_nothing_is_seen_by_who_reads_committed_records() -> None:
    transaction = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    data = b"".join(
        [
            batch(0, b"a1", producer_id=1, **transaction),
            batch(1, b"plain"),
            batch(2, b"b1", b"b2", producer_id=2, **transaction),
            batch(4, b"a2", producer_id=1, **transaction),
            marker(5, 1, ControlType.ABORT),
            batch(6, b"a3", producer_id=1, **transaction),
            marker(7, 2, ControlType.COMMIT),
            marker(8, 1, ControlType.COMMIT),
            batch(9, b"c1", producer_id=3, **transaction),
            marker(10, 3, ControlType.ABORT),
        ]
    )
    aborted = [AbortedTransaction(producer_id=3, first_offset=9), AbortedTransaction(producer_id=1, first_offset=0)]
    found = fetched(data, aborted=aborted)
    assert drain(found) == [(1, b"plain"), (2, b"b1"), (3, b"b2"), (6, b"a3")]
    assert found.next_offset == 11
    everything = [value for _, value in drain(fetched(data))]
    assert everything == [b"a1", b"plain", b"b1", b"b2", b"a2", b"a3", b"c1"]


def test_a_transaction_that_was_aborted_before_the_offset_still_ends_at_its_marker() -> None:
    transaction = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    data = batch(0, b"a1", b"a2", producer_id=1, **transaction) + marker(2, 1, ControlType.ABORT)
    data += batch(3, b"a3", producer_id=1, **transaction)
    assert drain(fetched(data, 1, aborted=[AbortedTransaction(producer_id=1, first_offset=0)])) == [(3, b"a3")]


def test_a_damaged_batch_is_told_behind_the_messages_before_it() -> None:
    found = fetched(batch(10, b"a") + damaged(11, b"b"), 10)
    assert [message.value for message in found.take(10)] == [b"a"]
    assert not found.is_exhausted
    with pytest.raises(
        CorruptBatchError, match=r"orders-0: the batch at offset 11 cannot be read: .*`seek` to offset 12"
    ):
        found.take(10)
    assert (found.next_offset, found.is_exhausted) == (11, False)
    alone = fetched(damaged(11, b"b"), 11)
    with pytest.raises(CorruptBatchError):
        alone.take(10)


def test_unchecked_damage_is_not_found() -> None:
    assert drain(fetched(damaged(11, b"b"), 11, rules=Rules(check_crcs=False))) == [(11, b"c")]


def test_what_is_no_batch_is_refused_when_it_is_taken() -> None:
    found = fetched(b"\x00" * 100, 7)
    assert (found.is_damaged, found.end_offset) == (True, UNKNOWN)
    with pytest.raises(CorruptBatchError, match=r"orders-0: the batch at offset 7 .* where it ends cannot be told"):
        found.take(1)


def test_a_batch_that_was_cut_off_is_left_for_the_next_fetch() -> None:
    found = fetched(batch(10, b"a") + batch(11, b"b")[:-1], 10)
    assert found.end_offset == 11
    assert drain(found) == [(10, b"a")]


def test_a_large_compressed_batch_is_for_a_thread_unless_that_was_tried() -> None:
    noise = random.Random(1).randbytes(HEAVY_BYTES)
    for codec, is_heavy in ((Codec.LZ4, True), (Codec.NONE, False)):
        found = fetched(batch(0, noise, codec=codec))
        assert (found.heavy_batch is not None) == is_heavy
        if found.heavy_batch is not None:
            found.heavy_batch.open()
            assert found.heavy_batch is None
        assert drain(found) == [(0, noise)]
    broken = bytearray(batch(0, noise, codec=Codec.ZSTD))
    broken[-1] ^= 1
    found = fetched(bytes(broken))
    assert found.heavy_batch is not None
    with pytest.raises(DecodeError):
        found.heavy_batch.open()
    assert found.heavy_batch is None
    with pytest.raises(CorruptBatchError):
        found.take(1)


def test_an_opened_batch_lets_go_of_what_was_received() -> None:
    [(header, view)] = split(batch(0, b"a"))
    opened = Batch(header, view)
    assert opened.open() is opened.open()
    assert len(opened.view) == 0


def test_what_was_returned_comes_again_and_leads_on_behind_it() -> None:
    messages = [Message(*KEY, offset, 1, None, b"v", leader_epoch=offset) for offset in (4, 6, 7)]
    returned = Returned(KEY, messages, 9, is_read=True)
    assert (returned.next_offset, returned.leader_epoch, returned.size) == (4, 4, 0)
    assert returned.take(1) == messages[:1]
    assert (returned.next_offset, returned.leader_epoch, returned.is_exhausted) == (6, 4, False)
    assert returned.take(5) == messages[1:]
    assert (returned.next_offset, returned.leader_epoch, returned.is_exhausted) == (9, 7, True)


def test_who_decodes_by_other_means_gets_whole_batches_and_says_how_far_he_is() -> None:
    batches = [bytes(build([NewRecord(b"v", timestamp=1)] * 3, base_offset=first)) for first in (0, 3, 6)]
    fetched = FetchedBatches(KEY, 0, memoryview(b"".join(batches)))
    assert fetched.record_count == 9
    assert bytes(fetched.encoded(4).data) == batches[0] + batches[1]
    fetched.go_to(4)
    assert fetched.next_offset == 4
    assert [message.offset for message in fetched.take(1)] == [4]
    # The batch that was begun comes alone, and its checksum is right.
    assert fetched.encoded(100)[:2] == (batches[1], True)
    fetched.go_to(6)
    assert bytes(fetched.encoded(100).data) == batches[2]
    assert not fetched.encoded(100).is_verified
    fetched.go_to(9)
    assert fetched.is_exhausted


# Batches that cannot be read


def at(offset: int, poisoned: bytes) -> bytes:
    stamped = bytearray(poisoned)
    stamp(stamped, offset, 0)
    return bytes(stamped)


def damaged(base_offset: int, *values: bytes) -> bytes:
    """With a checksum that is wrong."""
    data = bytearray(batch(base_offset, *values))
    data[-2] ^= 1
    return bytes(data)


def skipping() -> Rules:
    return Rules(passed_over=PassedOver(lambda line: None))


def error_of(found: FetchedBatches) -> CorruptBatchError:
    with pytest.raises(CorruptBatchError) as caught:
        found.take(1)
    return caught.value


def test_no_message_of_a_batch_is_taken_if_one_of_them_cannot_be_read() -> None:
    for most in (1, 2, 3, 10):
        found = fetched(batch(0, b"a") + at(1, poison.count_too_low()) + batch(3, b"b"))
        assert [message.offset for message in found.take(most)] == [0]
        for _ in range(2):
            error = error_of(found)
            assert (error.offset, error.next_offset, found.next_offset) == (1, 3, 1)
        found = fetched(batch(0, b"a") + at(1, poison.count_too_low()) + batch(3, b"b"), rules=skipping())
        assert drain(found, most) == [(0, b"a"), (3, b"b")]


def test_of_a_batch_too_large_to_be_held_what_comes_before_the_broken_record_is_taken_once() -> None:
    count = WHOLE_RECORDS + 100
    payload = batch(0, *[b"v%d" % number for number in range(count)])[HEADER.size :]
    poisoned = at(5, poison.sealed(payload[:-3], count=count))
    for most in (7, 500, 10_000):
        found = fetched(poisoned + batch(5 + count, b"after"), 5)
        offsets: list[int] = []
        while len(offsets) < count - 1:
            offsets += [message.offset for message in found.take(most)]
        assert offsets == list(range(5, 5 + count - 1))
        assert found.next_offset == 5 + count - 1
        error = error_of(found)
        assert (error.offset, error.next_offset) == (5, 5 + count)
        found = fetched(poisoned + batch(5 + count, b"after"), 5, rules=skipping())
        assert [offset for offset, _ in drain(found, most)] == [*range(5, 5 + count - 1), 5 + count]


def test_a_count_that_the_bytes_cannot_hold_is_refused_before_anything_is_taken() -> None:
    payload = poison.good()[HEADER.size :]
    found = fetched(poison.sealed(payload, count=0x7FFF_FFFF))
    assert "do not fit" in str(error_of(found))


def test_after_a_wrong_checksum_the_next_batch_says_where_to_go_on() -> None:
    data = batch(0, b"a") + damaged(1, b"b", b"c") + batch(7, b"d")
    found = fetched(data)
    found.take(1)
    assert (error_of(found).offset, error_of(found).next_offset) == (1, 7)
    assert drain(fetched(data, rules=skipping())) == [(0, b"a"), (7, b"d")]


def test_the_last_batch_of_a_fetch_is_passed_over_only_as_far_as_the_log_goes() -> None:
    lying = bytearray(damaged(1, b"b"))
    lying[23:27] = (1000).to_bytes(4)
    for data, log_end, expected in ((damaged(1, b"b"), 2, 2), (bytes(lying), 50, None), (damaged(1, b"b"), 1, None)):
        found = fetched(data, 1, log_end=log_end)
        assert error_of(found).next_offset == expected
        rules = skipping()
        found = fetched(data, 1, rules=rules, log_end=log_end)
        assert rules.passed_over is not None
        if expected is None:
            assert "where it ends cannot be told" in str(error_of(found))
        else:
            assert drain(found) == []
        assert (found.next_offset, rules.passed_over.count) == ((1, 0) if expected is None else (expected, 1))


def test_a_header_that_cannot_be_read_ends_where_the_next_batch_begins() -> None:
    unknown = bytearray(batch(1, b"b"))
    unknown[16] = 9
    data = batch(0, b"a") + bytes(unknown) + batch(2, b"c")
    found = fetched(data)
    assert found.end_offset == 3
    assert [message.offset for message in found.take(10)] == [0]
    assert "message format 9 is unknown" in str(error_of(found))
    assert drain(fetched(data, rules=skipping())) == [(0, b"a"), (2, b"c")]


def test_what_was_fetched_before_a_length_without_sense_is_taken_and_nothing_is_fetched_behind_it() -> None:
    broken = bytearray(batch(1, b"b"))
    broken[8:12] = (3).to_bytes(4)
    for rules in (Rules(), skipping()):
        found = fetched(batch(0, b"a") + bytes(broken) + batch(2, b"c"), rules=rules)
        assert found.end_offset == UNKNOWN
        assert [message.offset for message in found.take(10)] == [0]
        error = error_of(found)
        assert (error.offset, error.next_offset, found.next_offset) == (1, None, 1)


def test_without_checksums_a_batch_that_cannot_be_read_is_passed_over_all_the_same() -> None:
    for rules in (Rules(check_crcs=False), Rules(check_crcs=False, passed_over=PassedOver(lambda line: None))):
        found = fetched(at(1, poison.garbage()), 1, rules=rules, log_end=0)
        if rules.passed_over is None:
            assert error_of(found).next_offset == 4
        else:
            assert drain(found) == []
            assert found.next_offset == 4


@pytest.mark.parametrize("limit", [1 << 20, 4 << 20])
def test_a_bomb_takes_no_more_memory_than_twice_the_limit(limit: int) -> None:
    bomb = poison.zstd_bomb()
    found = fetched(bomb, rules=Rules(max_decompressed_bytes=limit))
    tracemalloc.start()
    try:
        assert f"more than {limit} bytes" in str(error_of(found))
        assert tracemalloc.get_traced_memory()[1] < 2 * limit
    finally:
        tracemalloc.stop()


def test_a_heavy_batch_that_a_thread_found_damaged_is_not_decompressed_again() -> None:
    noise = random.Random(1).randbytes(2 * HEAVY_BYTES)
    data = batch(0, noise, codec=Codec.ZSTD)
    found = fetched(poison.sealed(data[HEADER.size : -100], count=1, codec=Codec.ZSTD))
    heavy = found.heavy_batch
    assert heavy is not None
    heavy.try_to_open()
    assert heavy.damage is not None
    heavy.view = memoryview(b"")
    assert error_of(found).why is heavy.damage
