"""Handlers of DescribeConfigs 1 to 4, AlterConfigs 0 to 2 and IncrementalAlterConfigs 0 to 1 show and change configs.

DescribeConfigs adds synonyms in version 1, and documentation and types in 3 (KIP-569). IncrementalAlterConfigs changes
single values (KIP-339), where AlterConfigs replaces them all. The last versions of each are flexible (KIP-482).
"""

from asyncio import Future
from collections import Counter
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any, Final

from penstock.broker.cluster.settling import Settling
from penstock.broker.config.described import (
    DescribedConfig,
    broker_config_names,
    describe_broker_config,
    describe_default,
    describe_topic_config,
    topic_config_names,
)
from penstock.broker.config.typed import TopicConfig
from penstock.broker.network.call import Call
from penstock.broker.pacing import Pace, Room, Written
from penstock.broker.router import Router
from penstock.broker.services import Services
from penstock.machines import elections
from penstock.machines.cluster import MIN_ISR, TopicImage
from penstock.machines.cluster_records import ConfigResource
from penstock.machines.config_changes import ConfigChange
from penstock.machines.controller import DEFAULT, Controller, default_factor
from penstock.machines.decisions import ControllerDecision, Refused, refuse
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterConfigsResponseAlterConfigsResourceResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseAlterConfigsResourceResponse,
)

router = Router()
TOPIC: Final = 2
BROKER: Final = 4
# Describing a config takes as long as this many simpler things.
_CONFIG_ITEMS: Final = 3
# Bytes that a config, a synonym and a resource take in a reply beside their texts.
_CONFIG_BYTES: Final = 16
_RESOURCE_BYTES: Final = 256


@router.handles(DescribeConfigsRequest, versions=(1, 4))
async def describe_configs(services: Services, call: Call, request: DescribeConfigsRequest) -> Message | Written:
    pace = services.pacing.pace(call)
    room = Room(services.pacing.max_reply_bytes)
    results = []
    for (kind, name), keys in (await _each_once(request.resources, pace)).items():
        result = DescribeConfigsResult(error_message=None, resource_type=kind, resource_name=name)
        try:
            result.configs = await _describe(services, result, keys, request, pace)
        except Refused as refused:
            result.error_code, result.error_message = refused.code, refused.message
        size = _RESOURCE_BYTES + len(name) + sum(map(_size, result.configs))
        if not room.take(size):
            result.configs, result.error_code = (), ErrorCode.POLICY_VIOLATION
            result.error_message = "the reply would be larger than penstock.reply.max.bytes; ask about fewer resources"
        results.append(result)
        await pace.spend()
    return await pace.reply(DescribeConfigsResponse(results=results))


async def _each_once(
    resources: Sequence[DescribeConfigsResource], pace: Pace
) -> dict[tuple[int, str], Counter[str] | None]:
    """A resource that is named twice is answered once, with all configs that were asked for; None stands for all."""
    asked: dict[tuple[int, str], Counter[str] | None] = {}
    for resource in resources:
        # No names, as null or as an empty list, means all of them.
        keys = await pace.count(resource.configuration_keys) if resource.configuration_keys else None
        named = asked.setdefault((resource.resource_type, resource.resource_name), keys)
        if keys is None:
            asked[resource.resource_type, resource.resource_name] = None
        elif named is not None:
            named |= keys
        await pace.spend()
    return asked


async def _describe(
    services: Services,
    result: DescribeConfigsResult,
    keys: Container[str] | None,
    request: DescribeConfigsRequest,
    pace: Pace,
) -> list[DescribeConfigsResourceResult]:
    names, describe = _describer(services, result.resource_type, result.resource_name)
    described = []
    for name in names:
        if keys is None or name in keys:
            described.append(_described(describe(name), request))
            await pace.spend(_CONFIG_ITEMS)
    return described


def _size(config: DescribeConfigsResourceResult) -> int:
    """About the bytes that a config takes in a reply."""
    synonyms = sum(_CONFIG_BYTES + len(synonym.name) + len(synonym.value or "") for synonym in config.synonyms)
    return _CONFIG_BYTES + len(config.name) + len(config.value or "") + len(config.documentation or "") + synonyms


def _describer(
    services: Services, resource_type: int, resource_name: str
) -> tuple[Sequence[str], Callable[[str], DescribedConfig]]:
    """The configs that a resource has, and how to describe one."""
    if resource_type == TOPIC:
        topic = services.image.topics.get(resource_name)
        if topic is None:
            code = services.check_topic_name(resource_name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refuse(code, f"there is no topic {resource_name!r}")
        return topic_config_names(), partial(
            _describe_of_topic, services, topic, TopicConfig(topic.configs, services.config)
        )
    if resource_type != BROKER:
        refuse(
            ErrorCode.INVALID_REQUEST,
            f"resources of type {resource_type} have no configs here; topics are 2, brokers are 4",
        )
    if resource_name not in ("", str(services.node_id)):
        refuse(ErrorCode.INVALID_REQUEST, f"this is broker {services.node_id}; ask broker {resource_name!r} itself")
    names = broker_config_names(services.config)
    if resource_name == "":
        # Without a broker's name the reply has only what was set for all brokers.
        names = [name for name in names if name in services.config.cluster]
    return names, partial(_describe_of_broker, services)


def _describe_of_topic(services: Services, topic: TopicImage, config: TopicConfig, name: str) -> DescribedConfig:
    described = describe_topic_config(config, services.config, name)
    if name == MIN_ISR and services.image.min_isr(topic) is None:
        return describe_default(described, elections.needed(None, len(topic.partitions[0].replicas)))
    return described


def _describe_of_broker(services: Services, name: str) -> DescribedConfig:
    described = describe_broker_config(services.config, name)
    if name == "default.replication.factor" and described.value is None:
        factor = services.config.creation_defaults.replication_factor
        return describe_default(described, default_factor(services.image) if factor == DEFAULT else factor)
    return described


def _described(config: DescribedConfig, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = config.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.read_only,
        config_source=config.source,
        is_sensitive=config.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in synonyms
        ],
        config_type=config.type,
        documentation=config.documentation if request.include_documentation else None,
    )


def _refuse_replacing(request: AlterConfigsRequest, code: ErrorCode, message: str) -> Message:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResponseAlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


@router.handles(AlterConfigsRequest, versions=(0, 2), forwarded=_refuse_replacing)
async def alter_configs(services: Services, call: Call, request: AlterConfigsRequest) -> Message | Written:
    """Replaces all configs of a resource, as old clients do."""
    pace = services.pacing.pace(call, to_the_end=True)
    named = await pace.count((resource.resource_type, resource.resource_name) for resource in request.resources)
    resources: list[tuple[int, str]] = []
    asked: Settling[Any] = Settling()
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        if times := named.pop((kind, name), 0):
            values = [(config.name, config.value) for config in resource.configs]
            decide = partial(_replace, values=values, validate_only=request.validate_only)
            resources.append((kind, name))
            await asked.add(_alter(services, kind, name, times, decide))
        await pace.spend()
    results = []
    for (kind, name), refused in zip(resources, await asked.finish(), strict=True):
        result = AlterConfigsResponseAlterConfigsResourceResponse(
            error_message=None, resource_type=kind, resource_name=name
        )
        if refused is not None:
            result.error_code, result.error_message = refused.code, refused.message
        results.append(result)
        await pace.spend()
    return await pace.reply(AlterConfigsResponse(responses=results))


def _refuse_changing(request: IncrementalAlterConfigsRequest, code: ErrorCode, message: str) -> Message:
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResponseAlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


@router.handles(IncrementalAlterConfigsRequest, versions=(0, 1), forwarded=_refuse_changing)
async def incremental_alter_configs(
    services: Services, call: Call, request: IncrementalAlterConfigsRequest
) -> Message | Written:
    pace = services.pacing.pace(call, to_the_end=True)
    named = await pace.count((resource.resource_type, resource.resource_name) for resource in request.resources)
    resources: list[tuple[int, str]] = []
    asked: Settling[Any] = Settling()
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        if times := named.pop((kind, name), 0):
            changes = [ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs]
            decide = partial(_change, changes=changes, validate_only=request.validate_only)
            resources.append((kind, name))
            await asked.add(_alter(services, kind, name, times, decide))
        await pace.spend()
    results = []
    for (kind, name), refused in zip(resources, await asked.finish(), strict=True):
        result = IncrementalAlterConfigsResponseAlterConfigsResourceResponse(
            error_message=None, resource_type=kind, resource_name=name
        )
        if refused is not None:
            result.error_code, result.error_message = refused.code, refused.message
        results.append(result)
        await pace.spend()
    return await pace.reply(IncrementalAlterConfigsResponse(responses=results))


def _replace(
    controller: Controller,
    kind: ConfigResource,
    name: str,
    *,
    values: list[tuple[str, str | None]],
    validate_only: bool,
) -> ControllerDecision[None]:
    return controller.replace_configs(kind, name, values, validate_only=validate_only)


def _change(
    controller: Controller, kind: ConfigResource, name: str, *, changes: list[ConfigChange], validate_only: bool
) -> ControllerDecision[None]:
    return controller.change_configs(kind, name, changes, validate_only=validate_only)


def _alter(
    services: Services,
    resource_type: int,
    name: str,
    times: int,
    decide: Callable[[Controller, ConfigResource, str], ControllerDecision[Any]],
) -> Future[Any] | Refused:
    if times > 1:
        message = f"{name!r} is named {times} times in one request, and may be named once"
        return Refused(ErrorCode.INVALID_REQUEST, message)
    kind: ConfigResource
    if resource_type == TOPIC:
        kind = "topic"
    elif resource_type == BROKER:
        kind = "broker" if name else "cluster"
    else:
        return Refused(ErrorCode.INVALID_REQUEST, f"resources of type {resource_type} have no configs here")
    return services.controlling.submit(lambda controller: decide(controller, kind, name))
