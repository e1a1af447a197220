"""Who coordinates a group: asked for once, asked for again when it was wrong."""

import asyncio

import pytest

from penstock.client.cluster.cluster import Cluster, Terms
from penstock.client.errors import BadReplyError, BrokerError, ClientError, TimedOutError, broker_error, unwrap
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import (
    Coordinator,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.client.peer import HANG_UP, Peer, closed_port, peer, peers
from tests.waiting import in_loop


def coordinating(brokers: list[Peer], groups: dict[str, int]) -> None:
    """Each broker answers for its own groups and refuses others; all of them know whose they are."""

    def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        found = [coordinator(group) for group in request.coordinator_keys or [request.key]]
        if request.coordinator_keys:
            return FindCoordinatorResponse(coordinators=found)
        (only,) = found
        return FindCoordinatorResponse(error_code=only.error_code, node_id=only.node_id, host=only.host, port=only.port)

    def coordinator(group: str) -> Coordinator:
        number = groups.get(group, -1)
        if number < 0:
            return Coordinator(key=group, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        host, port = brokers[0].layout.addresses[number]
        return Coordinator(key=group, node_id=number, host=host, port=port)

    for broker in brokers:
        broker.answers[FindCoordinatorRequest] = find

        def delete(request: DeleteGroupsRequest, number: int = broker.node_id) -> DeleteGroupsResponse:
            return DeleteGroupsResponse(
                results=[
                    DeletableGroupResult(
                        group_id=group, error_code=0 if groups[group] == number else ErrorCode.NOT_COORDINATOR
                    )
                    for group in request.groups_names
                ]
            )

        broker.answers[DeleteGroupsRequest] = delete


async def delete(cluster: Cluster, *groups: str, one_by_one: bool = False, repeatable: bool = True) -> list[str]:
    def read(response: DeleteGroupsResponse, _: object) -> dict[str, str | ClientError]:
        return {
            told.group_id: broker_error(told.error_code, told.group_id) if told.error_code else told.group_id
            for told in response.results
        }

    outcomes = await cluster.request_to_coordinators(
        groups,
        lambda names: DeleteGroupsRequest(groups_names=names),
        read,
        one_by_one=one_by_one,
        terms=Terms(repeatable=repeatable),
    )
    return list(unwrap(outcomes))


@in_loop
async def test_each_coordinator_gets_one_request_with_its_own_groups() -> None:
    async with peers(2) as brokers, Cluster(brokers[0].address) as cluster:
        coordinating(brokers, {"a": 0, "b": 1, "c": 0})
        assert await delete(cluster, "a", "b", "c") == ["a", "b", "c"]
        assert [list(each.groups_names) for each in brokers[0].requests(DeleteGroupsRequest)] == [["a", "c"]]
        assert [list(each.groups_names) for each in brokers[1].requests(DeleteGroupsRequest)] == [["b"]]


@in_loop
async def test_groups_are_looked_up_together_and_then_remembered() -> None:
    async with peers(2) as brokers, Cluster(brokers[0].address) as cluster:
        coordinating(brokers, {"a": 0, "b": 1})
        await delete(cluster, "a", "b")
        await delete(cluster, "b", "a", one_by_one=True)
        asked = [request for broker in brokers for request in broker.requests(FindCoordinatorRequest)]
        assert [list(request.coordinator_keys) for request in asked] == [["a", "b"]]
        assert len(brokers[0].requests(DeleteGroupsRequest)) == 2


@in_loop
async def test_one_by_one_each_group_has_its_own_request() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        coordinating([broker], {"a": 0, "b": 0})
        await delete(cluster, "a", "b", one_by_one=True)
        assert [list(each.groups_names) for each in broker.requests(DeleteGroupsRequest)] == [["a"], ["b"]]


@in_loop
async def test_an_old_broker_is_asked_for_each_group_by_itself() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        broker.offer(FindCoordinatorRequest, 0, 2)
        coordinating([broker], {"a": 0, "b": 0})
        await delete(cluster, "a", "b")
        assert [request.key for request in broker.requests(FindCoordinatorRequest)] == ["a", "b"]


@in_loop
async def test_a_request_follows_the_coordinator_when_it_moves() -> None:
    async with peers(2) as brokers, Cluster(brokers[0].address) as cluster:
        groups = {"a": 0}
        coordinating(brokers, groups)
        assert (await cluster.coordinator("a")).id == 0
        groups["a"] = 1
        await delete(cluster, "a", repeatable=False)
        assert len(brokers[0].requests(DeleteGroupsRequest)) == 1
        assert len(brokers[1].requests(DeleteGroupsRequest)) == 1
        assert (await cluster.coordinator("a")).id == 1


@in_loop
async def test_a_coordinator_that_went_away_is_asked_for_again() -> None:
    async with peers(2) as brokers, Cluster(brokers[0].address) as cluster:
        groups = {"a": 1}
        coordinating(brokers, groups)
        host, port = brokers[0].layout.addresses[1]
        brokers[0].layout.addresses[1] = (host, closed_port())
        deleting = asyncio.create_task(delete(cluster, "a"))
        await brokers[0].until(lambda: len(brokers[0].requests(FindCoordinatorRequest)) > 1)
        brokers[0].layout.addresses[1] = (host, port)
        assert await deleting == ["a"]


@in_loop
async def test_a_coordinator_is_waited_for_while_there_is_none() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        groups: dict[str, int] = {}
        coordinating([broker], groups)
        with pytest.raises(TimedOutError, match="COORDINATOR_NOT_AVAILABLE"):
            await cluster.coordinator("a", timeout_ms=300)
        asking = asyncio.create_task(cluster.coordinator("a"))
        asked = len(broker.requests(FindCoordinatorRequest))
        await broker.until(lambda: len(broker.requests(FindCoordinatorRequest)) > asked)
        groups["a"] = 0
        assert (await asking).id == 0


@in_loop
async def test_what_may_not_be_repeated_is_sent_once_when_its_outcome_is_unknown() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        coordinating([broker], {"a": 0})
        broker.answers[DeleteGroupsRequest] = lambda _: HANG_UP
        with pytest.raises(ClientError) as caught:
            await delete(cluster, "a", repeatable=False)
        assert caught.value.outcome_unknown
        assert len(broker.requests(DeleteGroupsRequest)) == 1


@in_loop
async def test_a_coordinator_that_may_not_be_told_is_an_error() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        broker.answers[FindCoordinatorRequest] = lambda request: FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
                for key in request.coordinator_keys
            ]
        )
        with pytest.raises(BrokerError, match=r"the coordinator of group 'a': .*GROUP_AUTHORIZATION_FAILED"):
            await cluster.coordinator("a")


@in_loop
async def test_a_group_that_a_broker_leaves_out_is_an_error() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        broker.answers[FindCoordinatorRequest] = lambda _: FindCoordinatorResponse()
        with pytest.raises(BadReplyError, match="group 'a'"):
            await cluster.coordinator("a")
