"""A session with ZooKeeper in an event loop: contact by the own clock, calls that wait, watches that are set again."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from kazoo.client import KazooClient

from penstock.metadata.store import Contact, SessionLostError, StoreClosedError
from penstock.metadata.zookeeper.connection import Connection, Handler, Transaction
from tests.metadata.zookeeper.proxy import Proxy
from tests.waiting import in_loop, turns
from tools.zookeeper.ensemble import Ensemble

SHORT_SECONDS = 1.2
LONG_SECONDS = 30.0


@dataclass(slots=True)
class Behind:
    """A connection through a proxy, and one past it."""

    proxy: Proxy
    near: Connection
    far: Connection


@asynccontextmanager
async def behind_a_proxy(ensemble: Ensemble, session_seconds: float = LONG_SECONDS) -> AsyncIterator[Behind]:
    address = ensemble.nodes[0].address
    async with Proxy.open(address) as proxy:
        near = Connection(proxy.address, "", session_seconds)
        far = Connection(address, "", LONG_SECONDS)
        try:
            await near.open()
            await far.open()
            yield Behind(proxy, near, far)
        finally:
            proxy.speak()
            await near.close()
            await far.close()


@in_loop
async def test_contact_goes_from_good_to_doubtful_to_lost_and_comes_back_with_a_new_session(ensemble: Ensemble) -> None:
    async with behind_a_proxy(ensemble, SHORT_SECONDS) as both:
        near = both.near
        assert (near.contact, near.session) == (Contact.GOOD, 1)
        held = f"/held-{near.session_id}"
        assert (await near.commit(lambda transaction: transaction.create(held, ephemeral=True))).is_done
        both.proxy.fall_silent()

        seen = []
        while (contact := near.contact) is not Contact.LOST:
            seen.append(contact)
            await near.wait_for_contact(contact, 1)
        assert seen == [Contact.GOOD, Contact.DOUBTFUL]
        with pytest.raises(SessionLostError):
            await near.get("/zookeeper")

        # ZooKeeper keeps the session somewhat longer: it rounds its end up to its ticks.
        await gone(both.far, held)
        both.proxy.speak()
        await near.wait_for_contact(Contact.LOST, 1)
        while near.contact is Contact.LOST:
            await near.wait_for_contact(Contact.LOST, 2)
        assert (near.contact, near.session) == (Contact.GOOD, 2)
        assert await near.get("/zookeeper") is not None


async def gone(far: Connection, path: str) -> None:
    """Wait for the end of a node."""
    change = far.watch(path)
    while await far.exists(path, change) is not None:
        await far.wait_for(change)
        change = far.watch(path)


@in_loop
async def test_a_session_that_zookeeper_ends_is_lost_at_once(ensemble: Ensemble) -> None:
    async with behind_a_proxy(ensemble) as both:
        assert both.near._client is not None
        # Another process that has come by the session's password, and closes it.
        thief = KazooClient(ensemble.nodes[0].address, client_id=both.near._client.client_id)
        await asyncio.to_thread(thief.start)
        await asyncio.to_thread(thief.stop)
        thief.close()

        await both.near.wait_for_contact(Contact.GOOD, 1)
        assert both.near.contact is Contact.LOST
        while both.near.contact is Contact.LOST:
            await both.near.wait_for_contact(Contact.LOST, both.near.session)
        assert both.near.session == 2


@in_loop
async def test_waits_that_were_given_up_leave_nothing(ensemble: Ensemble) -> None:
    async with behind_a_proxy(ensemble) as both:
        change = both.near.watch("/never")
        for _ in range(3):
            waiting = asyncio.create_task(both.near.wait_for(change))
            await turns()
            waiting.cancel()
            await asyncio.wait([waiting])
        assert not change.waiting
        assert both.near.watch("/never") is change


def test_a_host_that_takes_no_connections_is_not_waited_for_as_long_as_a_session() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as waiting:
        for _ in range(4):
            connection = waiting.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(full.getsockname())
        handler = Handler(0.05)
        with pytest.raises((OSError, handler.timeout_exception)):
            handler.create_connection(address=full.getsockname(), hostname="127.0.0.1", timeout=1000)


@in_loop
async def test_calls_wait_while_zookeeper_is_silent_and_are_answered_in_the_session(ensemble: Ensemble) -> None:
    async with behind_a_proxy(ensemble) as both:
        both.proxy.fall_silent()
        both.proxy.cut()
        calls = [asyncio.create_task(both.near.get("/zookeeper")) for _ in range(3)]
        await turns()
        assert not any(call.done() for call in calls)

        both.proxy.speak()

        assert None not in await asyncio.gather(*calls)
        assert both.near.session == 1


@in_loop
async def test_a_watch_ends_with_its_connection_and_hears_what_happened_meanwhile(ensemble: Ensemble) -> None:
    async with behind_a_proxy(ensemble) as both:
        path = f"/watched-{both.near.session_id}"
        change = both.near.watch(path)
        assert await both.near.exists(path, change) is None
        waiting = asyncio.create_task(both.near.wait_for(change))
        both.proxy.fall_silent()
        both.proxy.cut()
        assert (await both.far.commit(lambda transaction: transaction.create(path, ephemeral=True))).is_done
        both.proxy.speak()

        await waiting
        await both.near.sync()
        assert await both.near.exists(path) is not None
        assert both.near.watch(path) is not change


@in_loop
async def test_a_transaction_is_done_or_refused_at_a_place_or_unknown(ensemble: Ensemble) -> None:
    async with behind_a_proxy(ensemble) as both:
        path = f"/transaction-{both.near.session_id}"

        def build(transaction: Transaction) -> None:
            transaction.check("/zookeeper", -1)
            transaction.create(path, ephemeral=True)

        async def create(connection: Connection) -> tuple[bool, int | None, bool]:
            outcome = await connection.commit(build)
            return outcome.is_done, outcome.refused_at, outcome.is_unknown

        both.proxy.cut_at({("reply", 0)})
        assert await create(both.near) == (False, None, True)
        assert await create(both.near) == (False, 1, False)
        assert await both.near.exists(path) is not None
        assert (await both.near.commit(lambda transaction: transaction.delete(path))).is_done
        assert await create(both.near) == (True, None, False)


@in_loop
async def test_closing_ends_calls_and_the_session(ensemble: Ensemble) -> None:
    async with behind_a_proxy(ensemble) as both:
        path = f"/closing-{both.near.session_id}"
        assert (await both.near.commit(lambda transaction: transaction.create(path, ephemeral=True))).is_done
        change = both.near.watch("/never")
        waiting = [
            asyncio.create_task(both.near.wait_for(change)),
            asyncio.create_task(both.near.wait_for_contact(Contact.GOOD, 1)),
        ]
        await turns()

        await both.near.close()
        await both.near.close()

        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreClosedError] * 2
        with pytest.raises(StoreClosedError):
            await both.near.get("/zookeeper")
        await both.far.sync()
        assert await both.far.exists(path) is None


@in_loop
async def test_a_connection_that_is_silent_can_be_closed(ensemble: Ensemble) -> None:
    async with behind_a_proxy(ensemble, SHORT_SECONDS) as both:
        both.proxy.fall_silent()
        await both.near.close()
        assert both.near.contact is Contact.LOST


@in_loop
async def test_a_node_that_hangs_is_left_for_another(ensemble: Ensemble) -> None:
    async with Proxy.open(ensemble.nodes[0].address) as silent:
        silent.fall_silent()
        connection = Connection(f"{silent.address},{ensemble.nodes[1].address}", "", SHORT_SECONDS)
        try:
            async with asyncio.timeout(SHORT_SECONDS * 3):
                await connection.open()
            assert connection.contact is Contact.GOOD
        finally:
            await connection.close()
