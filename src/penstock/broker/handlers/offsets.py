"""ListOffsets 1 to 11 and OffsetForLeaderEpoch 2 to 4: where a log begins and ends, and what lies at a time."""

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.broker.call import Call
from penstock.broker.partition import Partition
from penstock.broker.router import Router
from penstock.protocol.batch import BatchHeader
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError
from penstock.protocol.records import iterate
from penstock.protocol.schema import Message
from penstock.protocol.schemas.offsets import (
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from penstock.storage.errors import StorageError

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

router = Router()

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
# So many records are looked at before others get their turn.
_RECORDS_AT_ONCE: Final = 200


class _Place(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


_NOWHERE: Final = _Place(-1, -1, -1)


@router.handles(ListOffsetsRequest, versions=(1, 11))
async def list_offsets(broker: "Broker", call: Call, request: ListOffsetsRequest) -> Message:
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            found = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            partition = broker.partitions.get(topic.name, asked.partition_index)
            code = partition if isinstance(partition, ErrorCode) else epoch_error(partition, asked.current_leader_epoch)
            if code:
                found.error_code = code
            else:
                assert isinstance(partition, Partition)
                try:
                    place = await _place(partition, asked.timestamp)
                    found.offset, found.timestamp = place.offset, place.timestamp
                    if call.version >= 4:
                        found.leader_epoch = place.leader_epoch
                except (OSError, StorageError):
                    found.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                except DecodeError:
                    # Nobody looked inside when it was produced.
                    found.error_code = ErrorCode.CORRUPT_MESSAGE
            partitions.append(found)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def epoch_error(partition: Partition, epoch: int) -> ErrorCode:
    """What a client is told whose idea of the leader is not ours (KIP-320)."""
    if epoch < 0 or epoch == partition.leader.leader_epoch:
        return ErrorCode.NONE
    is_old = epoch < partition.leader.leader_epoch
    return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH


async def _place(partition: Partition, timestamp: int) -> _Place:
    log = partition.log
    match timestamp:
        case -1:
            end = partition.leader.last_stable_offset
            return _Place(end, -1, partition.leader.leader_epoch)
        case -2 | -4:
            epoch = next((epoch for epoch, _ in log.epochs.entries), partition.leader.leader_epoch)
            return _Place(log.start_offset, -1, epoch)
        case -3:
            newest = log.max_timestamp
            found = log.find_timestamp(newest, upper_bound=partition.high_watermark) if newest >= 0 else None
            return _NOWHERE if found is None else await _record_at(partition, found, newest)
        case -5 | -6:
            # There is no second tier.
            return _NOWHERE
        case _:
            found = log.find_timestamp(timestamp, upper_bound=partition.high_watermark)
            return _NOWHERE if found is None else await _record_at(partition, found, timestamp)


async def _record_at(partition: Partition, header: BatchHeader, timestamp: int) -> _Place:
    """The first record of a batch at or after a time."""
    # The log may begin inside the batch.
    found = partition.log.read(max(header.base_offset, partition.log.start_offset), max_bytes=header.size)
    if found is None:
        return _NOWHERE
    with found:
        data = memoryview(found.read())[: header.size]
    for number, record in enumerate(iterate(data)):
        if record.timestamp >= timestamp and record.offset >= partition.log.start_offset:
            return _Place(record.offset, record.timestamp, header.leader_epoch)
        if number % _RECORDS_AT_ONCE == _RECORDS_AT_ONCE - 1:
            await asyncio.sleep(0)
    return _NOWHERE


@router.handles(OffsetForLeaderEpochRequest, versions=(2, 4))
def offset_for_leader_epoch(broker: "Broker", call: Call, request: OffsetForLeaderEpochRequest) -> Message:
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            found = EpochEndOffset(partition=asked.partition)
            partition = broker.partitions.get(topic.topic, asked.partition)
            code = partition if isinstance(partition, ErrorCode) else epoch_error(partition, asked.current_leader_epoch)
            if code:
                found.error_code = code
            else:
                assert isinstance(partition, Partition)
                epochs = partition.log.epochs
                found.leader_epoch, found.end_offset = epochs.end_offset(asked.leader_epoch, partition.log.end_offset)
            partitions.append(found)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(topics=topics)
