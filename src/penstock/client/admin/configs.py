"""These functions read the configs of topics and brokers, with the sources of their values, and change single ones."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from penstock.client.cluster.cluster import Cluster, Route, Terms
from penstock.client.errors import ClientError, outcome, topic_outcome, unanswered
from penstock.protocol.schema import Message, Versions
from penstock.protocol.schemas.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

V = TypeVar("V")


class ResourceType(IntEnum):
    """The kinds of resources that have configs; the numbers are Kafka's."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(NamedTuple):
    """A topic by its name, or a broker by its number; broker "" stands for the defaults of all brokers."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        kind = self.type.name.lower().replace("_", " ")
        return f"{kind} {self.name!r}" if self.name else f"all {kind}s"


class ConfigSource(IntEnum):
    """Where a config's value comes from; the numbers are Kafka's."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, value: object) -> "ConfigSource":
        return cls.UNKNOWN


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


@dataclass(slots=True, frozen=True)
class Config:
    """`synonyms` are the places its value is looked for in, in that order."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None


class Operation(IntEnum):
    """How a config changes; append and subtract are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    value: str | None
    operation: Operation = Operation.SET


async def describe_configs(
    cluster: Cluster,
    resources: Iterable[Resource],
    *,
    names: Sequence[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
    timeout_ms: int | None = None,
) -> dict[Resource, dict[str, Config] | ClientError]:
    """The configs of each resource by name: all of them, or those of `names`."""

    def request(resources: Sequence[Resource]) -> DescribeConfigsRequest:
        wanted = [
            DescribeConfigsResource(resource_type=each.type, resource_name=each.name, configuration_keys=names)
            for each in resources
        ]
        return DescribeConfigsRequest(resources=wanted, include_synonyms=synonyms, include_documentation=documentation)

    def read(told: DescribeConfigsResult) -> dict[str, Config]:
        return {config.name: config for config in map(_read_config, told.configs)}

    # Documentation came with version 3.
    terms = Terms(versions=Versions(3, 4) if documentation else None, timeout_ms=timeout_ms)
    return await _for_resources(cluster, resources, request, read, others=Route.ANY, terms=terms)


async def alter_configs(
    cluster: Cluster,
    changes: Mapping[Resource, Sequence[ConfigChange]],
    *,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> dict[Resource, ClientError | None]:
    """Change the named configs; the other configs of each resource stay as they are."""

    def request(resources: Sequence[Resource]) -> IncrementalAlterConfigsRequest:
        wanted = [
            IncrementalAlterConfigsRequestAlterConfigsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=[
                    IncrementalAlterConfigsRequestAlterableConfig(
                        name=change.name, config_operation=change.operation, value=change.value
                    )
                    for change in changes[resource]
                ],
            )
            for resource in resources
        ]
        return IncrementalAlterConfigsRequest(resources=wanted, validate_only=validate_only)

    terms = Terms(repeatable=False, timeout_ms=timeout_ms)
    return await _for_resources(cluster, changes, request, lambda _: None, others=Route.CONTROLLER, terms=terms)


async def _for_resources(
    cluster: Cluster,
    resources: Iterable[Resource],
    build: Callable[[Sequence[Resource]], Message],
    read: Callable[[Any], V],
    *,
    others: Route,
    terms: Terms,
) -> dict[Resource, V | ClientError]:
    """Ask each broker for its own configs, and `others` for all other resources."""
    wanted = list(dict.fromkeys(resources))
    groups: dict[Route | int, list[Resource]] = {}
    for resource in wanted:
        is_own = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name.isdecimal()
        groups.setdefault(int(resource.name) if is_own else others, []).append(resource)
    outcomes: dict[Resource, V | ClientError] = {}

    async def ask(to: Route | int, group: list[Resource]) -> None:
        try:
            outcomes.update(
                await cluster.request(
                    build(group), lambda response: _read_resources(response, group, read), to=to, terms=terms
                )
            )
        except ClientError as error:
            outcomes.update(dict.fromkeys(group, error))

    async with asyncio.TaskGroup() as tasks:
        for to, group in groups.items():
            tasks.create_task(ask(to, group))
    return await cluster.with_near_names({each: outcomes[each] for each in wanted})


def _read_resources(
    response: DescribeConfigsResponse | IncrementalAlterConfigsResponse,
    resources: Iterable[Resource],
    read: Callable[[Any], V],
) -> dict[Resource, V | ClientError]:
    listed = response.results if isinstance(response, DescribeConfigsResponse) else response.responses
    answers = {(told.resource_type, told.resource_name): told for told in listed}
    outcomes: dict[Resource, V | ClientError] = {}
    for each in resources:
        if (told := answers.get(each)) is None:
            outcomes[each] = unanswered(str(each))
        elif each.type is ResourceType.TOPIC:
            outcomes[each] = topic_outcome(each.name, told.error_code, told.error_message, read(told))
        else:
            outcomes[each] = outcome(told.error_code, str(each), told.error_message, read(told))
    return outcomes


def _read_config(told: DescribeConfigsResourceResult) -> Config:
    return Config(
        told.name,
        told.value,
        ConfigSource(told.config_source),
        told.read_only,
        told.is_sensitive,
        tuple(ConfigSynonym(each.name, each.value, ConfigSource(each.source)) for each in told.synonyms),
        told.documentation or None,
    )
