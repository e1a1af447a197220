"""The handler of DescribeLogDirs 1 to 4 reports what lies in the data folder, and how much.

Version 3 adds an error for the whole, and 4 the size of the disk (KIP-827). A field of our own asks how much of
compacted topics is clean.
"""

from collections.abc import Iterable

from penstock.broker.network.call import Call
from penstock.broker.pacing import Written
from penstock.broker.partitions.partition import Partition
from penstock.broker.router import Router
from penstock.broker.services import Services
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

router = Router()


@router.handles(DescribeLogDirsRequest, versions=(1, 4))
async def describe_log_dirs(services: Services, call: Call, request: DescribeLogDirsRequest) -> Message | Written:
    pace = services.pacing.pace(call)
    # A partition that is named twice is answered once.
    topics: dict[str, dict[int, DescribeLogDirsPartition]] = {}
    for partition in _asked(services, request):
        if partition is None or partition.log.failure is not None:
            # Its log is offline: as in Kafka, it is not among those that lie there.
            continue
        if partition.index not in topics.setdefault(partition.topic, {}):
            topics[partition.topic][partition.index] = _described(services, partition, compaction=request.compaction)
        await pace.spend()
    code = ErrorCode.NONE
    try:
        free, total = services.disk.measure()
    except OSError:
        # The file system does not answer. Clients know -1 as unknown.
        free = total = -1
        code = ErrorCode.KAFKA_STORAGE_ERROR
    result = DescribeLogDirsResult(
        error_code=code,
        log_dir=services.config.log_dirs[0],
        topics=[DescribeLogDirsTopic(name=name, partitions=list(found.values())) for name, found in topics.items()],
        total_bytes=total,
        usable_bytes=free,
    )
    return await pace.reply(DescribeLogDirsResponse(results=[result]))


def _asked(services: Services, request: DescribeLogDirsRequest) -> Iterable[Partition | None]:
    if request.topics is None:
        return services.partitions.replicas()
    return (services.partitions.replica(topic.topic, index) for topic in request.topics for index in topic.partitions)


def _described(services: Services, partition: Partition, *, compaction: bool) -> DescribeLogDirsPartition:
    described = DescribeLogDirsPartition(
        partition_index=partition.index, partition_size=partition.log.size, offset_lag=0
    )
    if compaction and (found := partition.dirtiness(services.now_ms())) is not None:
        described.clean_bytes, described.dirty_bytes = found.clean_bytes, found.dirty_bytes
    return described
