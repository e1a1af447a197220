"""Builds and reads control batches, the markers by which a broker ends a transaction."""

import struct
from enum import IntEnum
from typing import NamedTuple

from penstock.protocol.errors import DecodeError, EncodeError
from penstock.protocol.records import NewRecord, Record, build


class ControlType(IntEnum):
    """What a control record says; the numbers are Kafka's."""

    ABORT = 0
    COMMIT = 1


class ControlRecord(NamedTuple):
    """The end of a transaction, written by a coordinator of the given epoch."""

    type: ControlType
    coordinator_epoch: int


def build_end_marker(
    type: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The batch of one record that commits or aborts what `producer_id` has written to a partition."""
    try:
        value = _END_MARKER.pack(_VERSION, coordinator_epoch)
    except struct.error:
        raise EncodeError(f"coordinator epoch {coordinator_epoch} does not fit 32 bits") from None
    return build(
        [NewRecord(key=_KEY.pack(_VERSION, type), value=value, timestamp=timestamp)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_control(record: Record) -> ControlRecord:
    """What `record`, of a control batch, says."""
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size or len(value) < _END_MARKER.size:
        raise DecodeError(f"the control record at offset {record.offset} is cut off")
    version, number = _KEY.unpack_from(key)
    value_version, coordinator_epoch = _END_MARKER.unpack_from(value)
    # Later versions may only add fields at the end.
    if version < _VERSION or value_version < _VERSION:
        raise DecodeError(f"the control record at offset {record.offset} has a negative version")
    try:
        return ControlRecord(ControlType(number), coordinator_epoch)
    except ValueError:
        raise DecodeError(f"the control record at offset {record.offset} is of unknown type {number}") from None


_VERSION = 0
_KEY = struct.Struct(">hh")
_END_MARKER = struct.Struct(">hi")
