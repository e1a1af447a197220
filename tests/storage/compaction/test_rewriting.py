"""What compaction leaves of batches."""

import pytest

from penstock.protocol.batch import read_header, verify
from penstock.protocol.compression import Codec
from penstock.protocol.control import ControlType, build_end_marker
from penstock.protocol.records import NewRecord, build, iterate
from penstock.storage.compaction.record_spans import read_spans, unpack
from penstock.storage.compaction.rewriting import FILLER_TYPE, build_filler, build_producer_filler, is_filler, keep_some

RECORDS = [
    NewRecord(key=b"%d" % n, value=b"value %d" % n, headers=[("h", b"x")], timestamp=1000 + 10 * n) for n in range(6)
]


def kept(batch: bytes, offsets: set[int]) -> bytearray:
    header = read_header(batch)
    data, position, _ = unpack(header, batch, 0)
    return keep_some(header, data, [span for span in read_spans(header, data, position) if span[0] in offsets])


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("offsets", [{100}, {105}, {101, 102, 104}, {100, 103}])
def test_records_that_stay_are_as_they_were(codec: Codec, offsets: set[int]) -> None:
    batch = build(
        RECORDS,
        base_offset=100,
        codec=codec,
        leader_epoch=3,
        producer_id=9,
        producer_epoch=2,
        base_sequence=77,
        transactional=True,
    )
    left = kept(bytes(batch), offsets)
    before, after = read_header(batch), read_header(left)
    verify(after, left)
    assert list(iterate(left)) == [record for record in iterate(batch) if record.offset in offsets]
    assert after == before._replace(
        batch_length=after.batch_length,
        crc=after.crc,
        record_count=len(offsets),
        max_timestamp=1000 + 10 * (max(offsets) - 100),
    )


def test_the_broker_s_time_stays_that_of_the_batch() -> None:
    batch = build(RECORDS, log_append_time=5000)
    left = kept(bytes(batch), {1})
    assert read_header(left).max_timestamp == 5000
    assert [record.timestamp for record in iterate(left)] == [5000]


def test_a_filler_is_a_control_batch_of_one_record_that_covers_a_range() -> None:
    filler = build_filler(10, 1000, leader_epoch=4)
    header = read_header(filler)
    verify(header, filler)
    assert is_filler(header)
    assert header.is_control
    assert (header.base_offset, header.next_offset, header.leader_epoch) == (10, 1000, 4)
    assert (header.producer_id, header.base_sequence, header.max_timestamp) == (-1, -1, -1)
    (record,) = iterate(filler)
    assert record.offset == 999
    assert record.key == bytes(2) + FILLER_TYPE.to_bytes(2, "big")


def test_a_producer_s_filler_tells_all_about_its_sequence_and_opens_no_transaction() -> None:
    batch = build(RECORDS, base_offset=7, producer_id=9, producer_epoch=2, base_sequence=77, transactional=True)
    before, header = read_header(batch), read_header(build_producer_filler(read_header(batch)))
    assert is_filler(header)
    assert not header.is_transactional
    for name in ("base_offset", "last_offset_delta", "producer_id", "producer_epoch", "base_sequence"):
        assert getattr(header, name) == getattr(before, name)


def test_the_end_of_a_transaction_is_no_filler() -> None:
    marker = build_end_marker(ControlType.ABORT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=0)
    assert not is_filler(read_header(marker))
    assert not is_filler(read_header(build(RECORDS)))
