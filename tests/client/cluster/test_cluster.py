"""A cluster of scripted brokers: finding topics and leaders, trying again, deadlines, and shared connections."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.client.admin.topics import NewTopic, create_topics
from penstock.client.cluster.cluster import Cluster, Route, Target, Terms
from penstock.client.cluster.security import Security
from penstock.client.errors import (
    AuthenticationError,
    BadReplyError,
    BrokerError,
    ClientError,
    ConnectionLostError,
    NoBrokerError,
    TimedOutError,
    UnknownPartitionError,
    UnknownTopicError,
    broker_error,
    unwrap,
)
from penstock.client.metadata import TopicPartition
from penstock.client.plain.fetch import fetch
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import NewRecord
from penstock.protocol.schema import ZERO_UUID
from penstock.protocol.schemas.cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.protocol.schemas.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from penstock.protocol.schemas.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from penstock.protocol.schemas.versions import ApiVersionsRequest
from tests.broker.harness import running
from tests.client.one_batch import produce
from tests.client.peer import HANG_UP, SILENCE, Peer, Raw, closed_port, peer, peers, topic_id
from tests.client.secured import Guard, known_as, tls_peer, tls_proxy, trusting
from tests.client.virtual_time import in_virtual_time
from tests.waiting import in_loop, turns

ORDERS = TopicPartition("orders", 0)


def build(targets: Sequence[Target]) -> ListOffsetsRequest:
    topics = [
        ListOffsetsTopic(name=target.topic, partitions=[ListOffsetsPartition(partition_index=target.partition)])
        for target in targets
    ]
    return ListOffsetsRequest(topics=topics)


def read(response: ListOffsetsResponse, _: Sequence[Target]) -> dict[TopicPartition, int | ClientError]:
    return {
        TopicPartition(topic.name, told.partition_index): (
            broker_error(told.error_code, topic.name) if told.error_code else told.offset
        )
        for topic in response.topics
        for told in topic.partitions
    }


def respond(request: ListOffsetsRequest, *, offset: int = 0, error: int = 0) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=offset, error_code=error)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def leading(broker: Peer) -> None:
    """The broker answers for its partitions with its own number, and refuses others."""

    def answer(request: ListOffsetsRequest) -> ListOffsetsResponse:
        leaders = broker.layout.leaders
        is_leader = all(
            leaders[topic.name][each.partition_index] == broker.node_id
            for topic in request.topics
            for each in topic.partitions
        )
        return respond(request, offset=broker.node_id, error=0 if is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    broker.answers[ListOffsetsRequest] = answer


@in_loop
async def test_a_topic_is_asked_for_once_and_then_remembered() -> None:
    async with peer(orders=[0, 0]) as broker, Cluster(broker.address) as cluster:
        first = await cluster.topic("orders")
        assert await cluster.topic("orders") is first
        assert first.topic_id == topic_id("orders")
        assert [partition.leader for partition in first.partitions] == [0, 0]
        assert len(broker.requests(MetadataRequest)) == 1


@in_loop
async def test_a_fresh_look_asks_again() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        await cluster.topic("orders")
        broker.layout.leaders["orders"] = [0, 0, 0]
        assert len((await cluster.topic("orders")).partitions) == 1
        assert len((await cluster.topic("orders", fresh=True)).partitions) == 3
        assert len((await cluster.topic("orders")).partitions) == 3


@in_loop
async def test_many_who_look_for_one_topic_ask_once() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        await asyncio.gather(*(cluster.topic("orders") for _ in range(20)))
        assert len(broker.requests(MetadataRequest)) == 1
        assert broker.opened == 1


@in_loop
async def test_looking_for_a_topic_does_not_create_it() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        with pytest.raises(UnknownTopicError):
            await cluster.topic("orders")
        await cluster.all_topics()
        assert not any(request.allow_auto_topic_creation for request in broker.requests(MetadataRequest))


@in_loop
async def test_an_unknown_topic_is_told_with_near_names() -> None:
    async with peer(orders=[0], payments=[0]) as broker, Cluster(broker.address) as cluster:
        with pytest.raises(UnknownTopicError, match="did you mean 'orders'") as caught:
            await cluster.topic("ordrs")
        assert caught.value.near == ("orders",)
        with pytest.raises(UnknownTopicError, match="did you mean 'payments'"):
            await cluster.leader("payment", 0)


@in_loop
async def test_near_names_are_a_courtesy_that_may_fail() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[MetadataRequest] = lambda request: (
            broker.layout.metadata(request)
            if request.topics is not None
            else MetadataResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        )
        with pytest.raises(UnknownTopicError) as caught:
            await cluster.topic("ordrs")
        assert caught.value.near == ()


@in_loop
async def test_metadata_that_is_refused_as_a_whole_is_an_error() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[MetadataRequest] = lambda _: MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        with pytest.raises(BrokerError, match="REBOOTSTRAP_REQUIRED"):
            await cluster.topic("orders")
        with pytest.raises(BrokerError, match="REBOOTSTRAP_REQUIRED"):
            await cluster.all_topics()


@in_loop
async def test_a_topic_that_was_just_created_is_found_although_the_first_broker_has_not_heard_of_it() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:

        def answer(request: MetadataRequest) -> MetadataResponse:
            response = broker.layout.metadata(request)
            broker.layout.leaders["orders"] = [0]
            return response

        broker.answers[MetadataRequest] = answer
        assert (await cluster.topic("orders")).name == "orders"
        assert len(broker.requests(MetadataRequest)) == 2


@in_loop
async def test_one_unknown_topic_takes_no_other_with_it() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        outcomes = await cluster.topics(["nope", "orders"])
        assert list(outcomes) == ["nope", "orders"]
        assert isinstance(outcomes["nope"], UnknownTopicError)
        assert not isinstance(outcomes["orders"], ClientError)


@in_loop
async def test_a_topic_that_may_not_be_seen_is_not_taken_for_unknown() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:

        def answer(request: MetadataRequest) -> MetadataResponse:
            response = broker.layout.metadata(request)
            response.topics[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return response

        broker.answers[MetadataRequest] = answer
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            await cluster.topic("orders")


@in_loop
async def test_all_topics_come_by_name() -> None:
    async with peer(b=[0], a=[0], c=[0]) as broker, Cluster(broker.address) as cluster:
        assert [topic.name for topic in await cluster.all_topics()] == ["a", "b", "c"]


@in_loop
async def test_brokers_without_topic_ids_are_understood() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.offer(MetadataRequest, 0, 5)
        topic = await cluster.topic("orders")
        assert (topic.topic_id, topic.partition(0).leader_epoch) == (ZERO_UUID, -1)


@in_loop
async def test_one_reachable_bootstrap_address_is_enough() -> None:
    async with peer(orders=[0]) as broker:
        for listed in (f"127.0.0.1:{closed_port()},{broker.address}", [broker.address, f"127.0.0.1:{closed_port()}"]):
            async with Cluster(listed) as cluster:
                assert (await cluster.topic("orders")).name == "orders"


@in_loop
async def test_a_bootstrap_address_where_nobody_is_is_an_error_at_once() -> None:
    first, second = closed_port(), closed_port()
    async with Cluster(f"127.0.0.1:{first},127.0.0.1:{second}") as cluster:
        with pytest.raises(NoBrokerError) as caught:
            await cluster.topic("orders")
        assert f"127.0.0.1:{first}" in str(caught.value)
        assert f"127.0.0.1:{second}" in str(caught.value)


@in_loop
async def test_a_cold_client_waits_for_its_broker_as_a_warm_one_does() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address, fails_fast=False) as cluster:
        await broker.stop()
        with pytest.raises(TimedOutError, match="no success within 50 ms; the last try failed: no broker can be"):
            await cluster.topic("orders", timeout_ms=50)
        asking = asyncio.create_task(cluster.topic("orders"))
        await broker.start()
        assert (await asking).name == "orders"


@in_loop
async def test_an_address_that_never_spoke_kafka_is_an_error_at_once_also_for_a_client_that_waits() -> None:
    async with peer() as broker, Cluster(broker.address, fails_fast=False) as cluster:
        broker.answers[ApiVersionsRequest] = lambda _: Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(NoBrokerError, match="check the port"):
            await cluster.topic("orders")


@in_loop
async def test_an_outage_after_the_first_contact_is_waited_out() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        await cluster.topic("orders")
        await broker.stop()
        with pytest.raises(TimedOutError, match="no broker can be reached"):
            await cluster.topic("orders", fresh=True, timeout_ms=500)
        asking = asyncio.create_task(cluster.topic("orders", fresh=True))
        await broker.start()
        assert (await asking).name == "orders"


@in_loop
async def test_the_leader_of_a_partition_is_found() -> None:
    async with peers(2, orders=[0, 1]) as (first, second), Cluster(first.address) as cluster:
        assert (await cluster.leader("orders", 0)).port == first.port
        assert (await cluster.leader("orders", 1)).port == second.port


@in_loop
async def test_a_leader_is_waited_for_while_there_is_none() -> None:
    async with peer(orders=[-1]) as broker, Cluster(broker.address) as cluster:
        await cluster.topic("orders")
        with pytest.raises(TimedOutError, match="LEADER_NOT_AVAILABLE"):
            await cluster.leader("orders", 0, timeout_ms=500)
        asking = asyncio.create_task(cluster.leader("orders", 0))
        asked = len(broker.requests(MetadataRequest))
        await broker.until(lambda: len(broker.requests(MetadataRequest)) > asked)
        broker.layout.leaders["orders"] = [0]
        assert (await asking).id == 0


@in_loop
async def test_a_partition_that_was_added_is_found_although_the_topic_is_remembered_without_it() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        await cluster.topic("orders")
        broker.layout.leaders["orders"] = [0, 0]
        assert (await cluster.leader("orders", 1)).id == 0
        with pytest.raises(UnknownPartitionError, match="has 2 partitions"):
            await cluster.leader("orders", 2)


@in_loop
async def test_each_leader_gets_one_request_with_its_own_partitions() -> None:
    async with peers(2, orders=[0, 1, 0], clicks=[1]) as (first, second), Cluster(first.address) as cluster:
        leading(first)
        leading(second)
        keys = [TopicPartition("orders", number) for number in range(3)] + [TopicPartition("clicks", 0)]
        outcomes = await cluster.request_to_leaders(keys, build, read)
        assert list(outcomes.items()) == list(zip(keys, [0, 1, 0, 1], strict=True))
        assert len(first.requests(ListOffsetsRequest)) == len(second.requests(ListOffsetsRequest)) == 1


@in_loop
async def test_a_request_follows_the_leader_when_it_moves() -> None:
    async with peers(2, orders=[0]) as (first, second), Cluster(first.address) as cluster:
        leading(first)
        leading(second)
        assert unwrap(await cluster.request_to_leaders([ORDERS], build, read)) == {ORDERS: 0}
        first.layout.leaders["orders"] = [1]
        assert unwrap(await cluster.request_to_leaders([ORDERS], build, read)) == {ORDERS: 1}
        assert len(first.requests(ListOffsetsRequest)) == 2
        assert len(second.requests(ListOffsetsRequest)) == 1


@in_loop
async def test_only_the_partitions_that_failed_are_asked_for_again() -> None:
    async with peer(orders=[0, 0]) as broker, Cluster(broker.address) as cluster:

        def answer(request: ListOffsetsRequest) -> ListOffsetsResponse:
            response = respond(request)
            if len(broker.requests(ListOffsetsRequest)) == 1:
                response.topics[1].partitions[0].error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return response

        broker.answers[ListOffsetsRequest] = answer
        keys = [ORDERS, TopicPartition("orders", 1)]
        assert unwrap(await cluster.request_to_leaders(keys, build, read)) == dict.fromkeys(keys, 0)
        asked = [
            [each.partition_index for topic in request.topics for each in topic.partitions]
            for request in broker.requests(ListOffsetsRequest)
        ]
        assert asked == [[0, 1], [1]]


@in_loop
async def test_what_a_broker_refuses_for_good_is_asked_once() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[ListOffsetsRequest] = lambda request: respond(request, error=ErrorCode.INVALID_REQUEST)
        with pytest.raises(BrokerError, match="INVALID_REQUEST"):
            unwrap(await cluster.request_to_leaders([ORDERS], build, read))
        assert len(broker.requests(ListOffsetsRequest)) == 1


@in_loop
async def test_a_lost_request_is_repeated_if_it_may_be() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[ListOffsetsRequest] = lambda request: (
            HANG_UP if len(broker.requests(ListOffsetsRequest)) == 1 else respond(request, offset=5)
        )
        assert unwrap(await cluster.request_to_leaders([ORDERS], build, read)) == {ORDERS: 5}
        assert broker.opened == 2


@in_loop
async def test_a_lost_request_that_may_not_be_repeated_is_an_error_that_says_so() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[ListOffsetsRequest] = lambda _: HANG_UP
        terms = Terms(repeatable=False)
        with pytest.raises(ConnectionLostError) as caught:
            unwrap(await cluster.request_to_leaders([ORDERS], build, read, terms=terms))
        assert caught.value.outcome_unknown
        assert len(broker.requests(ListOffsetsRequest)) == 1


@in_loop
async def test_what_never_left_may_be_sent_again_in_any_case() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        leading(broker)
        await cluster.topic("orders")
        broker.connections[0].hang_up()
        await broker.until(lambda: not broker.connections)
        outcomes = await cluster.request_to_leaders([ORDERS], build, read, terms=Terms(repeatable=False))
        assert outcomes == {ORDERS: 0}


@in_loop
async def test_a_deadline_ends_the_operation_and_not_the_connection() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        released = asyncio.Event()

        async def answer(request: ListOffsetsRequest) -> Any:
            await released.wait()
            return respond(request, offset=len(broker.requests(ListOffsetsRequest)))

        broker.answers[ListOffsetsRequest] = answer
        await cluster.topic("orders")
        terms = Terms(repeatable=False, timeout_ms=500)
        with pytest.raises(TimedOutError, match="orders-0: no answer came within 500 ms") as caught:
            unwrap(await cluster.request_to_leaders([ORDERS], build, read, terms=terms))
        assert caught.value.outcome_unknown
        released.set()
        assert unwrap(await cluster.request_to_leaders([ORDERS], build, read)) == {ORDERS: 2}
        assert broker.opened == 1


@in_loop
async def test_a_broker_that_does_not_answer_in_time_is_given_up_and_its_connection_replaced() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address, request_timeout_ms=500) as cluster:
        broker.answers[ListOffsetsRequest] = lambda request: (
            SILENCE if len(broker.requests(ListOffsetsRequest)) == 1 else respond(request, offset=5)
        )
        assert unwrap(await cluster.request_to_leaders([ORDERS], build, read)) == {ORDERS: 5}
        assert broker.opened == 2


@in_loop
async def test_a_partition_that_the_reply_leaves_out_is_an_error() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[ListOffsetsRequest] = lambda _: ListOffsetsResponse()
        assert isinstance((await cluster.request_to_leaders([ORDERS], build, read))[ORDERS], BadReplyError)


@in_loop
async def test_one_leader_that_is_away_does_not_hold_back_the_answers_of_another() -> None:
    async with peers(2, orders=[0, 1]) as (first, second), Cluster(first.address) as cluster:
        leading(first)
        second.answers[ListOffsetsRequest] = lambda _: SILENCE
        keys = [ORDERS, TopicPartition("orders", 1)]
        await cluster.topic("orders")
        outcomes = await cluster.request_to_leaders(keys, build, read, terms=Terms(timeout_ms=500))
        assert outcomes[keys[0]] == 0
        assert isinstance(outcomes[keys[1]], TimedOutError)


@in_loop
async def test_an_advertised_address_that_cannot_be_reached_is_explained() -> None:
    async with peer(orders=[1]) as broker, Cluster(broker.address) as cluster:
        broker.layout.addresses[1] = ("127.0.0.1", closed_port())
        await cluster.topic("orders")
        outcome = (await cluster.request_to_leaders([ORDERS], build, read, terms=Terms(timeout_ms=500)))[ORDERS]
        assert isinstance(outcome, TimedOutError)
        assert "broker 1 gives as its address (advertised.listeners)" in str(outcome)


def name(broker: Peer) -> None:
    broker.answers[DescribeClusterRequest] = lambda _: DescribeClusterResponse(cluster_id=str(broker.node_id))


@in_loop
async def test_a_request_finds_the_broker_it_is_for() -> None:
    async with peers(3) as brokers, Cluster(brokers[0].address) as cluster:
        for each in brokers:
            name(each)
        brokers[0].layout.controller = 2

        async def ask(to: Route | int) -> str:
            response: DescribeClusterResponse = await cluster.request(DescribeClusterRequest(), to=to)
            return response.cluster_id

        assert await ask(Route.CONTROLLER) == "2"
        assert await ask(1) == "1"
        assert await ask(Route.ANY) in {"0", "1", "2"}
        with pytest.raises(BrokerError, match="broker 7: the brokers of the cluster are 0, 1, 2"):
            await ask(7)


@in_loop
async def test_a_request_follows_the_controller_when_it_moves() -> None:
    async with peers(2) as (first, second), Cluster(first.address) as cluster:

        def refuse(_: DescribeClusterRequest) -> DescribeClusterResponse:
            first.layout.controller = 1
            return DescribeClusterResponse(error_code=ErrorCode.NOT_CONTROLLER)

        def read(response: DescribeClusterResponse) -> str:
            if response.error_code:
                raise broker_error(response.error_code, "the cluster")
            return response.cluster_id

        first.answers[DescribeClusterRequest] = refuse
        name(second)
        request = DescribeClusterRequest()
        assert await cluster.request(request, read, to=Route.CONTROLLER, terms=Terms(repeatable=False)) == "1"


@in_loop
async def test_without_a_known_controller_any_broker_is_asked() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        name(broker)
        broker.layout.controller = -1
        response: DescribeClusterResponse = await cluster.request(DescribeClusterRequest(), to=Route.CONTROLLER)
        assert response.cluster_id == "0"


@in_loop
async def test_a_request_that_is_held_back_holds_up_no_other() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        released = asyncio.Event()

        async def answer(request: ListOffsetsRequest) -> Any:
            await released.wait()
            return respond(request)

        broker.answers[ListOffsetsRequest] = answer
        name(broker)
        terms = Terms(polling=True, hold_ms=60_000)
        held = asyncio.create_task(cluster.request_to_leaders([ORDERS], build, read, terms=terms))
        await broker.until(lambda: len(broker.requests(ListOffsetsRequest)) == 1)
        await cluster.request(DescribeClusterRequest())
        assert not held.done()
        released.set()
        assert unwrap(await held) == {ORDERS: 0}
        assert broker.opened == 2


@in_loop
async def test_when_the_one_who_opens_a_connection_gives_up_the_next_one_opens_it() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        name(broker)
        greet = broker.answers[ApiVersionsRequest]
        broker.answers[ApiVersionsRequest] = lambda _: SILENCE
        first: asyncio.Task[Any] = asyncio.create_task(cluster.request(DescribeClusterRequest()))
        await broker.until(lambda: len(broker.received) == 1)
        second: asyncio.Task[Any] = asyncio.create_task(cluster.request(DescribeClusterRequest()))
        await asyncio.sleep(0)
        broker.answers[ApiVersionsRequest] = greet
        first.cancel()
        assert isinstance(await second, DescribeClusterResponse)
        assert first.cancelled()


@in_loop
async def test_cancelling_an_operation_leaves_the_cluster_usable() -> None:
    async with peers(2, orders=[0, 1]) as (first, second), Cluster(first.address) as cluster:
        released = asyncio.Event()

        async def answer(request: ListOffsetsRequest) -> ListOffsetsResponse:
            await released.wait()
            return respond(request)

        first.answers[ListOffsetsRequest] = second.answers[ListOffsetsRequest] = answer
        keys = [ORDERS, TopicPartition("orders", 1)]
        asking = asyncio.create_task(cluster.request_to_leaders(keys, build, read))
        await first.until(lambda: len(first.requests(ListOffsetsRequest)) == 1)
        await second.until(lambda: len(second.requests(ListOffsetsRequest)) == 1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        released.set()
        assert unwrap(await cluster.request_to_leaders(keys, build, read)) == dict.fromkeys(keys, 0)
        assert (first.opened, second.opened) == (1, 1)


@in_loop
async def test_a_closed_cluster_ends_what_is_under_way_and_takes_nothing_more() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[ListOffsetsRequest] = lambda _: SILENCE
        asking = asyncio.create_task(cluster.request_to_leaders([ORDERS], build, read))
        await broker.until(lambda: len(broker.requests(ListOffsetsRequest)) == 1)
        await cluster.close()
        with pytest.raises(ClientError, match="closed here"):
            unwrap(await asking)
        with pytest.raises(ClientError, match="make a new one"):
            await cluster.all_topics()
        await broker.until(lambda: not broker.connections)


@in_loop
async def test_a_connection_that_opens_while_the_cluster_closes_is_closed_too() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        greet = broker.answers[ApiVersionsRequest]
        released = asyncio.Event()

        async def answer(request: ApiVersionsRequest) -> Any:
            await released.wait()
            return greet(request)

        broker.answers[ApiVersionsRequest] = answer
        asking = asyncio.create_task(cluster.topic("orders"))
        await broker.until(lambda: len(broker.received) == 1)
        await cluster.close()
        released.set()
        with pytest.raises(ClientError, match="make a new one"):
            await asking
        await broker.until(lambda: not broker.connections)


def test_a_bootstrap_that_is_no_address_is_refused() -> None:
    with pytest.raises(ValueError, match="write it as host:port"):
        Cluster("localhost:9092,")


@in_loop
async def test_a_refused_password_is_an_error_at_once_and_no_outage_to_wait_for() -> None:
    async with peers(2) as brokers:
        for broker in brokers:
            Guard().watch(broker)
        bootstrap = [broker.address for broker in brokers]
        async with Cluster(bootstrap, security=known_as("SCRAM-SHA-512", password="looking-glass")) as cluster:
            with pytest.raises(AuthenticationError, match="'alice'"):
                await cluster.all_topics()
        assert sum(broker.opened for broker in brokers) == 1


@in_loop
async def test_every_connection_of_a_cluster_is_secured() -> None:
    async with tls_peer(orders=[0]) as broker:
        guard = Guard()
        guard.watch(broker)
        broker.answers[ListOffsetsRequest] = respond
        security = Security(
            protocol="SASL_SSL", context=trusting().context, credentials=known_as("SCRAM-SHA-256").credentials
        )
        async with Cluster(broker.address, security=security) as cluster:
            for polling in (False, True):
                terms = Terms(polling=polling)
                assert unwrap(await cluster.request_to_leaders([ORDERS], build, read, terms=terms)) == {ORDERS: 0}
        assert broker.opened == len(guard.entered) == 2


@in_loop
async def test_records_go_through_tls_to_a_broker_and_come_back() -> None:
    values = [bytes([number]) * 500_000 for number in range(8)]
    inner = closed_port()
    async with tls_proxy(inner) as port:
        listeners = {
            "listeners": f"PLAINTEXT://127.0.0.1:{inner}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        }
        async with running(listeners), Cluster(f"127.0.0.1:{port}", security=trusting()) as cluster:
            unwrap(await create_topics(cluster, [NewTopic(name="orders", partitions=1)]))
            for value in values:
                await produce(cluster, "orders", 0, [NewRecord(value=value)])
            read_back: list[bytes | None] = []
            while len(read_back) < len(values):
                fetched = await fetch(cluster, "orders", 0, len(read_back))
                read_back += [record.value for record in fetched.records()]
    assert read_back == values


@in_loop
async def test_who_sends_by_himself_gets_a_connection_of_his_own_lane() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        assert cluster.broker(0) is None
        await cluster.topic("orders")
        told = cluster.broker(0)
        assert told is not None
        common, lane = await cluster.connect(told), await cluster.connect(told, lane="fetch-0")
        assert common is await cluster.connect(told)
        assert lane is await cluster.connect(told, lane="fetch-0")
        assert lane is not common
        # What goes to anybody never waits behind what is held back.
        assert await cluster._any_connection() is common


# Silent brokers: stopped, or cut off. Against a clock that only waiting moves


class Gate:
    """While it is closed a broker answers nothing of a kind."""

    def __init__(self, broker: Peer, *kinds: type[Any]) -> None:
        self.opened = asyncio.Event()
        for kind in kinds:
            broker.answers[kind] = self._held(broker.answers[kind])

    def _held(self, answer: Any) -> Any:
        async def hold(request: Any) -> Any:
            await self.opened.wait()
            return answer(request)

        return hold


async def open_to_first(cluster: Cluster, first: Peer) -> None:
    """The cluster has one connection, and knows the other brokers."""
    await cluster.topic("orders")
    assert first.opened == 1


@in_virtual_time
async def test_a_refresh_passes_over_a_broker_that_is_silent() -> None:
    async with peers(2, orders=[0]) as (first, second), Cluster(first.address) as cluster:
        await open_to_first(cluster, first)
        Gate(first, MetadataRequest)
        assert (await cluster.topic("orders", fresh=True)).name == "orders"
        assert len(first.requests(MetadataRequest)) == 2
        assert len(second.requests(MetadataRequest)) == 1
        # It was not given up: its connection is there, and it is no outage yet.
        assert (len(first.connections), cluster.stats().connections) == (1, 2)
        assert cluster.stats().unreachable == {}
        assert cluster.stats().brokers_passed_over == 1


@in_virtual_time
async def test_a_broker_that_owes_an_answer_is_not_asked_again_while_others_are_there() -> None:
    async with peers(3, orders=[0]) as (first, *others), Cluster(first.address) as cluster:
        await open_to_first(cluster, first)
        gate = Gate(first, MetadataRequest)
        for _ in range(5):
            await cluster.topic("orders", fresh=True)
        assert len(first.requests(MetadataRequest)) == 2
        assert sum(len(each.requests(MetadataRequest)) for each in others) == 5
        assert cluster.stats().brokers_passed_over == 5
        # Its late answer is read, and then it is a broker like all others.
        gate.opened.set()
        await turns()
        while cluster.stats().requests_in_flight:
            await asyncio.sleep(0.001)
        for _ in range(100):
            await cluster.topic("orders", fresh=True)
        assert len(first.requests(MetadataRequest)) > 2
        assert first.opened == 1


@in_virtual_time
async def test_a_late_answer_is_taken_when_no_other_comes() -> None:
    async with peers(2, orders=[0]) as (first, second), Cluster(first.address) as cluster:
        await open_to_first(cluster, first)
        gate = Gate(first, MetadataRequest)
        Gate(second, MetadataRequest)
        first.layout.leaders["orders"] = [0, 1]
        asking = asyncio.create_task(cluster.topic("orders", fresh=True))
        await second.until(lambda: len(second.requests(MetadataRequest)) == 1)
        gate.opened.set()
        assert len((await asking).partitions) == 2
        assert (first.opened, len(first.requests(MetadataRequest))) == (1, 2)


@in_virtual_time
async def test_the_only_broker_is_waited_for() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        await cluster.topic("orders")
        gate = Gate(broker, MetadataRequest)
        asking = asyncio.create_task(cluster.topic("orders", fresh=True))
        await asyncio.sleep(20)
        gate.opened.set()
        assert (await asking).name == "orders"
        assert (broker.opened, len(broker.requests(MetadataRequest))) == (1, 2)
        assert cluster.stats().brokers_passed_over == 0


@in_virtual_time
async def test_a_bootstrap_address_that_accepts_and_never_answers_is_passed_over() -> None:
    async with peers(2, orders=[0]) as (mute, broker):
        del mute.layout.addresses[0]
        broker.layout.leaders["orders"] = [1]
        mute.answers[ApiVersionsRequest] = lambda _: SILENCE
        # Whichever comes first: the order is random.
        for _ in range(8):
            async with Cluster([mute.address, broker.address]) as cluster:
                assert (await cluster.topic("orders")).name == "orders"
                assert cluster.stats().last_error is None
        assert mute.opened > 0
        await mute.until(lambda: not mute.connections)


@in_virtual_time
async def test_a_broker_whose_other_connection_is_silent_is_not_the_first_to_be_asked() -> None:
    async with peers(3, orders=[0]) as (first, second, third), Cluster(first.address) as cluster:
        await open_to_first(cluster, first)
        first.answers[ListOffsetsRequest] = lambda _: SILENCE
        terms = Terms(lane="produce", timeout_ms=2_000)
        await cluster.request_to_leaders([ORDERS], build, read, terms=terms)
        await cluster.topic("orders", fresh=True)
        assert len(first.requests(MetadataRequest)) == 1
        assert len(second.requests(MetadataRequest)) + len(third.requests(MetadataRequest)) == 1


@in_virtual_time
async def test_a_broker_that_was_asked_to_hold_an_answer_back_is_not_silent() -> None:
    async with peers(2, orders=[0]) as (first, second), Cluster(first.address) as cluster:
        await open_to_first(cluster, first)
        first.answers[ListOffsetsRequest] = lambda _: SILENCE
        terms = Terms(polling=True, hold_ms=60_000, timeout_ms=20_000)
        await cluster.request_to_leaders([ORDERS], build, read, terms=terms)
        await cluster.topic("orders", fresh=True)
        assert len(first.requests(MetadataRequest)) == 2
        assert second.opened == 0


@in_virtual_time
async def test_the_lookup_of_a_coordinator_passes_over_a_silent_broker() -> None:
    async with peers(2, orders=[0]) as (first, second), Cluster(first.address) as cluster:
        await open_to_first(cluster, first)
        first.answers[FindCoordinatorRequest] = lambda _: SILENCE
        second.answers[FindCoordinatorRequest] = lambda request: FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=1, host="127.0.0.1", port=second.port) for key in request.coordinator_keys
            ]
        )
        assert (await cluster.coordinator("billing")).id == 1
        assert len(first.connections) == 1
        assert cluster.stats().brokers_passed_over == 1


@in_virtual_time
async def test_what_any_broker_answers_is_asked_twice_only_if_it_may_be_repeated() -> None:
    async with peers(2, orders=[0]) as (first, second), Cluster(first.address) as cluster:
        await open_to_first(cluster, first)
        first.answers[DescribeClusterRequest] = lambda _: SILENCE
        name(second)
        with pytest.raises(TimedOutError) as caught:
            await cluster.request(DescribeClusterRequest(), terms=Terms(repeatable=False, timeout_ms=10_000))
        assert caught.value.outcome_unknown
        assert second.requests(DescribeClusterRequest) == []
        response: DescribeClusterResponse = await cluster.request(DescribeClusterRequest())
        assert response.cluster_id == "1"


# Leaders that brokers name when they refuse (KIP-951)


def refusing(broker: Peer, leader: int, epoch: int, *endpoints: Peer) -> None:
    """The broker refuses all fetches, and names the leader."""

    def answer(request: FetchRequest) -> FetchResponse:
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        PartitionData(
                            partition_index=each.partition,
                            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                            current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
            node_endpoints=[NodeEndpoint(node_id=each.node_id, host="127.0.0.1", port=each.port) for each in endpoints],
        )

    broker.answers[FetchRequest] = answer


def serving(broker: Peer) -> None:
    broker.answers[FetchRequest] = lambda request: FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[PartitionData(partition_index=0, high_watermark=100 + broker.node_id, records=b"")],
            )
            for topic in request.topics
        ]
    )


@in_loop
async def test_a_plain_fetch_goes_to_the_leader_that_the_refusal_names() -> None:
    async with peers(2, orders=[0]) as (first, second), Cluster(first.address) as cluster:
        # Nothing but the hint says where the leader is.
        del first.layout.addresses[1]
        refusing(first, 1, 3, second)
        serving(second)
        assert (await fetch(cluster, "orders", 0, 0)).high_watermark == 101
        assert [each.topics[0].partitions[0].current_leader_epoch for each in second.requests(FetchRequest)] == [3]
        assert len(first.requests(MetadataRequest)) == 1
        assert cluster.stats().leader_hints == 1
        assert (await cluster.leader("orders", 0)).port == second.port


@in_loop
async def test_an_older_hint_is_not_taken() -> None:
    async with peers(2, orders=[0]) as (first, second), Cluster(first.address) as cluster:
        first.layout.epoch = 3
        refusing(first, 1, 2, second)
        serving(second)
        with pytest.raises(TimedOutError, match="NOT_LEADER_OR_FOLLOWER"):
            await fetch(cluster, "orders", 0, 0, max_wait_ms=0, timeout_ms=200)
        assert second.requests(FetchRequest) == []
        assert len(first.requests(MetadataRequest)) > 1
        assert cluster.stats().leader_hints == 0


@in_loop
async def test_a_hint_without_an_address_asks_for_metadata() -> None:
    async with peers(2, orders=[0]) as (first, second), Cluster(first.address) as cluster:
        address = first.layout.addresses.pop(1)
        await cluster.topic("orders")
        refusing(first, 1, 3)
        serving(second)
        first.layout.addresses[1] = address
        first.layout.leaders["orders"], first.layout.epoch = [1], 3
        assert (await fetch(cluster, "orders", 0, 0)).high_watermark == 101
        assert len(first.requests(MetadataRequest)) == 2
        assert cluster.stats().leader_hints == 0


@in_loop
async def test_a_hint_needs_no_address_if_the_broker_is_known() -> None:
    async with peers(2, orders=[0]) as (first, second), Cluster(first.address) as cluster:
        first.offer(FetchRequest, 4, 12)
        refusing(first, 1, 3)
        serving(second)
        assert (await fetch(cluster, "orders", 0, 0)).high_watermark == 101
        assert len(first.requests(MetadataRequest)) == 1


@in_loop
async def test_a_broker_that_lags_does_not_take_the_named_leader_away() -> None:
    async with peers(2, orders=[0]) as (first, second), Cluster(first.address) as cluster:
        del first.layout.addresses[1]
        refusing(first, 1, 3, second)
        serving(second)
        await fetch(cluster, "orders", 0, 0)
        # All that brokers say here is older than the hint, and does not mention its broker.
        fresh = await cluster.topic("orders", fresh=True)
        assert (fresh.partition(0).leader, fresh.partition(0).leader_epoch) == (1, 3)
        assert (await cluster.leader("orders", 0)).port == second.port
        # A topic that was made again has epochs of its own.
        first.layout.ids["orders"] = topic_id("orders, again")
        fresh = await cluster.topic("orders", fresh=True)
        assert (fresh.partition(0).leader, fresh.partition(0).leader_epoch) == (0, 0)
