"""Rewrites batches as compaction leaves them: without some of their records, or, where none is left, as a filler.

A filler is a control batch of one record, which clients pass over. One without a producer covers the offsets from the
last batch that is left to the end of a segment, since a segment ends where the next begins. One with a producer stands
for the last batch of that producer, whose sequence is known from its header alone. It belongs to no transaction.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from penstock.protocol.batch import HEADER, LENGTH_OVERHEAD, BatchHeader, stamp_crc
from penstock.protocol.compression import Codec, compress
from penstock.protocol.records import NewRecord, build
from penstock.storage.compaction.record_spans import Span

# A control record's key is a version and a type; Kafka's own types are small numbers.
FILLER_TYPE: Final = 0x5000
_FILLER_KEY: Final = Struct(">hh").pack(0, FILLER_TYPE)


def is_filler(header: BatchHeader) -> bool:
    """Markers, the other control batches, have a producer and no sequence."""
    return header.is_control and (header.producer_id < 0 or header.base_sequence >= 0)


def build_filler(base_offset: int, next_offset: int, leader_epoch: int) -> bytearray:
    """Covers offsets of which no record is left."""
    return _filler(base_offset, next_offset - base_offset - 1, leader_epoch)


def build_producer_filler(header: BatchHeader) -> bytearray:
    """Takes the place of a batch of which no record is left."""
    return _filler(
        header.base_offset,
        header.last_offset_delta,
        header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def keep_some(header: BatchHeader, data: bytes, kept: Iterable[Span]) -> bytearray:
    """The batch with these records alone, which lie in `data` and stay as they are, offsets and all."""
    pieces, newest, count = [], 0, 0
    first = last = -1
    for _, start, end, timestamp in kept:
        newest = timestamp if count == 0 else max(newest, timestamp)
        count += 1
        if start != last:
            pieces.append(data[first:last])
            first = start
        last = end
    pieces.append(data[first:last])
    pieces[0] = bytes(HEADER.size)
    if header.codec is not Codec.NONE:
        pieces = [pieces[0], compress(header.codec, b"".join(pieces[1:]))]
    batch = bytearray().join(pieces)
    HEADER.pack_into(
        batch,
        0,
        *header._replace(
            batch_length=len(batch) - LENGTH_OVERHEAD,
            max_timestamp=header.max_timestamp if header.is_log_append_time else header.base_timestamp + newest,
            record_count=count,
        ),
    )
    stamp_crc(batch)
    return batch


def _filler(
    base_offset: int,
    last_delta: int,
    leader_epoch: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    # Without a time of its own: no search by time should end at it.
    return build(
        [NewRecord(key=_FILLER_KEY, value=b"", timestamp=-1)],
        base_offset=base_offset,
        offset_deltas=[last_delta],
        last_offset_delta=last_delta,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        control=True,
    )
