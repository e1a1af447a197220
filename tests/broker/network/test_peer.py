"""One connection to another broker, against one that follows a script."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.broker.network.peer import _NOTICING, CUT_SECONDS, MAX_OUTSTANDING, Address, Peer, PeerError
from penstock.machines.broker_proof import ConnectingSide
from penstock.protocol.schemas.metadata import MetadataRequest
from tests.broker.harness import Node, in_loop, running, until
from tests.broker.peering import NONCE, OTHER, secret_of


@asynccontextmanager
async def opened(node: Node) -> AsyncIterator[Peer]:
    proof = ConnectingSide(await secret_of(node), OTHER, NONCE)
    peer = await Peer.open(node.broker.node_id, Address(*node.broker.address, 1), proof)
    yield peer
    peer.close("the test is over")


def soon(seconds: float = 10) -> float:
    return asyncio.get_running_loop().time() + seconds


@in_loop
async def test_requests_wait_for_their_turn_when_many_are_under_way() -> None:
    async with running() as node, opened(node) as peer:
        held: list[object] = []
        dispatch, node.broker.listener.dispatch = node.broker.listener.dispatch, held.append
        asked = [asyncio.ensure_future(peer.request(MetadataRequest(topics=[]), soon())) for _ in range(150)]
        await until(lambda: len(held) == MAX_OUTSTANDING)
        assert peer.outstanding == MAX_OUTSTANDING
        node.broker.listener.dispatch = dispatch
        for call in held:
            dispatch(call)  # type: ignore[arg-type]
        assert len({id(reply) for reply in await asyncio.gather(*asked)}) == 150


@in_loop
async def test_a_request_that_finds_no_room_in_time_was_certainly_not_sent() -> None:
    async with running() as node, opened(node) as peer:
        node.broker.listener.dispatch = lambda call: None
        asked = [asyncio.ensure_future(peer.request(MetadataRequest(), soon())) for _ in range(MAX_OUTSTANDING)]
        await until(lambda: peer.outstanding == MAX_OUTSTANDING)
        with pytest.raises(PeerError, match="took in no request in time") as caught:
            await peer.request(MetadataRequest(), soon(0.01))
        assert not caught.value.outcome_unknown
        peer.close("the test is over")
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(each, PeerError) and each.outcome_unknown for each in outcomes)


@in_loop
async def test_a_silent_broker_whose_requests_were_all_given_up_is_given_up_by_the_next_that_finds_no_room() -> None:
    async with running() as node, opened(node) as peer:
        node.broker.listener.dispatch = lambda call: None
        asked = [asyncio.ensure_future(peer.request(MetadataRequest(), soon())) for _ in range(MAX_OUTSTANDING)]
        await until(lambda: peer.outstanding == MAX_OUTSTANDING)
        for each in asked:
            each.cancel()
        await asyncio.wait(asked)
        assert peer.is_open
        with pytest.raises(PeerError, match="took in no request in time"):
            await peer.request(MetadataRequest(), soon(0.01))
        assert not peer.is_open


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a connection choose all of this")
@in_loop
async def test_the_kernel_gives_up_a_host_that_is_cut_off_in_seconds() -> None:
    async with running() as node, opened(node) as peer:
        sock = peer._transport.get_extra_info("socket")
        options = {name: sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in _NOTICING}
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert options == _NOTICING
        probing = options["TCP_KEEPINTVL"] * options["TCP_KEEPCNT"]
        assert options["TCP_KEEPIDLE"] + probing <= CUT_SECONDS == options["TCP_USER_TIMEOUT"] / 1000


@in_loop
async def test_a_retired_connection_ends_with_its_last_request() -> None:
    async with running() as node, opened(node) as peer:
        held: list[object] = []
        dispatch, node.broker.listener.dispatch = node.broker.listener.dispatch, held.append
        asked = asyncio.ensure_future(peer.request(MetadataRequest(topics=[]), soon()))
        await until(lambda: held)
        peer.retire()
        assert peer.is_open
        dispatch(held[0])  # type: ignore[arg-type]
        await asked
        assert not peer.is_open


@in_loop
async def test_what_is_no_reply_ends_the_connection() -> None:
    ended = asyncio.Event()

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request")
        writer.close()
        ended.set()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    with pytest.raises(PeerError, match="it sent what is no reply"):
        await Peer.open(1, Address(host, port, 1), ConnectingSide(bytes(32), OTHER, NONCE))
    await ended.wait()
    server.close()
