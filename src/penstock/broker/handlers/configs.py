"""DescribeConfigs 1 to 4, AlterConfigs 0 to 2, IncrementalAlterConfigs 0 to 1: of topics and of brokers."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.call import Call
from penstock.broker.config.described import (
    DescribedConfig,
    broker_config_names,
    describe_broker_config,
    describe_topic_config,
    topic_config_names,
)
from penstock.broker.config.typed import TopicConfig
from penstock.broker.config.values import ConfigError
from penstock.broker.router import Router
from penstock.machines.cluster_records import ConfigResource
from penstock.machines.config_changes import ConfigChange
from penstock.machines.controller import Controller
from penstock.machines.decisions import Decision, Refused, refuse
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

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

router = Router()
TOPIC: Final = 2
BROKER: Final = 4


@router.handles(DescribeConfigsRequest, versions=(1, 4))
def describe_configs(broker: "Broker", call: Call, request: DescribeConfigsRequest) -> Message:
    return DescribeConfigsResponse(results=[_describe(broker, resource, request) for resource in request.resources])


def _describe(
    broker: "Broker", resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        names, describe = _describer(broker, resource)
    except Refused as refused:
        result.error_code, result.error_message = refused.code, refused.message
        return result
    # No names asked for, as null or as an empty list, means all of them.
    asked = [name for name in resource.configuration_keys if name in names] if resource.configuration_keys else names
    result.configs = [_described(describe(name), request) for name in asked]
    return result


def _describer(
    broker: "Broker", resource: DescribeConfigsResource
) -> tuple[Sequence[str], Callable[[str], DescribedConfig]]:
    """The configs that a resource has, and how to describe one."""
    if resource.resource_type == TOPIC:
        topic = broker.image.topics.get(resource.resource_name)
        if topic is None:
            code = broker.check_topic_name(resource.resource_name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refuse(code, f"there is no topic {resource.resource_name!r}")
        config = TopicConfig(topic.configs, broker.config)
        return topic_config_names(), lambda name: describe_topic_config(config, broker.config, name)
    if resource.resource_type != BROKER:
        refuse(
            ErrorCode.INVALID_REQUEST,
            f"resources of type {resource.resource_type} have no configs here; topics are 2, brokers are 4",
        )
    if resource.resource_name not in ("", str(broker.node_id)):
        refuse(
            ErrorCode.INVALID_REQUEST, f"this is broker {broker.node_id}; ask broker {resource.resource_name!r} itself"
        )
    names = broker_config_names(broker.config)
    if resource.resource_name == "":
        # Without a broker's name only what was set for all brokers is told.
        names = [name for name in names if name in broker.config.cluster]
    return names, lambda name: describe_broker_config(broker.config, name)


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


@router.handles(AlterConfigsRequest, versions=(0, 2))
async def alter_configs(broker: "Broker", call: Call, request: AlterConfigsRequest) -> Message:
    """Replaces all configs of a resource, as old clients do."""
    results = []
    for resource in request.resources:
        values = [(config.name, config.value) for config in resource.configs]
        code, message = await _alter(
            broker,
            resource.resource_type,
            resource.resource_name,
            partial(_replace, values=values, validate_only=request.validate_only),
        )
        results.append(
            AlterConfigsResponseAlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return AlterConfigsResponse(responses=results)


@router.handles(IncrementalAlterConfigsRequest, versions=(0, 1))
async def incremental_alter_configs(broker: "Broker", call: Call, request: IncrementalAlterConfigsRequest) -> Message:
    results = []
    for resource in request.resources:
        changes = [ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs]
        code, message = await _alter(
            broker,
            resource.resource_type,
            resource.resource_name,
            partial(_change, changes=changes, validate_only=request.validate_only),
        )
        results.append(
            IncrementalAlterConfigsResponseAlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return IncrementalAlterConfigsResponse(responses=results)


def _replace(
    controller: Controller,
    kind: ConfigResource,
    name: str,
    *,
    values: list[tuple[str, str | None]],
    validate_only: bool,
) -> Decision[None]:
    return controller.replace_configs(kind, name, values, validate_only=validate_only)


def _change(
    controller: Controller, kind: ConfigResource, name: str, *, changes: list[ConfigChange], validate_only: bool
) -> Decision[None]:
    return controller.change_configs(kind, name, changes, validate_only=validate_only)


async def _alter(
    broker: "Broker",
    resource_type: int,
    name: str,
    decide: Callable[[Controller, ConfigResource, str], Decision[Any]],
) -> tuple[ErrorCode, str | None]:
    kind: ConfigResource
    if resource_type == TOPIC:
        kind = "topic"
    elif resource_type == BROKER:
        kind = "broker" if name else "cluster"
    else:
        return ErrorCode.INVALID_REQUEST, f"resources of type {resource_type} have no configs here"
    try:
        await broker.cluster.change(lambda controller: decide(controller, kind, name))
    except Refused as refused:
        return refused.code, refused.message
    except ConfigError as error:
        return ErrorCode.INVALID_CONFIG, str(error)
    return ErrorCode.NONE, None
