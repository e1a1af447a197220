"""Control batches, read back by us and by two other clients."""

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER
from aiokafka.record.control_record import ControlRecord as AiokafkaControlRecord
from kafka.record.default_records import DefaultRecordBatch

from penstock.protocol.batch import read_header, verify
from penstock.protocol.control import ControlRecord, ControlType, build_end_marker, read_control
from penstock.protocol.errors import DecodeError, EncodeError
from penstock.protocol.records import Record, iterate

COMMIT_KEY = b"\x00\x00\x00\x01"
EPOCH_7 = b"\x00\x00\x00\x00\x00\x07"


def marker(type: ControlType, coordinator_epoch: int = 7) -> bytearray:
    return build_end_marker(
        type,
        producer_id=4000,
        producer_epoch=3,
        coordinator_epoch=coordinator_epoch,
        timestamp=1_700_000_000_000,
        base_offset=50,
        leader_epoch=2,
    )


def control(key: bytes | None, value: bytes | None) -> Record:
    return Record(offset=50, timestamp=0, key=key, value=value)


@pytest.mark.parametrize("type", ControlType)
def test_an_end_marker_is_a_transactional_control_batch_of_one_record(type: ControlType) -> None:
    batch = marker(type)
    header = read_header(batch)
    verify(header, batch)

    assert (header.is_control, header.is_transactional) == (True, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 3, -1)
    assert (header.base_offset, header.leader_epoch, header.record_count) == (50, 2, 1)
    (record,) = iterate(batch)
    assert (record.offset, record.timestamp) == (50, 1_700_000_000_000)
    assert read_control(record) == ControlRecord(type, coordinator_epoch=7)


def test_other_clients_read_the_same_markers() -> None:
    (commit,) = DefaultRecordBatch(marker(ControlType.COMMIT))
    (abort,) = DefaultRecordBatch(marker(ControlType.ABORT))

    assert (commit.commit, commit.abort) == (True, False)
    assert (abort.commit, abort.abort) == (False, True)
    assert AiokafkaControlRecord.parse(commit.key) == COMMIT_MARKER
    assert AiokafkaControlRecord.parse(abort.key) == ABORT_MARKER


def test_the_bytes_are_those_of_kafka() -> None:
    (record,) = iterate(marker(ControlType.COMMIT))

    assert (record.key, record.value) == (COMMIT_KEY, EPOCH_7)


def test_a_later_version_may_add_fields_at_the_end() -> None:
    record = control(b"\x00\x01\x00\x00more", b"\x00\x01\x00\x00\x00\x09more")

    assert read_control(record) == ControlRecord(ControlType.ABORT, coordinator_epoch=9)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (None, EPOCH_7, "cut off"),
        (COMMIT_KEY, None, "cut off"),
        (COMMIT_KEY[:3], EPOCH_7, "cut off"),
        (COMMIT_KEY, EPOCH_7[:5], "cut off"),
        (b"\xff\xff\x00\x01", EPOCH_7, "negative version"),
        (COMMIT_KEY, b"\xff\xff\x00\x00\x00\x07", "negative version"),
        (b"\x00\x00\x00\x02", EPOCH_7, "unknown type 2"),
        (b"\x00\x00\xff\xff", EPOCH_7, "unknown type -1"),
    ],
)
def test_what_is_no_end_marker_is_a_decode_error(key: bytes | None, value: bytes | None, message: str) -> None:
    with pytest.raises(DecodeError, match=f"offset 50.*{message}"):
        read_control(control(key, value))


def test_a_coordinator_epoch_over_32_bits_is_an_encode_error() -> None:
    with pytest.raises(EncodeError, match="coordinator epoch"):
        marker(ControlType.ABORT, coordinator_epoch=2**31)
