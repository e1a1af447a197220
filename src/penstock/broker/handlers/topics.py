"""Handlers of CreateTopics 2 to 7, DeleteTopics 1 to 6, CreatePartitions 0 to 3 and DeleteRecords 0 to 2 change topics.

CreateTopics takes the broker's defaults from version 4 on (KIP-464), and reports configs in 5 (KIP-525) and the topic's
id in 7 (KIP-516). DeleteTopics says why in 5 (KIP-599) and names topics by id in 6 (KIP-516).
"""

from asyncio import Future
from typing import Final

from penstock.broker.cluster.settling import Settling
from penstock.broker.config.described import (
    DescribedConfig,
    describe_default,
    describe_topic_config,
    topic_config_names,
)
from penstock.broker.config.typed import TopicConfig
from penstock.broker.network.call import Call
from penstock.broker.pacing import Room, Written
from penstock.broker.partitions.deletions import Deletions
from penstock.broker.partitions.partition import Partition
from penstock.broker.router import Router
from penstock.broker.services import Services
from penstock.machines import elections
from penstock.machines.cluster import MIN_ISR
from penstock.machines.controller import DEFAULT, MAX_NEW_PARTITIONS, Controller, CreatedTopic, DeletedTopic
from penstock.machines.decisions import ControllerDecision, Refused
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

router = Router()
UP_TO_HIGH_WATERMARK: Final = -1
# Bytes that a created topic and its configs take in a reply, estimated from above.
_CREATED_BYTES: Final = 4096


def _refuse_creation(request: CreateTopicsRequest, code: ErrorCode, message: str) -> Message:
    return CreateTopicsResponse(topics=[_refused_topic(topic.name, Refused(code, message)) for topic in request.topics])


@router.handles(CreateTopicsRequest, versions=(2, 7), forwarded=_refuse_creation)
async def create_topics(services: Services, call: Call, request: CreateTopicsRequest) -> Message | Written:
    pace = services.pacing.pace(call, to_the_end=True)
    named = await pace.count(topic.name for topic in request.topics)
    partitions = await pace.count(_new_partitions(services, topic) for topic in request.topics)
    refusal = _refuse_too_many(sum(count * times for count, times in partitions.items()))
    names: list[str] = []
    asked: Settling[CreatedTopic] = Settling()
    for topic in request.topics:
        times = named.pop(topic.name, 0)
        if times:
            names.append(topic.name)
            repeated = _refuse_repeated(topic.name, times)
            await asked.add(repeated or refusal or _create(services, call, topic, validate_only=request.validate_only))
        await pace.spend()
    room = Room(services.pacing.max_reply_bytes)
    results = []
    for name, created in zip(names, await asked.finish(), strict=True):
        if isinstance(created, Refused):
            results.append(_refused_topic(name, created))
        else:
            # Without room the topic exists all the same; a client can ask for its configs.
            has_room = room.take(_CREATED_BYTES)
            results.append(_created(services, created, validate_only=request.validate_only, has_room=has_room))
        await pace.spend()
    return await pace.reply(CreateTopicsResponse(topics=results))


def _refuse_repeated(name: str, times: int) -> Refused | None:
    if times == 1:
        return None
    return Refused(ErrorCode.INVALID_REQUEST, f"{name!r} is named {times} times in one request")


def _new_partitions(services: Services, topic: CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return (
        services.config.creation_defaults.partitions
        if topic.num_partitions == DEFAULT
        else max(0, topic.num_partitions)
    )


def _refuse_too_many(partitions: int) -> Refused | None:
    """Refuse a request that makes too many partitions in all, as Kafka does."""
    if partitions <= MAX_NEW_PARTITIONS:
        return None
    message = f"{partitions} new partitions are too many for one request; {MAX_NEW_PARTITIONS} are not"
    return Refused(ErrorCode.POLICY_VIOLATION, message)


def _create(
    services: Services, call: Call, topic: CreatableTopic, *, validate_only: bool
) -> Future[CreatedTopic] | Refused:
    topic_id = services.cluster.draw_topic_id()

    def decide(controller: Controller) -> ControllerDecision[CreatedTopic]:
        return controller.create_topic(
            topic.name,
            topic_id=topic_id,
            defaults=services.config.creation_defaults,
            partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
            assignment=[(item.partition_index, item.broker_ids) for item in topic.assignments],
            configs={config.name: config.value for config in topic.configs},
            validate_only=validate_only,
        )

    # Brokers make the internal topics when they are needed.
    refusal = None if call.connection.broker is not None else _refuse_internal(topic.name)
    return refusal or services.controlling.submit(decide)


def _created(services: Services, created: CreatedTopic, *, validate_only: bool, has_room: bool) -> CreatableTopicResult:
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
            for config in (_configs(services, created) if has_room else ())
        ],
    )


def _refuse_internal(name: str | None) -> Refused | None:
    if name not in INTERNAL:
        return None
    message = f"{name} is internal: the cluster itself makes it when it is needed"
    return Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def _configs(services: Services, created: CreatedTopic) -> list[DescribedConfig]:
    config = TopicConfig(created.configs, services.config)
    described = [describe_topic_config(config, services.config, name) for name in topic_config_names()]
    if MIN_ISR in created.configs or MIN_ISR in services.image.cluster_configs:
        return described
    min_isr = elections.needed(None, created.replication_factor)
    return [describe_default(each, min_isr) if each.name == MIN_ISR else each for each in described]


def _refused_topic(name: str, refused: Refused) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=refused.code, error_message=refused.message, configs=())


def _refuse_deletion(request: DeleteTopicsRequest, code: ErrorCode, message: str) -> Message:
    named = [(topic.name, topic.topic_id) for topic in request.topics]
    named += [(name, ZERO_UUID) for name in request.topic_names]
    return DeleteTopicsResponse(responses=[_refused_deletion(*each, Refused(code, message)) for each in named])


@router.handles(DeleteTopicsRequest, versions=(1, 6), forwarded=_refuse_deletion)
async def delete_topics(services: Services, call: Call, request: DeleteTopicsRequest) -> Message | Written:
    pace = services.pacing.pace(call, to_the_end=True)
    if call.version >= 6:
        named = await pace.count((topic.name, topic.topic_id) for topic in request.topics)
    else:
        named = await pace.count((name, ZERO_UUID) for name in request.topic_names)
    asked: Settling[DeletedTopic] = Settling()
    for (name, topic_id), times in named.items():
        repeated = _refuse_repeated(name if name is not None else topic_id.hex(), times)
        await asked.add(repeated or _delete(services, name, topic_id))
        await pace.spend()
    results = []
    for (name, topic_id), deleted in zip(named, await asked.finish(), strict=True):
        if isinstance(deleted, Refused):
            results.append(_refused_deletion(name, topic_id, deleted))
        else:
            results.append(DeletableTopicResult(name=deleted.name, topic_id=deleted.topic_id))
        await pace.spend()
    return await pace.reply(DeleteTopicsResponse(responses=results))


def _delete(services: Services, name: str | None, topic_id: bytes) -> Future[DeletedTopic] | Refused:
    if not services.config.boolean("delete.topic.enable"):
        message = "deleting topics is switched off (delete.topic.enable)"
        return Refused(ErrorCode.TOPIC_DELETION_DISABLED, message)
    known = services.image.topics_by_id.get(topic_id)
    return _refuse_internal(name if known is None else known.name) or services.controlling.submit(
        lambda controller: controller.delete_topic(name, topic_id=topic_id)
    )


def _refused_deletion(name: str | None, topic_id: bytes, refused: Refused) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=refused.code, error_message=refused.message)


def _refuse_growth(request: CreatePartitionsRequest, code: ErrorCode, message: str) -> Message:
    refused = Refused(code, message)
    return CreatePartitionsResponse(results=[_refused_partitions(topic.name, refused) for topic in request.topics])


@router.handles(CreatePartitionsRequest, versions=(0, 3), forwarded=_refuse_growth)
async def create_partitions(services: Services, call: Call, request: CreatePartitionsRequest) -> Message | Written:
    pace = services.pacing.pace(call, to_the_end=True)
    named = await pace.count(topic.name for topic in request.topics)
    partitions = await pace.count(_added_partitions(services, topic) for topic in request.topics)
    refusal = _refuse_too_many(sum(count * times for count, times in partitions.items()))
    names: list[str] = []
    asked: Settling[None] = Settling()
    for topic in request.topics:
        times = named.pop(topic.name, 0)
        if times:
            names.append(topic.name)
            repeated = _refuse_repeated(topic.name, times)
            await asked.add(repeated or refusal or _add_partitions(services, topic, request.validate_only))
        await pace.spend()
    results = []
    for name, refused in zip(names, await asked.finish(), strict=True):
        made = CreatePartitionsTopicResult(name=name)
        results.append(made if refused is None else _refused_partitions(name, refused))
        await pace.spend()
    return await pace.reply(CreatePartitionsResponse(results=results))


def _added_partitions(services: Services, topic: CreatePartitionsTopic) -> int:
    known = services.image.topics.get(topic.name)
    return 0 if known is None else max(0, topic.count - len(known.partitions))


def _refused_partitions(name: str, refused: Refused) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=refused.code, error_message=refused.message)


def _add_partitions(services: Services, topic: CreatePartitionsTopic, validate_only: bool) -> Future[None] | Refused:
    assignment = [item.broker_ids for item in topic.assignments] if topic.assignments is not None else None
    return _refuse_internal(topic.name) or services.controlling.submit(
        lambda controller: controller.create_partitions(
            topic.name, topic.count, assignment=assignment, validate_only=validate_only
        )
    )


@router.handles(DeleteRecordsRequest, versions=(0, 2))
async def delete_records(services: Services, call: Call, request: DeleteRecordsRequest) -> Message | Written:
    pace = services.pacing.pace(call, to_the_end=True)
    # Of a partition that is named twice the last offset counts, as in Kafka.
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        offsets = wanted.setdefault(topic.name, {})
        for asked in topic.partitions:
            offsets[asked.partition_index] = asked.offset
            await pace.spend()
        await pace.spend()
    topics = []
    deletions = Deletions(services.loop)
    for name, offsets in wanted.items():
        partitions = []
        for index, offset in offsets.items():
            partitions.append(_delete_before(services.partitions.get(name, index), index, offset, deletions))
            await pace.spend()
        topics.append(DeleteRecordsTopicResult(name=name, partitions=partitions))
    await deletions.finish(call, services.fetch_room.deadlines, request.timeout_ms)
    return await pace.reply(DeleteRecordsResponse(topics=topics))


def _delete_before(
    partition: Partition | ErrorCode, index: int, offset: int, deletions: Deletions
) -> DeleteRecordsPartitionResult:
    """Delete records here. What the followers have yet to delete is added to the deletions that are waited for."""
    result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1)
    if isinstance(partition, ErrorCode):
        result.error_code = partition
        return result
    end = partition.high_watermark
    target = end if offset == UP_TO_HIGH_WATERMARK else offset
    if not partition.settings.deletes_old:
        result.error_code = ErrorCode.POLICY_VIOLATION
    elif not 0 <= target <= end:
        result.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    else:
        try:
            partition.delete_before(target)
            deletions.add(partition, target, result)
        except (OSError, StorageError):
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return result
