"""The store in memory: processes that die without a word, sessions that are ended, and stores that share nothing."""

import asyncio

import pytest

from penstock.metadata.memory import MemoryStore, SharedMetadata
from penstock.metadata.store import Contact, FencedError, OutcomeUnknownError, StoreClosedError
from tests.metadata.scenario import scenario
from tests.metadata.stores import MemoryStores
from tests.waiting import turns
from tools.fuzz_frames.warp_loop import WarpLoop


@pytest.fixture
def stores(request: pytest.FixtureRequest) -> MemoryStores:
    return MemoryStores(request)


async def broker(stores: MemoryStores, broker_id: int) -> MemoryStore:
    """A member that has asked for the lease."""
    store = stores.make()
    await store.open()
    await store.register(broker_id, b"", folder=str(broker_id))
    await store.take_controller_lease(broker_id)
    return store


@scenario
async def test_what_an_abandoned_store_held_is_there_until_its_session_has_passed(stores: MemoryStores) -> None:
    dead, other = await broker(stores, 1), await broker(stores, 2)
    began = asyncio.get_running_loop().time()
    dead.abandon()

    assert set(await other.members()) == {1, 2}
    assert await other.take_controller_lease(2) is None
    await other.wait_for_lease()

    assert set(await other.members()) == {2}
    assert await other.take_controller_lease(2) == 2
    assert asyncio.get_running_loop().time() - began == pytest.approx(stores.session_seconds)
    await other.close()


@scenario
async def test_the_calls_of_an_abandoned_store_end(stores: MemoryStores) -> None:
    dead = await broker(stores, 1)
    waiting = asyncio.create_task(dead.wait_for_entries(0))
    await turns()

    dead.abandon()

    with pytest.raises(StoreClosedError):
        await waiting
    with pytest.raises(StoreClosedError):
        await dead.append(1, 1, b"")
    assert dead.contact is Contact.LOST
    await dead.close()
    assert stores.shared.sessions == [dead]


@scenario
async def test_the_session_of_a_dead_process_can_be_ended_at_once(stores: MemoryStores) -> None:
    dead, other = await broker(stores, 1), await broker(stores, 2)
    dead.abandon()
    waiting = asyncio.create_task(other.wait_for_lease())
    await turns()
    assert not waiting.done()

    stores.shared.expire(dead)

    await waiting
    assert set(await other.members()) == {2}
    assert stores.shared.sessions == [other]
    await other.close()


@scenario
async def test_a_restarted_broker_takes_place_and_lease_of_its_dead_process(stores: MemoryStores) -> None:
    dead = await broker(stores, 1)
    dead.abandon()

    alive = await broker(stores, 1)

    assert await alive.controller() == (1, 2)
    stores.shared.expire(dead)
    assert set(await alive.members()) == {1}
    assert await alive.controller() == (1, 2)
    await alive.close()


@scenario
async def test_a_session_that_is_ended_while_in_contact_is_followed_by_a_new_one(stores: MemoryStores) -> None:
    store = await broker(stores, 1)
    waiting = asyncio.create_task(store.wait_for_contact(Contact.GOOD, 1))
    await turns()

    stores.shared.expire(store)

    await waiting
    assert (store.contact, store.session) == (Contact.GOOD, 2)
    assert await store.members() == {}
    assert await store.controller() is None
    await store.close()


@pytest.mark.parametrize("arrives", [False, True])
@scenario
async def test_an_append_that_is_cut_off_for_a_session_has_an_unknown_outcome(
    stores: MemoryStores, arrives: bool
) -> None:
    store, other = await broker(stores, 1), await broker(stores, 2)
    store.cut_at_append(arrives=arrives)

    with pytest.raises(OutcomeUnknownError):
        await store.append(1, 1, b"one")

    assert await other.entries(0) == ([(1, b"one")] if arrives else [])
    await other.close()
    await store.close()


@scenario
async def test_an_append_whose_request_was_lost_is_fenced_when_it_arrives_late(stores: MemoryStores) -> None:
    store, other = await broker(stores, 1), await broker(stores, 2)
    store.cut_at_append(arrives=False)
    append = asyncio.create_task(store.append(1, 1, b"one"))
    await turns()
    # Its own lease was given back before the cut, by another call.
    stores.shared.table.release_lease(store._held)
    assert await other.take_controller_lease(2) == 2

    store.mend()

    with pytest.raises(FencedError):
        await append
    await other.close()
    await store.close()


def test_a_session_does_not_outlive_its_event_loop() -> None:
    shared = SharedMetadata()

    async def register_and_die() -> None:
        store = MemoryStore(shared)
        await store.open()
        await store.register(1, b"", folder="a")
        store.abandon()

    async def look() -> set[int]:
        store = MemoryStore(shared)
        await store.open()
        members = set(await store.members())
        await store.close()
        return members

    with asyncio.Runner(loop_factory=WarpLoop) as runner:
        runner.run(register_and_die())
    with asyncio.Runner(loop_factory=WarpLoop) as runner:
        assert runner.run(look()) == set()


@scenario
async def test_a_store_of_its_own_shares_nothing() -> None:
    one, two = MemoryStore(), MemoryStore()
    await one.open()
    await two.open()
    await one.register(1, b"", folder="")

    assert await two.members() == {}
    assert await one.cluster_id() != await two.cluster_id()
    assert await one.secret() != await two.secret()
