"""What a fetch has brought: messages in order, and nothing of control batches and aborted transactions."""

import random
from typing import Any

import pytest

from penstock.client.decoding import HEAVY_BYTES, Batch, Returned, Segment
from penstock.client.errors import CorruptBatchError
from penstock.client.message import Message
from penstock.client.metadata import TopicPartition
from penstock.protocol.batch import split
from penstock.protocol.compression import Codec
from penstock.protocol.control import ControlType, build_end_marker
from penstock.protocol.errors import DecodeError
from penstock.protocol.records import NewRecord, build
from penstock.protocol.schemas.fetch import AbortedTransaction

KEY = TopicPartition("orders", 0)


def batch(base_offset: int, *values: bytes, **options: Any) -> bytes:
    return bytes(build([NewRecord(value, timestamp=1000) for value in values], base_offset=base_offset, **options))


def marker(offset: int, producer_id: int, type: ControlType) -> bytes:
    return bytes(
        build_end_marker(
            type, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=offset
        )
    )


def segment(data: bytes, offset: int = 0, **options: Any) -> Segment:
    return Segment(KEY, offset, memoryview(data), **options)


def drain(taken_from: Segment, most: int = 1000) -> list[tuple[int, bytes | None]]:
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
    found = segment(data, 11)
    assert (found.end_offset, found.size) == (15, len(data))
    assert drain(found, most) == [(11, b"b"), (12, b"c"), (13, b"d"), (14, b"e")]
    assert found.next_offset == 15


def test_the_position_moves_with_what_is_taken_and_over_what_is_not_there() -> None:
    data = batch(10, b"a", b"b", leader_epoch=1) + batch(
        20, b"c", offset_deltas=[3], last_offset_delta=9, leader_epoch=2
    )
    found = segment(data, 10)
    steps = []
    while messages := found.take(1):
        steps.append((messages[0].offset, found.next_offset, found.leader_epoch))
    assert steps == [(10, 11, 1), (11, 12, 1), (23, 24, 2)]
    assert (found.next_offset, found.end_offset, found.end_epoch) == (30, 30, 2)


def test_control_batches_and_empty_ones_are_passed_over() -> None:
    empty = batch(12, offset_deltas=[], last_offset_delta=4)
    data = marker(9, 1, ControlType.COMMIT) + batch(10, b"a", b"b") + empty + marker(17, 1, ControlType.ABORT)
    found = segment(data, 9)
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
    found = segment(data, aborted=aborted)
    assert drain(found) == [(1, b"plain"), (2, b"b1"), (3, b"b2"), (6, b"a3")]
    assert found.next_offset == 11
    everything = [value for _, value in drain(segment(data))]
    assert everything == [b"a1", b"plain", b"b1", b"b2", b"a2", b"a3", b"c1"]


def test_a_transaction_that_was_aborted_before_the_offset_still_ends_at_its_marker() -> None:
    transaction = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    data = batch(0, b"a1", b"a2", producer_id=1, **transaction) + marker(2, 1, ControlType.ABORT)
    data += batch(3, b"a3", producer_id=1, **transaction)
    assert drain(segment(data, 1, aborted=[AbortedTransaction(producer_id=1, first_offset=0)])) == [(3, b"a3")]


def test_a_damaged_batch_is_told_behind_the_messages_before_it() -> None:
    damaged = bytearray(batch(11, b"b"))
    damaged[-2] ^= 1
    found = segment(batch(10, b"a") + damaged, 10)
    assert [message.value for message in found.take(10)] == [b"a"]
    assert not found.is_exhausted
    with pytest.raises(CorruptBatchError, match=r"orders-0: what was fetched from offset 11 on is damaged.*`seek`"):
        found.take(10)
    assert (found.next_offset, found.is_exhausted) == (11, True)
    alone = segment(bytes(damaged), 11)
    with pytest.raises(CorruptBatchError):
        alone.take(10)


def test_unchecked_damage_is_not_found() -> None:
    damaged = bytearray(batch(11, b"b"))
    damaged[-2] ^= 1
    assert drain(segment(bytes(damaged), 11, check_crcs=False)) == [(11, b"c")]


def test_what_is_no_batch_is_refused_at_once() -> None:
    with pytest.raises(CorruptBatchError, match="orders-0"):
        segment(b"\x00" * 100)


def test_a_batch_that_was_cut_off_is_left_for_the_next_fetch() -> None:
    found = segment(batch(10, b"a") + batch(11, b"b")[:-1], 10)
    assert found.end_offset == 11
    assert drain(found) == [(10, b"a")]


def test_a_large_compressed_batch_is_for_a_thread_unless_that_was_tried() -> None:
    noise = random.Random(1).randbytes(HEAVY_BYTES)
    for codec, is_heavy in ((Codec.LZ4, True), (Codec.NONE, False)):
        found = segment(batch(0, noise, codec=codec))
        assert (found.heavy_batch is not None) == is_heavy
        if found.heavy_batch is not None:
            found.heavy_batch.open()
            assert found.heavy_batch is None
        assert drain(found) == [(0, noise)]
    damaged = bytearray(batch(0, noise, codec=Codec.ZSTD))
    damaged[-1] ^= 1
    found = segment(bytes(damaged))
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
    segment = Segment(KEY, 0, memoryview(b"".join(batches)))
    assert segment.record_count == 9
    assert bytes(segment.encoded(4).data) == batches[0] + batches[1]
    segment.go_to(4)
    assert segment.next_offset == 4
    assert [message.offset for message in segment.take(1)] == [4]
    # The batch that was begun comes alone, and its checksum is right.
    assert segment.encoded(100)[:2] == (batches[1], True)
    segment.go_to(6)
    assert bytes(segment.encoded(100).data) == batches[2]
    assert not segment.encoded(100).is_verified
    segment.go_to(9)
    assert segment.is_exhausted
