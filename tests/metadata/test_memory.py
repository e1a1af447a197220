"""Several sessions with one store in memory."""

import asyncio

import pytest

from penstock.metadata.memory import MemoryStore, SharedMetadata
from penstock.metadata.store import FencedError, Member
from tests.metadata.scenario import scenario


async def two_sessions() -> tuple[MemoryStore, MemoryStore]:
    shared = SharedMetadata()
    one, two = MemoryStore(shared), MemoryStore(shared)
    await one.open()
    await two.open()
    return one, two


@scenario
async def test_sessions_see_each_others_members_until_they_end() -> None:
    one, two = await two_sessions()
    await one.register(1, b"one")
    await two.register(2, b"two")

    assert await one.members() == await two.members()
    assert set(await one.members()) == {1, 2}
    await two.close()
    assert set(await one.members()) == {1}


@scenario
async def test_a_broker_that_registers_elsewhere_is_there_once() -> None:
    one, two = await two_sessions()
    await two.register(1, b"before")
    epoch = await one.register(1, b"after")

    assert await two.members() == {1: Member(epoch, b"after")}
    await one.close()
    assert await two.members() == {}


@scenario
async def test_the_lease_passes_on_and_fences_the_one_before() -> None:
    one, two = await two_sessions()
    old = await one.take_controller_lease(1)
    assert old == 1
    assert await two.take_controller_lease(2) is None

    await one.close()
    new = await two.take_controller_lease(2)
    assert new == 2
    await one.open()

    with pytest.raises(FencedError):
        await one.append(old, 1, b"from a zombie")
    await two.append(new, 1, b"fine")


@scenario
async def test_an_entry_wakes_every_session() -> None:
    one, two = await two_sessions()
    waiting = asyncio.create_task(two.wait_for_entries(0))
    await asyncio.sleep(0)
    epoch = await one.take_controller_lease(1)
    assert epoch is not None

    await one.append(epoch, 1, b"news")

    await waiting
    assert await two.entries(0) == [(1, b"news")]


@scenario
async def test_a_store_of_its_own_shares_nothing() -> None:
    one, two = MemoryStore(), MemoryStore()
    await one.open()
    await two.open()
    await one.register(1, b"")

    assert await two.members() == {}
    assert await one.cluster_id() != await two.cluster_id()
