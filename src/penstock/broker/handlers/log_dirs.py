"""DescribeLogDirs 1 to 4: what lies in the data folder, and how much; of compacted topics, for those who ask by a field
of our own, also how much of that is clean."""

from typing import TYPE_CHECKING

from penstock.broker.call import Call
from penstock.broker.partition import Partition
from penstock.broker.router import Router
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

router = Router()


@router.handles(DescribeLogDirsRequest, versions=(1, 4))
def describe_log_dirs(broker: "Broker", call: Call, request: DescribeLogDirsRequest) -> Message:
    if request.topics is None:
        partitions = broker.partitions.all()
    else:
        asked = [broker.partitions.get(topic.topic, index) for topic in request.topics for index in topic.partitions]
        partitions = [partition for partition in asked if isinstance(partition, Partition)]
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in partitions:
        told = DescribeLogDirsPartition(
            partition_index=partition.index, partition_size=partition.log.size, offset_lag=0
        )
        if request.compaction and (found := partition.dirtiness(broker.now_ms())) is not None:
            told.clean_bytes, told.dirty_bytes = found.clean_bytes, found.dirty_bytes
        topics.setdefault(partition.topic, []).append(told)
    free, total = broker.disk_bytes()
    result = DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=broker.data_path,
        topics=[DescribeLogDirsTopic(name=name, partitions=found) for name, found in topics.items()],
        total_bytes=total,
        usable_bytes=free,
    )
    return DescribeLogDirsResponse(results=[result])
