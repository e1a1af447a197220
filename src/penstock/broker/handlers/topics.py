"""CreateTopics 2 to 7, DeleteTopics 1 to 6, CreatePartitions 0 to 3, DeleteRecords 0 to 2."""

from collections import Counter
from typing import TYPE_CHECKING

from penstock.broker.call import Call
from penstock.broker.config.described import DescribedConfig, describe_topic_config, topic_config_names
from penstock.broker.config.typed import TopicConfig
from penstock.broker.partition import Partition
from penstock.broker.router import Router
from penstock.machines.decisions import Refused, refuse
from penstock.machines.topic_names import INTERNAL
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import ZERO_UUID, Message
from penstock.protocol.schemas.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from penstock.storage.errors import StorageError

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

router = Router()
UP_TO_HIGH_WATERMARK = -1


@router.handles(CreateTopicsRequest, versions=(2, 7))
async def create_topics(broker: "Broker", call: Call, request: CreateTopicsRequest) -> Message:
    named = Counter(topic.name for topic in request.topics)
    results = []
    for name, times in named.items():
        topic = next(topic for topic in request.topics if topic.name == name)
        if times > 1:
            refused = Refused(ErrorCode.INVALID_REQUEST, f"{name!r} is named {times} times in one request")
            results.append(_refused_topic(name, refused))
        else:
            results.append(await _create(broker, topic, validate_only=request.validate_only))
    return CreateTopicsResponse(topics=results)


async def _create(broker: "Broker", topic: CreatableTopic, *, validate_only: bool) -> CreatableTopicResult:
    topic_id = broker.draw_topic_id()
    try:
        _refuse_internal(topic.name)
        created = await broker.cluster.change(
            lambda controller: controller.create_topic(
                topic.name,
                topic_id=topic_id,
                defaults=broker.topic_defaults,
                partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                assignment=[(item.partition_index, item.broker_ids) for item in topic.assignments],
                configs={config.name: config.value for config in topic.configs},
                validate_only=validate_only,
            )
        )
    except Refused as refused:
        return _refused_topic(topic.name, refused)
    return CreatableTopicResult(
        name=created.name,
        topic_id=ZERO_UUID if validate_only else created.topic_id,
        num_partitions=created.partitions,
        replication_factor=created.replication_factor,
        # Never null: Java's admin client fails on that.
        configs=[
            CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                read_only=config.read_only,
                config_source=config.source,
                is_sensitive=config.sensitive,
            )
            for config in _configs(broker, created.configs)
        ],
    )


def _refuse_internal(name: str | None) -> None:
    if name in INTERNAL:
        refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal: the cluster itself makes it when it is needed")


def _configs(broker: "Broker", overrides: dict[str, str]) -> list[DescribedConfig]:
    config = TopicConfig(overrides, broker.config)
    return [describe_topic_config(config, broker.config, name) for name in topic_config_names()]


def _refused_topic(name: str, refused: Refused) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=refused.code, error_message=refused.message, configs=())


@router.handles(DeleteTopicsRequest, versions=(1, 6))
async def delete_topics(broker: "Broker", call: Call, request: DeleteTopicsRequest) -> Message:
    if call.version >= 6:
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [(name, ZERO_UUID) for name in request.topic_names]
    results = [await _delete(broker, name, topic_id) for name, topic_id in wanted]
    return DeleteTopicsResponse(responses=results)


async def _delete(broker: "Broker", name: str | None, topic_id: bytes) -> DeletableTopicResult:
    if not broker.config.boolean("delete.topic.enable"):
        message = "deleting topics is switched off (delete.topic.enable)"
        code = ErrorCode.TOPIC_DELETION_DISABLED
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
    try:
        known = broker.image.topics_by_id.get(topic_id)
        _refuse_internal(name if known is None else known.name)
        deleted = await broker.cluster.change(lambda controller: controller.delete_topic(name, topic_id=topic_id))
    except Refused as refused:
        return DeletableTopicResult(
            name=name, topic_id=topic_id, error_code=refused.code, error_message=refused.message
        )
    return DeletableTopicResult(name=deleted.name, topic_id=deleted.topic_id)


@router.handles(CreatePartitionsRequest, versions=(0, 3))
async def create_partitions(broker: "Broker", call: Call, request: CreatePartitionsRequest) -> Message:
    results = [await _add_partitions(broker, topic, validate_only=request.validate_only) for topic in request.topics]
    return CreatePartitionsResponse(results=results)


async def _add_partitions(
    broker: "Broker", topic: CreatePartitionsTopic, *, validate_only: bool
) -> CreatePartitionsTopicResult:
    assignment = [item.broker_ids for item in topic.assignments] if topic.assignments is not None else None
    try:
        _refuse_internal(topic.name)
        await broker.cluster.change(
            lambda controller: controller.create_partitions(
                topic.name, topic.count, assignment=assignment, validate_only=validate_only
            )
        )
    except Refused as refused:
        return CreatePartitionsTopicResult(name=topic.name, error_code=refused.code, error_message=refused.message)
    return CreatePartitionsTopicResult(name=topic.name)


@router.handles(DeleteRecordsRequest, versions=(0, 2))
def delete_records(broker: "Broker", call: Call, request: DeleteRecordsRequest) -> Message:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _delete_before(
                        broker.partitions.get(topic.name, asked.partition_index), asked.partition_index, asked.offset
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _delete_before(partition: Partition | ErrorCode, index: int, offset: int) -> DeleteRecordsPartitionResult:
    if isinstance(partition, ErrorCode):
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=partition)
    end = partition.high_watermark
    target = end if offset == UP_TO_HIGH_WATERMARK else offset
    code = ErrorCode.NONE
    if not partition.settings.deletes_old:
        code = ErrorCode.POLICY_VIOLATION
    elif not 0 <= target <= end:
        code = ErrorCode.OFFSET_OUT_OF_RANGE
    else:
        try:
            partition.delete_before(target)
        except (OSError, StorageError):
            code = ErrorCode.KAFKA_STORAGE_ERROR
    low = partition.log.start_offset if code == ErrorCode.NONE else -1
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low, error_code=code)
