"""Requests that are the controller's: found, forwarded, repeated where that does no harm, and answered in any case."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.broker.cluster import forwarder as forwarder_module
from penstock.broker.cluster.controlling import NotControllerError
from penstock.broker.cluster.forwarder import Unanswered
from penstock.broker.network.call import Call
from penstock.broker.network.peer import Address, PeerError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from penstock.protocol.schemas.replication import AllocateProducerIdsRequest, EnvelopeRequest, EnvelopeResponse
from penstock.protocol.schemas.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
)
from tests.broker.harness import Node, create_topics, in_loop, running, turns, until

CONTROLLER = 5


def point_at(node: Node, controller: Node) -> None:
    """Let a broker take another one for the controller, whose secret it knows."""
    services = node.broker.services
    services.controlling.is_controller = False
    services.image.controller_id = controller.broker.node_id
    services.peers._secret = controller.shared.secret
    services.peers._find = lambda _: Address(*controller.broker.address, 1)


@asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[Node, Node]]:
    """A broker, and the controller that it forwards to."""
    follow_seconds = forwarder_module.FOLLOW_SECONDS
    # Their logs are not the same, so that neither follows the other.
    forwarder_module.FOLLOW_SECONDS = 0.0  # type: ignore[misc]
    try:
        async with running({"node.id": str(CONTROLLER)}) as controller, running() as node:
            point_at(node, controller)
            yield node, controller
    finally:
        forwarder_module.FOLLOW_SECONDS = follow_seconds  # type: ignore[misc]


class ScriptedPeers:
    """Answers in place of other brokers, by a script of replies and errors, and what was asked of which broker."""

    def __init__(self, *script: EnvelopeResponse | Exception | Callable[[], Awaitable[EnvelopeResponse]]) -> None:
        self.script = list(script)
        self.asked: list[int] = []

    async def request(self, broker_id: int, message: Message, *, timeout: float, purpose: str) -> Any:
        assert isinstance(message, EnvelopeRequest)
        self.asked.append(broker_id)
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step if isinstance(step, EnvelopeResponse) else await step()


def script(node: Node, *steps: Any) -> ScriptedPeers:
    """Let a broker take number 5 for the controller, which follows a script."""
    services = node.broker.services
    services.controlling.is_controller = False
    services.image.controller_id = CONTROLLER
    own, listening_side, close = services.peers.own, services.peers.listening_side, services.peers.close
    peers = ScriptedPeers(*steps)
    stand_in: Any = peers
    stand_in.own, stand_in.listening_side, stand_in.close = own, listening_side, close
    services.peers = stand_in
    return peers


@in_loop
async def test_a_client_of_any_broker_changes_the_cluster() -> None:
    async with two_brokers() as (node, controller):
        client = await node.connect()
        for version in range(2, 8):
            [result] = (await client.ask(create_topics(f"t{version}", 2), version)).topics
            assert (result.name, result.error_code) == (f"t{version}", ErrorCode.NONE)
        assert len(controller.broker.services.image.topics) == 6
        assert not node.broker.services.image.topics
        grow = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t2", count=5, assignments=None)], timeout_ms=1000
        )
        assert [each.error_code for each in (await client.ask(grow)).results] == [ErrorCode.NONE]
        delete = DeleteTopicsRequest(topic_names=["t3", "nothing"], timeout_ms=1000)
        codes = {each.name: each.error_code for each in (await client.ask(delete, 5)).responses}
        assert codes == {"t3": ErrorCode.NONE, "nothing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@in_loop
async def test_requests_of_many_clients_share_the_connection_and_get_their_own_answers() -> None:
    async with two_brokers() as (node, controller):
        clients = [await node.connect() for _ in range(20)]
        replies = await asyncio.gather(
            *[client.ask(create_topics(f"t{number}"), 7) for number, client in enumerate(clients)]
        )
        assert [reply.topics[0].name for reply in replies] == [f"t{number}" for number in range(20)]
        assert len(controller.broker.listener.connections) == 1


@in_loop
async def test_a_large_request_is_forwarded() -> None:
    async with two_brokers() as (node, _):
        client = await node.connect()
        request = create_topics("t0", validate_only=True)
        request.topics = [create_topics(f"{'x' * 100}{number}").topics[0] for number in range(900)]
        reply = await client.ask(request, 7)
        assert {result.error_code for result in reply.topics} == {ErrorCode.NONE}
        assert len(reply.topics) == 900


@in_loop
async def test_a_request_that_cannot_be_read_closes_the_clients_connection_alone() -> None:
    async with two_brokers() as (node, controller):
        client, other = await node.connect(), await node.connect()
        await other.ask(create_topics("t"), 7)
        client.send_bytes(b"\x00\x00\x00\x10\x00\x13\x00\x02\x00\x00\x00\x01\xff\xff\x7f\xff\xff\xff\x00\x00")
        assert await client.closed() == b""
        assert (await other.ask(create_topics("u"), 7)).topics[0].error_code == ErrorCode.NONE
        assert len(controller.broker.listener.connections) == 1


@in_loop
async def test_the_answer_waits_until_this_broker_has_followed_the_controller() -> None:
    async with running() as node:
        services = node.broker.services
        client = await node.connect()
        followed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waited_for: list[int] = []

        def reached(index: int) -> "asyncio.Future[None]":
            waited_for.append(index)
            return followed

        services.cluster.reached = reached  # type: ignore[method-assign]
        script(node, EnvelopeResponse(response_data=b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", metadata_index=44))
        client.send(create_topics("t"), 7)
        await until(lambda: waited_for)
        [connection] = node.broker.listener.connections
        assert (waited_for, connection.unanswered) == ([44], 1)
        followed.set_result(None)
        await until(lambda: not connection.unanswered)


@in_loop
async def test_a_broker_that_does_not_follow_answers_all_the_same_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarder_module, "FOLLOW_SECONDS", 0.01)
    async with two_brokers() as (node, _):
        reached = asyncio.get_running_loop().create_future
        node.broker.services.cluster.reached = lambda index: reached()  # type: ignore[method-assign]
        client = await node.connect()
        assert (await client.ask(create_topics("t"), 7)).topics[0].error_code == ErrorCode.NONE


@in_loop
async def test_the_next_controller_is_asked_when_the_one_that_was_known_no_longer_is() -> None:
    async with running() as node:
        peers = script(node, EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER), PeerError("unreachable"))

        async def elected() -> EnvelopeResponse:
            node.broker.services.controlling.is_controller = True
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)

        peers.script.append(elected)
        client = await node.connect()
        [result] = (await client.ask(create_topics("t"), 7)).topics
        assert result.error_code == ErrorCode.NONE
        assert "t" in node.broker.services.image.topics
        assert peers.asked == [CONTROLLER] * 3


@in_loop
async def test_without_a_controller_the_client_is_told_after_its_own_timeout() -> None:
    async with running() as node:
        node.broker.services.controlling.is_controller = False
        node.broker.services.image.controller_id = -1
        client = await node.connect()
        request = create_topics("t")
        request.timeout_ms = 60
        [result] = (await client.ask(request, 7)).topics
        assert (result.name, result.error_code) == ("t", ErrorCode.NOT_CONTROLLER)
        assert "the cluster has no controller" in result.error_message
        delete = DeleteTopicsRequest(topic_names=["t"], timeout_ms=60)
        assert (await client.ask(delete, 5)).responses[0].error_code == ErrorCode.NOT_CONTROLLER
        grow = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=5)], timeout_ms=60)
        assert (await client.ask(grow)).results[0].error_code == ErrorCode.NOT_CONTROLLER


@in_loop
async def test_a_change_that_may_have_been_made_is_not_asked_for_again() -> None:
    async with running() as node:
        peers = script(node, PeerError("lost", outcome_unknown=True))
        client = await node.connect()
        [result] = (await client.ask(create_topics("t"), 7)).topics
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "it is unknown whether the controller has made the change" in result.error_message
        assert peers.asked == [CONTROLLER]
        peers.script = [EnvelopeResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)]
        [result] = (await client.ask(create_topics("t"), 7)).topics
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT


@in_loop
async def test_a_client_is_told_within_its_own_timeout_that_the_controller_took_its_request_and_says_nothing() -> None:
    async with two_brokers() as (node, controller):
        client = await node.connect()
        assert (await client.ask(create_topics("t"), 7)).topics[0].error_code == ErrorCode.NONE
        dispatch = controller.broker.listener.dispatch
        unanswered: list[Call] = []
        controller.broker.listener.dispatch = unanswered.append
        request = create_topics("u")
        request.timeout_ms = 100
        [result] = (await client.ask(request, 7)).topics
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "did not answer in time" in result.error_message
        controller.broker.listener.dispatch = dispatch
        assert (await client.ask(create_topics("u"), 7)).topics[0].error_code == ErrorCode.NONE
        [silent] = unanswered
        assert silent.connection not in controller.broker.listener.connections


def incremental() -> IncrementalAlterConfigsRequest:
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=2,
        resource_name="t",
        configs=[IncrementalAlterConfigsRequestAlterableConfig(name="retention.ms", value="5")],
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


@in_loop
async def test_a_change_that_ends_in_the_same_state_twice_is_asked_for_again() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("t")

        async def resigned() -> EnvelopeResponse:
            node.broker.services.controlling.is_controller = True
            raise PeerError("lost", outcome_unknown=True)

        script(node, PeerError("lost", outcome_unknown=True), resigned)
        [result] = (await client.ask(incremental())).responses
        assert result.error_code == ErrorCode.NONE
        assert node.broker.services.image.topics["t"].configs == {"retention.ms": "5"}


@in_loop
async def test_a_version_that_the_controller_does_not_know_is_told() -> None:
    async with running() as node:
        script(node, EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
        client = await node.connect()
        assert (await client.ask(create_topics("t"), 7)).topics[0].error_code == ErrorCode.UNSUPPORTED_VERSION


@in_loop
async def test_a_broker_asks_for_itself_whether_or_not_it_is_the_controller() -> None:
    async with two_brokers() as (node, controller):
        other = node.broker.services.peers.own()
        # The controller knows this broker as it knows itself.
        node.broker.services.peers.own = controller.broker.services.peers.own
        own = controller.broker.services.peers.own()
        request = AllocateProducerIdsRequest(broker_id=own.node_id, broker_epoch=own.broker_epoch)
        here = await controller.broker.services.forwarder.ask(request, timeout=10)
        there = await node.broker.services.forwarder.ask(request, timeout=10)
        assert there.producer_id_start == here.producer_id_start + 1000
        node.broker.services.peers.own = lambda: other


@in_loop
async def test_an_own_request_moves_on_when_there_is_a_new_controller_though_the_old_one_keeps_silent() -> None:
    async with running() as node:
        services = node.broker.services
        grown: list[asyncio.Future[None]] = []

        def reached(index: int) -> "asyncio.Future[None]":
            grown.append(asyncio.get_running_loop().create_future())
            return grown[-1]

        async def silent() -> EnvelopeResponse:
            await asyncio.Event().wait()
            raise AssertionError

        follow = services.cluster.reached
        services.cluster.reached = reached  # type: ignore[method-assign]
        script(node, silent)
        own = services.peers.own()
        request = AllocateProducerIdsRequest(broker_id=own.node_id, broker_epoch=own.broker_epoch)
        asking = asyncio.ensure_future(services.forwarder.ask(request, timeout=20))
        await until(lambda: grown)
        services.image.controller_epoch += 1
        services.cluster.reached = follow  # type: ignore[method-assign]
        grown[-1].set_result(None)
        await turns()
        # The broker follows its log again, which knows of no such epoch.
        services.image.controller_epoch -= 1
        services.controlling.is_controller = True
        assert (await asking).producer_id_len == 1000


@in_loop
async def test_an_own_request_without_a_controller_is_given_up() -> None:
    async with running() as node:
        services = node.broker.services
        services.controlling.is_controller = False
        services.image.controller_id = -1
        with pytest.raises(Unanswered, match="no controller was found in time"):
            await services.forwarder.ask(AllocateProducerIdsRequest(), timeout=0.02)


@in_loop
async def test_a_controller_that_resigned_at_the_wrong_moment_forwards_what_it_did_not_do() -> None:
    async with running() as node:
        services = node.broker.services
        client = await node.connect()
        change, calls = services.controlling.submit, 0

        def submit(decide: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > 1:
                return change(decide)
            refused = asyncio.get_running_loop().create_future()
            refused.set_exception(NotControllerError())
            return refused

        services.controlling.submit = submit  # type: ignore[method-assign]
        assert (await client.ask(create_topics("t"), 7)).topics[0].error_code == ErrorCode.NONE
        assert calls == 2
