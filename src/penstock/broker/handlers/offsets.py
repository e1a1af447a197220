"""Handlers of ListOffsets 1 to 11 and OffsetForLeaderEpoch 2 to 4 find offsets by position, time and epoch.

ListOffsets adds the isolation level in version 2 (KIP-98), the leader's epoch in 4 (KIP-320), the newest timestamp in 7
(KIP-734), tiered offsets in 8 and 9 (KIP-405, KIP-1005), a timeout in 10 (KIP-1075), and the first offset that is to be
tiered in 11 (KIP-1023).
"""

from typing import Final, NamedTuple

from penstock.broker.network.call import Call
from penstock.broker.pacing import Pace, Written
from penstock.broker.partitions.partition import Partition
from penstock.broker.router import Router
from penstock.broker.services import Services
from penstock.protocol.batch import BatchHeader
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError
from penstock.protocol.records import iterate
from penstock.protocol.schema import Message
from penstock.protocol.schemas.offsets import (
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from penstock.storage.errors import StorageError
from penstock.storage.log.file_range import FileRange

router = Router()

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_OF_THE_START: Final = (-2, -4)
# Looking for the batch that holds a time takes as long as this many simpler things.
_LOOKUP_ITEMS: Final = 20


class _Place(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


_NOWHERE: Final = _Place(-1, -1, -1)


@router.handles(ListOffsetsRequest, versions=(1, 11))
async def list_offsets(services: Services, call: Call, request: ListOffsetsRequest) -> Message | Written:
    pace = services.pacing.pace(call)
    named = await pace.count(
        (topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions
    )
    topics: dict[str, list[ListOffsetsPartitionResponse]] = {}
    for topic in request.topics:
        found = topics.setdefault(topic.name, [])
        for asked in topic.partitions:
            times = named.pop((topic.name, asked.partition_index), 0)
            if times == 1:
                found.append(await _find(services, call, topic.name, asked, pace))
            elif times:
                # Kafka refuses it as well: which of the times was meant, only the client knows.
                code = ErrorCode.INVALID_REQUEST
                found.append(ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code))
            await pace.spend()
    return await pace.reply(
        ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=name, partitions=partitions) for name, partitions in topics.items()]
        )
    )


async def _find(
    services: Services, call: Call, topic: str, asked: ListOffsetsPartition, pace: Pace
) -> ListOffsetsPartitionResponse:
    found = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    partition = services.partitions.get(topic, asked.partition_index)
    code = partition if isinstance(partition, ErrorCode) else epoch_error(partition, asked.current_leader_epoch)
    if code:
        found.error_code = code
        return found
    assert isinstance(partition, Partition)
    if not partition.leader.is_settled and asked.timestamp not in _OF_THE_START:
        # What former leaders committed may lie above what counts as committed here so far (KIP-207).
        found.error_code = ErrorCode.OFFSET_NOT_AVAILABLE if call.version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
        return found
    try:
        place = await _place(services, partition, asked.timestamp, pace)
    except (OSError, StorageError):
        found.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    except DecodeError:
        # Its topic does not have records looked at when they are produced.
        found.error_code = ErrorCode.CORRUPT_MESSAGE
    else:
        found.offset, found.timestamp = place.offset, place.timestamp
        if call.version >= 4:
            found.leader_epoch = place.leader_epoch
    return found


def epoch_error(partition: Partition, epoch: int) -> ErrorCode:
    """The error for a client whose idea of the leader differs from the broker's (KIP-320)."""
    if epoch < 0 or epoch == partition.leader.leader_epoch:
        return ErrorCode.NONE
    is_old = epoch < partition.leader.leader_epoch
    return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH


async def _place(services: Services, partition: Partition, timestamp: int, pace: Pace) -> _Place:
    log = partition.log
    match timestamp:
        case -1:
            end = partition.last_stable_offset
            return _Place(end, -1, partition.leader.leader_epoch)
        case -2 | -4:
            epoch = next((epoch for epoch, _ in log.epochs.entries), partition.leader.leader_epoch)
            return _Place(log.start_offset, -1, epoch)
        case -5 | -6:
            # There is no second tier.
            return _NOWHERE
        case -3:
            timestamp = log.max_timestamp
            if timestamp < 0:
                return _NOWHERE
    header = log.find_timestamp(timestamp, upper_bound=partition.high_watermark)
    # The log may begin inside the batch.
    start = log.start_offset
    batch = None if header is None else log.locate(max(header.base_offset, start), max_bytes=header.size)
    if header is None or batch is None:
        return _NOWHERE
    with batch:
        # Decompressed it may be large, and walking through its records may take long.
        place = await services.pacing.in_thread(_record_at, batch, header, timestamp, start)
    await pace.spend(_LOOKUP_ITEMS)
    return place


def _record_at(batch: FileRange, header: BatchHeader, timestamp: int, start_offset: int) -> _Place:
    """The first record of a batch at or after a time."""
    if not batch.is_ready:
        batch.warm()
    for record in iterate(memoryview(batch.read())[: header.size]):
        if record.timestamp >= timestamp and record.offset >= start_offset:
            return _Place(record.offset, record.timestamp, header.leader_epoch)
    return _NOWHERE


@router.handles(OffsetForLeaderEpochRequest, versions=(2, 4))
async def offset_for_leader_epoch(
    services: Services, call: Call, request: OffsetForLeaderEpochRequest
) -> Message | Written:
    pace = services.pacing.pace(call)
    topics: dict[str, dict[int, EpochEndOffset]] = {}
    for topic in request.topics:
        partitions = topics.setdefault(topic.topic, {})
        for asked in topic.partitions:
            if asked.partition not in partitions:
                partitions[asked.partition] = _epoch_end(services, topic.topic, asked)
            await pace.spend()
    return await pace.reply(
        OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(topic=name, partitions=list(partitions.values()))
                for name, partitions in topics.items()
            ]
        )
    )


def _epoch_end(services: Services, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    found = EpochEndOffset(partition=asked.partition)
    partition = services.partitions.get(topic, asked.partition)
    code = partition if isinstance(partition, ErrorCode) else epoch_error(partition, asked.current_leader_epoch)
    if code:
        found.error_code = code
    else:
        assert isinstance(partition, Partition)
        epochs = partition.log.epochs
        found.leader_epoch, found.end_offset = epochs.end_offset(asked.leader_epoch, partition.log.end_offset)
    return found
