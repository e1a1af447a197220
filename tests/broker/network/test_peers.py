"""Connections between brokers: shared, proved from both sides, opened again, and never waited for in vain."""

import asyncio
from typing import Any

import pytest

from penstock.broker.network import peers as peers_module
from penstock.broker.network.peer import Address, PeerError
from penstock.broker.network.peers import Peers
from penstock.machines.broker_proof import Identity
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.metadata import MetadataRequest
from penstock.protocol.schemas.replication import EnvelopeRequest
from penstock.protocol.schemas.transactions import EndTxnRequest
from tests.broker.harness import Node, in_loop, running, until
from tests.broker.peering import OTHER, peers_of, secret_of


class closing:  # noqa: N801 - reads like contextlib's
    def __init__(self, peers: Peers) -> None:
        self.peers = peers

    async def __aenter__(self) -> Peers:
        return self.peers

    async def __aexit__(self, *_: object) -> None:
        await self.peers.close()


def open_connections(node: Node) -> int:
    return len(node.broker.listener.connections)


@in_loop
async def test_requests_of_one_purpose_share_a_connection_that_is_opened_when_it_is_needed() -> None:
    async with running() as node, closing(await peers_of(node)) as peers:
        assert open_connections(node) == 0
        asked = [peers.request(node.broker.node_id, MetadataRequest(topics=[]), timeout=10) for _ in range(300)]
        replies = await asyncio.gather(*asked)
        assert {reply.cluster_id for reply in replies} == {node.broker.cluster_id}
        assert open_connections(node) == 1
        await peers.request(node.broker.node_id, MetadataRequest(topics=[]), timeout=10, purpose="other")
        assert open_connections(node) == 2
        assert {connection.broker for connection in node.broker.listener.connections} == {OTHER}


@in_loop
async def test_a_broker_with_another_secret_is_refused_and_gets_no_answer() -> None:
    async with running() as node, closing(await peers_of(node, secret=bytes(32))) as peers:
        with pytest.raises(PeerError, match="is no broker of this cluster") as caught:
            await peers.request(node.broker.node_id, MetadataRequest(), timeout=10)
        assert not caught.value.outcome_unknown


@in_loop
async def test_a_broker_that_another_one_answers_for_is_not_believed() -> None:
    async with running() as node, closing(await peers_of(node)) as peers:
        with pytest.raises(PeerError, match=f"is in fact broker {node.broker.node_id}"):
            await peers.request(node.broker.node_id + 1, MetadataRequest(), timeout=10)


@in_loop
async def test_a_broker_that_is_not_there_is_told_at_once_and_asked_again_after_a_pause() -> None:
    async with running() as node:
        secret, address = await secret_of(node), node.broker.address
        found: list[Address | None] = [None]
        async with closing(Peers(secret=secret, own=lambda: OTHER, find=lambda _: found[0])) as peers:
            with pytest.raises(PeerError, match="is not there"):
                await peers.request(node.broker.node_id, MetadataRequest(), timeout=10)
            await node.broker.listener.stop_listening()
            found[0] = Address(*address, 1)
            for _ in range(3):
                with pytest.raises(PeerError, match="cannot be reached") as caught:
                    await peers.request(node.broker.node_id, MetadataRequest(), timeout=10)
                assert not caught.value.outcome_unknown
            [link] = peers._links.values()
            assert link.pause == 4 * peers_module.FIRST_PAUSE
            await node.broker.listen()
            reply = await peers.request(node.broker.node_id, MetadataRequest(topics=[]), timeout=10)
            assert reply.cluster_id == node.broker.cluster_id
            assert link.pause == 0


@in_loop
async def test_a_lost_connection_leaves_the_outcome_unknown_and_the_next_request_opens_another() -> None:
    async with running() as node, closing(await peers_of(node)) as peers:
        await peers.request(node.broker.node_id, MetadataRequest(topics=[]), timeout=10)
        node.broker.listener.dispatch = lambda call: None
        asked = asyncio.ensure_future(peers.request(node.broker.node_id, MetadataRequest(), timeout=10))
        await until(lambda: any(connection.unanswered for connection in node.broker.listener.connections))
        node.broker.listener.abort_all("test")
        with pytest.raises(PeerError, match="it closed the connection") as caught:
            await asked
        assert caught.value.outcome_unknown


@in_loop
async def test_a_broker_that_says_nothing_is_given_up_when_the_time_is_over() -> None:
    async with running() as node, closing(await peers_of(node)) as peers:
        await peers.request(node.broker.node_id, MetadataRequest(topics=[]), timeout=10)
        node.broker.listener.dispatch = lambda call: None
        with pytest.raises(PeerError, match="did not answer in time") as caught:
            await peers.request(node.broker.node_id, MetadataRequest(), timeout=0.05)
        assert caught.value.outcome_unknown
        # Later replies would come after the one that is missing.
        [link] = peers._links.values()
        assert link.peer is not None
        assert not link.peer.is_open


@in_loop
async def test_a_server_that_never_answers_the_hello_ends_with_the_requests_time() -> None:
    accepted: list[Any] = []
    server = await asyncio.start_server(lambda reader, writer: accepted.append(writer), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with closing(Peers(secret=bytes(32), own=lambda: OTHER, find=lambda _: Address(host, port, 1))) as peers:
        with pytest.raises(PeerError, match="no connection to broker 1 in time") as caught:
            await peers.request(1, MetadataRequest(), timeout=0.05)
        assert not caught.value.outcome_unknown
    for writer in accepted:
        writer.close()
    server.close()


@in_loop
async def test_a_broker_that_registers_anew_gets_a_new_connection() -> None:
    async with running() as node:
        secret, address = await secret_of(node), node.broker.address
        own, epoch = [OTHER], [1]
        peers = Peers(secret=secret, own=lambda: own[0], find=lambda _: Address(*address, epoch[0]))
        async with closing(peers):
            for own[0], epoch[0] in ((OTHER, 1), (OTHER, 2), (Identity(7, 100), 2)):
                await peers.request(node.broker.node_id, MetadataRequest(topics=[]), timeout=10)
                await until(lambda: open_connections(node) == 1)
                [connection] = node.broker.listener.connections
                assert connection.broker == own[0]
        assert node.broker.listener.accepted == 3


@in_loop
async def test_an_api_that_the_other_broker_does_not_offer_is_told_without_asking() -> None:
    async with running() as node, closing(await peers_of(node)) as peers:
        with pytest.raises(PeerError, match="does not offer EndTxnRequest"):
            await peers.request(node.broker.node_id, EndTxnRequest(), timeout=10)
        reply = await peers.request(node.broker.node_id, EnvelopeRequest(), timeout=10)
        assert reply.error_code == ErrorCode.INVALID_REQUEST


@in_loop
async def test_connections_that_are_idle_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "IDLE_SECONDS", 0.0)
    async with running() as node, closing(await peers_of(node)) as peers:
        await peers.request(node.broker.node_id, MetadataRequest(topics=[]), timeout=10)
        peers._close_idle()
        await until(lambda: open_connections(node) == 0)
        assert not peers._links


@in_loop
async def test_connections_of_brokers_do_not_count_against_the_limits() -> None:
    async with running({"max.connections": "1"}) as node, closing(await peers_of(node)) as peers:
        await peers.request(node.broker.node_id, MetadataRequest(topics=[]), timeout=10)
        client = await node.connect()
        assert (await client.ask(MetadataRequest(topics=[]), 9)).cluster_id == node.broker.cluster_id
        refused = await node.connect()
        assert await refused.closed() == b""


@in_loop
async def test_a_broker_gets_in_when_clients_have_all_the_connections_and_a_client_does_not_stay() -> None:
    async with running({"max.connections": "1"}) as node, closing(await peers_of(node)) as peers:
        node.broker.listener._broker_places = lambda name: 2
        await (await node.connect()).ask(MetadataRequest(topics=[]), 9)
        reply = await peers.request(node.broker.node_id, MetadataRequest(topics=[]), timeout=10)
        assert reply.cluster_id == node.broker.cluster_id
        tolerated = await node.connect()
        await until(lambda: node.broker.listener._on_trial)
        for connection in node.broker.listener._on_trial:
            node.broker.listener._on_trial[connection] = -1e9
        assert await tolerated.closed() == b""


@in_loop
async def test_nothing_is_asked_after_the_end() -> None:
    async with running() as node:
        peers = await peers_of(node)
        await peers.request(node.broker.node_id, MetadataRequest(topics=[]), timeout=10)
        await peers.close()
        with pytest.raises(PeerError, match="this broker stops"):
            await peers.request(node.broker.node_id, MetadataRequest(topics=[]), timeout=10)
        await until(lambda: open_connections(node) == 0)


@in_loop
async def test_a_broker_that_a_test_has_cut_off_is_not_reached_until_it_is_mended() -> None:
    is_cut = True
    async with running() as node, closing(await peers_of(node, may_reach=lambda broker_id: not is_cut)) as peers:
        with pytest.raises(PeerError, match="is cut off from this one") as caught:
            await peers.request(node.broker.node_id, MetadataRequest(topics=[]), timeout=10)
        assert not caught.value.outcome_unknown
        assert open_connections(node) == 0
        is_cut = False
        await peers.request(node.broker.node_id, MetadataRequest(topics=[]), timeout=10)
        is_cut = True
        with pytest.raises(PeerError, match="is cut off from this one"):
            await peers.request(node.broker.node_id, MetadataRequest(topics=[]), timeout=10)


@in_loop
async def test_a_cut_while_a_connection_is_opened_lets_no_request_through() -> None:
    answers = iter([True, False])
    async with running() as node, closing(await peers_of(node, may_reach=lambda broker_id: next(answers))) as peers:
        with pytest.raises(PeerError, match="is cut off from this one"):
            await peers.request(node.broker.node_id, MetadataRequest(topics=[]), timeout=10)
        assert open_connections(node) == 1
