"""Refusals of every API that the broker offers."""

from typing import Any

import pytest

from penstock.broker.handlers import ROUTERS
from penstock.broker.router import Route, route_table
from penstock.protocol.codec import decode, encode
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.protocol.schemas.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from penstock.protocol.schemas.groups import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.testing.refusals import refusal

CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER
ROUTES = list(route_table(ROUTERS).values())


def errors_in(message: Message, version: int) -> list[int]:
    """All error codes of a message, at whatever depth."""
    found = []
    for field, row in type(message).schema.rows.items():
        value: Any = getattr(message, field)
        if version not in row.versions or value is None:
            continue
        if field == "error_code":
            found.append(value)
        elif not isinstance(row.element, str):
            for part in value if row.is_array else [value]:
                found += errors_in(part, version)
    return found


def filled(kind: type[Message], version: int) -> Message:
    """A request that asks for one of each thing that it can ask for."""
    values: dict[str, Any] = {}
    for field, row in kind.schema.rows.items():
        if version in row.versions and row.is_array:
            one = {"string": "a", "int32": 0, "uuid": bytes(16), "int16": 0, "int8": 0}
            values[field] = [one[row.element] if isinstance(row.element, str) else filled(row.element, version)]
    return kind(**values)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.api.name)
def test_every_api_has_a_refusal_in_every_version(route: Route) -> None:
    api = route.api
    for version in range(route.versions.first, route.versions.last + 1):
        response = refusal(filled(api.request, version), api.response, version, CODE)
        assert set(errors_in(response, version)) == {CODE}
        written = encode(response, version)
        assert decode(api.response, version, written) == response


def test_each_partition_that_was_produced_to_is_refused() -> None:
    asked = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=i) for i in (0, 4)]) for name in "ab"
    ]
    response = refusal(ProduceRequest(topic_data=asked), ProduceResponse, 9, CODE)
    assert isinstance(response, ProduceResponse)
    assert [
        (topic.name, [(part.index, part.error_code) for part in topic.partition_responses])
        for topic in response.responses
    ] == [("a", [(0, CODE), (4, CODE)]), ("b", [(0, CODE), (4, CODE)])]


def test_a_fetch_is_refused_for_each_partition_and_as_a_whole() -> None:
    topic = FetchTopic(topic_id=bytes(15) + b"\1", partitions=[FetchPartition(partition=3)])
    response = refusal(FetchRequest(session_id=7, topics=[topic]), FetchResponse, 13, CODE)
    assert isinstance(response, FetchResponse)
    assert (response.error_code, response.session_id) == (CODE, 7)
    [found] = response.responses
    assert found.topic_id == topic.topic_id
    assert [(part.partition_index, part.error_code) for part in found.partitions] == [(3, CODE)]


def test_things_that_are_asked_for_by_name_alone_are_refused_by_name() -> None:
    response = refusal(FindCoordinatorRequest(coordinator_keys=["g", "h"]), FindCoordinatorResponse, 6, CODE)
    assert isinstance(response, FindCoordinatorResponse)
    assert [(found.key, found.error_code) for found in response.coordinators] == [("g", CODE), ("h", CODE)]
    group = OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="a", partition_indexes=[2])])
    offsets = refusal(OffsetFetchRequest(groups=[group]), OffsetFetchResponse, 9, CODE)
    assert isinstance(offsets, OffsetFetchResponse)
    [found_group] = offsets.groups
    assert (found_group.group_id, found_group.error_code) == ("g", CODE)
    assert found_group.topics[0].partitions[0].partition_index == 2
