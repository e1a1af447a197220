"""Groups on a real broker; and on scripted ones, where several or older brokers are needed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from penstock.client.admin import groups
from penstock.client.admin.group_offsets import CommittedOffset, commit_offsets, delete_offsets
from penstock.client.admin.groups import GroupListing, all_listed, delete_groups, describe_groups, list_groups
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import (
    BrokerError,
    ClientError,
    UnknownGroupError,
    UnsendableError,
    unwrap,
)
from penstock.client.metadata import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from penstock.protocol.schemas.groups import (
    Coordinator,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from tests.broker.harness import Client, Node, running
from tests.broker.members import AT_ONCE, Member, lone_member, with_groups
from tests.client.peer import Peer, peer, peers
from tests.client.test_assignments import assignment
from tests.waiting import in_loop

ORDERS, CLICKS = TopicPartition("orders", 0), TopicPartition("clicks", 1)


@asynccontextmanager
async def cluster_of(node: Node) -> AsyncIterator[Cluster]:
    host, port = node.broker.address
    async with Cluster(f"{host}:{port}") as cluster:
        yield cluster


async def with_topics(node: Node) -> Client:
    client = await with_groups(node)
    await client.create_topic("orders")
    await client.create_topic("clicks", 2)
    return client


@in_loop
async def test_groups_are_listed_by_name_and_chosen_by_state_and_type() -> None:
    async with running(AT_ONCE) as node, cluster_of(node) as cluster:
        await with_topics(node)
        await lone_member(node, "busy")
        await commit_offsets(cluster, "idle", {ORDERS: CommittedOffset(0)})

        async def names(states: list[str], types: list[str]) -> list[str]:
            return [each.group for each in all_listed(await list_groups(cluster, states=states, types=types))]

        assert all_listed(await list_groups(cluster)) == [
            GroupListing("busy", "consumer", "Stable", "classic", 0),
            GroupListing("idle", "", "Empty", "classic", 0),
        ]
        assert await names(["empty"], []) == ["idle"]
        assert await names([], ["classic"]) == ["busy", "idle"]
        assert await names([], ["share"]) == []


@in_loop
async def test_a_description_has_members_with_what_they_were_given() -> None:
    async with running(AT_ONCE) as node, cluster_of(node) as cluster:
        client = await with_groups(node)
        member = Member(client, "g", instance="till-1")
        await member.join()
        await member.sync({member.member_id: assignment(1, orders=[0], clicks=[1, 0])})
        found = unwrap(await describe_groups(cluster, ["g"]))["g"]
        assert (found.state, found.protocol_type, found.protocol) == ("Stable", "consumer", "range")
        (told,) = found.members
        assert (told.member_id, told.instance_id, told.client_id) == (member.member_id, "till-1", "test")
        assert told.host == "127.0.0.1"
        assert told.partitions == (TopicPartition("clicks", 0), CLICKS, ORDERS)
        assert found.owners()[ORDERS] is told


@in_loop
async def test_an_assignment_that_is_none_of_a_consumer_stays_bytes() -> None:
    async with running(AT_ONCE) as node, cluster_of(node) as cluster:
        await lone_member(node)
        (told,) = unwrap(await describe_groups(cluster, ["g"]))["g"].members
        assert (told.partitions, told.assignment) == (None, b"all")


@in_loop
async def test_an_unknown_group_is_told_with_near_names() -> None:
    async with running() as node, cluster_of(node) as cluster:
        await with_topics(node)
        await commit_offsets(cluster, "billing", {ORDERS: CommittedOffset(0)})
        for outcome in (
            (await describe_groups(cluster, ["biling"]))["biling"],
            (await delete_groups(cluster, ["biling"]))["biling"],
            (await delete_offsets(cluster, "biling", [ORDERS]))[ORDERS],
        ):
            assert isinstance(outcome, UnknownGroupError)
            assert outcome.near == ("billing",)


@in_loop
async def test_a_group_with_members_is_neither_moved_nor_deleted() -> None:
    async with running(AT_ONCE) as node, cluster_of(node) as cluster:
        await with_topics(node)
        member = await lone_member(node)
        with pytest.raises(BrokerError, match="stop them first"):
            unwrap(await commit_offsets(cluster, "g", {ORDERS: CommittedOffset(0)}))
        with pytest.raises(BrokerError, match="NON_EMPTY_GROUP"):
            unwrap(await delete_groups(cluster, ["g"]))
        await member.leave()
        unwrap(await commit_offsets(cluster, "g", {ORDERS: CommittedOffset(0)}))
        assert await delete_groups(cluster, ["g"]) == {"g": None}
        assert isinstance((await describe_groups(cluster, ["g"]))["g"], UnknownGroupError)


def scripted(broker: Peer) -> None:
    """The brokers know each other, and each coordinates what it is asked about."""
    broker.answers[DescribeClusterRequest] = lambda _: DescribeClusterResponse(
        brokers=[
            DescribeClusterBroker(broker_id=number, host=host, port=port)
            for number, (host, port) in broker.layout.addresses.items()
        ]
    )
    host, port = broker.layout.addresses[broker.node_id]
    broker.answers[FindCoordinatorRequest] = lambda request: FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=broker.node_id, host=host, port=port) for key in request.coordinator_keys
        ]
    )


def answer_with(response: Message, _: Message) -> Message:
    return response


@in_loop
async def test_all_brokers_are_asked_for_their_groups_and_one_that_fails_hides_no_other() -> None:
    async with peers(3) as brokers, Cluster(brokers[0].address) as cluster:
        for broker in brokers:
            scripted(broker)
            listed = [ListedGroup(group_id=f"g{broker.node_id}"), ListedGroup(group_id="a")]
            broker.answers[ListGroupsRequest] = partial(answer_with, ListGroupsResponse(groups=listed))
        brokers[2].answers[ListGroupsRequest] = lambda _: ListGroupsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )
        found = await list_groups(cluster)
        assert isinstance(found[2], ClientError)
        assert [each.group for each in all_listed(found)] == ["a", "g0", "g1"], "one that is moving is told once"


@in_loop
async def test_a_broker_that_loads_its_groups_is_waited_for() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        scripted(broker)
        broker.answers[ListGroupsRequest] = lambda _: ListGroupsResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if len(broker.requests(ListGroupsRequest)) < 3 else 0
        )
        assert await list_groups(cluster) == {0: []}


@in_loop
async def test_a_broker_that_cannot_choose_by_state_is_not_asked_to() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        scripted(broker)
        broker.offer(ListGroupsRequest, 0, 3)
        broker.answers[ListGroupsRequest] = lambda _: ListGroupsResponse(groups=[ListedGroup(group_id="g")])
        assert isinstance((await list_groups(cluster, states=["Empty"]))[0], UnsendableError)
        assert all_listed(await list_groups(cluster)) == [GroupListing("g", "", "", "", 0)]


@in_loop
async def test_an_older_broker_calls_an_unknown_group_dead() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        scripted(broker)
        broker.offer(DescribeGroupsRequest, 0, 5)
        broker.answers[DescribeGroupsRequest] = lambda request: DescribeGroupsResponse(
            groups=[DescribedGroup(group_id=group, group_state="Dead") for group in request.groups]
        )
        broker.answers[ListGroupsRequest] = lambda _: ListGroupsResponse(groups=[])
        assert isinstance((await describe_groups(cluster, ["g"]))["g"], UnknownGroupError)


@in_loop
async def test_a_group_of_another_type_is_not_called_unknown() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        scripted(broker)
        broker.answers[DescribeGroupsRequest] = lambda request: DescribeGroupsResponse(
            groups=[DescribedGroup(group_id=group, error_code=ErrorCode.GROUP_ID_NOT_FOUND) for group in request.groups]
        )
        broker.answers[ListGroupsRequest] = lambda _: ListGroupsResponse(
            groups=[ListedGroup(group_id="g", group_type="share")]
        )
        with pytest.raises(BrokerError, match="it is a group of type 'share'"):
            unwrap(await describe_groups(cluster, ["g"]))


@in_loop
async def test_near_names_are_a_courtesy_that_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "NEAR_NAMES_TIMEOUT_MS", 50)
    async with peer() as broker, Cluster(broker.address) as cluster:
        scripted(broker)
        broker.answers[DescribeGroupsRequest] = lambda request: DescribeGroupsResponse(
            groups=[DescribedGroup(group_id=group, error_code=ErrorCode.GROUP_ID_NOT_FOUND) for group in request.groups]
        )
        broker.answers[DescribeClusterRequest] = lambda _: DescribeClusterResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )
        assert isinstance((await describe_groups(cluster, ["g"]))["g"], UnknownGroupError)
