"""What every metadata store promises, shown by all of them."""

import asyncio
import string
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.metadata.memory import MemoryStore, SharedMetadata
from penstock.metadata.sqlite import SqliteStore
from penstock.metadata.store import (
    MAX_SLICE_BYTES,
    MAX_SLICE_ENTRIES,
    Arrivals,
    ConflictError,
    EntriesDroppedError,
    FencedError,
    Member,
    MetadataStore,
    StoreClosedError,
    new_cluster_id,
)
from tests.metadata.scenario import scenario

Stores = Callable[[], MetadataStore]


@pytest.fixture(params=["memory", "sqlite"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    """Makes sessions with one and the same store, which outlives them."""
    if request.param == "memory":
        shared = SharedMetadata()
        return lambda: MemoryStore(shared)
    return lambda: SqliteStore(str(tmp_path / "metadata"))


@asynccontextmanager
async def session(stores: Stores) -> AsyncIterator[MetadataStore]:
    store = stores()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def lead(store: MetadataStore, broker_id: int = 0) -> int:
    epoch = await store.take_controller_lease(broker_id)
    assert epoch is not None
    return epoch


async def fill(store: MetadataStore, epoch: int, first: int, last: int) -> None:
    for index in range(first, last + 1):
        await store.append(epoch, index, b"entry %d" % index)


@scenario
async def test_the_cluster_keeps_its_id(stores: Stores) -> None:
    async with session(stores) as store:
        first = await store.cluster_id()
        assert await store.cluster_id() == first
    async with session(stores) as store:
        assert await store.cluster_id() == first
    assert len(first) == 22


@scenario
async def test_every_registration_has_a_higher_epoch_than_all_before(stores: Stores) -> None:
    epochs = []
    for _ in range(2):
        async with session(stores) as store:
            epochs += [await store.register(broker_id, b"") for broker_id in (1, 2, 1)]

    assert epochs == sorted(set(epochs))
    assert epochs[0] > 0


@scenario
async def test_members_are_known_by_their_latest_registration(stores: Stores) -> None:
    async with session(stores) as store:
        assert await store.members() == {}
        await store.register(1, b"old")
        other = await store.register(2, b"two")
        newer = await store.register(1, b"new")

        assert await store.members() == {1: Member(newer, b"new"), 2: Member(other, b"two")}


@scenario
async def test_membership_ends_with_the_session(stores: Stores) -> None:
    async with session(stores) as store:
        await store.register(1, b"one")
    async with session(stores) as store:
        assert await store.members() == {}


@scenario
async def test_only_one_broker_holds_the_lease(stores: Stores) -> None:
    async with session(stores) as store:
        epoch = await store.take_controller_lease(1)

        assert epoch is not None
        assert await store.take_controller_lease(2) is None
        assert await store.take_controller_lease(1) == epoch


@scenario
async def test_of_many_who_ask_at_once_one_gets_the_lease(stores: Stores) -> None:
    async with session(stores) as store:
        answers = await asyncio.gather(*(store.take_controller_lease(broker) for broker in range(10)))

        assert len([answer for answer in answers if answer is not None]) == 1


@scenario
async def test_the_lease_ends_with_the_session_and_the_next_epoch_is_higher(stores: Stores) -> None:
    async with session(stores) as store:
        first = await lead(store, 1)
    async with session(stores) as store:
        assert await lead(store, 2) > first


@scenario
async def test_entries_come_back_in_order_and_in_every_session(stores: Stores) -> None:
    async with session(stores) as store:
        assert await store.entries(0) == []
        await fill(store, await lead(store), 1, 5)
    async with session(stores) as store:
        entries = [(index, b"entry %d" % index) for index in range(1, 6)]
        assert await store.entries(0) == entries
        assert await store.entries(3) == entries[3:]
        assert await store.entries(5) == []
        assert await store.entries(99) == []
        await store.append(await lead(store), 6, b"")
        assert await store.entries(5) == [(6, b"")]


@pytest.mark.parametrize("index", [0, 1, 3, 5, -1])
@scenario
async def test_an_entry_that_is_not_the_next_is_a_conflict(stores: Stores, index: int) -> None:
    async with session(stores) as store:
        epoch = await lead(store)
        await fill(store, epoch, 1, 3)

        with pytest.raises(ConflictError, match="whose last entry is 3") as caught:
            await store.append(epoch, index, b"x")
        assert caught.value.last == 3
        assert len(await store.entries(0)) == 3
        await fill(store, epoch, 4, 4)


@scenario
async def test_of_two_writers_of_one_entry_one_wins(stores: Stores) -> None:
    async with session(stores) as store:
        epoch = await lead(store)

        outcomes = await asyncio.gather(
            *(store.append(epoch, 1, b"%d" % writer) for writer in range(5)), return_exceptions=True
        )

        winners = [writer for writer, outcome in enumerate(outcomes) if outcome is None]
        assert len(winners) == 1
        assert all(isinstance(outcome, ConflictError) for outcome in outcomes if outcome is not None)
        assert await store.entries(0) == [(1, b"%d" % winners[0])]


@scenario
async def test_an_earlier_controller_is_fenced(stores: Stores) -> None:
    async with session(stores) as store:
        old = await lead(store, 1)
        await fill(store, old, 1, 2)
    async with session(stores) as store:
        new = await lead(store, 2)

        with pytest.raises(FencedError) as caught:
            await store.append(old, 3, b"from a zombie")
        assert caught.value.newest == new
        with pytest.raises(FencedError):
            await store.append(old, 99, b"fenced before it conflicts")
        await store.append(new, 3, b"entry 3")
        assert len(await store.entries(0)) == 3


@pytest.mark.parametrize("epoch", [0, 1, 7])
@scenario
async def test_an_epoch_that_was_never_given_may_not_append(stores: Stores, epoch: int) -> None:
    async with session(stores) as store:
        with pytest.raises(FencedError):
            await store.append(epoch, 1, b"x")
        assert await store.entries(0) == []


@scenario
async def test_a_slice_has_a_bounded_size(stores: Stores) -> None:
    async with session(stores) as store:
        epoch = await lead(store)
        sizes = [MAX_SLICE_BYTES // 2, MAX_SLICE_BYTES // 2, 1, MAX_SLICE_BYTES * 3, 5, 5]
        for index, size in enumerate(sizes, 1):
            await store.append(epoch, index, bytes(size))

        slices, after = [], 0
        while found := await store.entries(after):
            slices.append([len(entry) for _, entry in found])
            after = found[-1][0]

        assert slices == [sizes[:2], [1], sizes[3:4], [5, 5]]


@scenario
async def test_a_slice_has_a_bounded_number_of_entries(stores: Stores) -> None:
    async with session(stores) as store:
        await fill(store, await lead(store), 1, MAX_SLICE_ENTRIES + 2)

        assert [index for index, _ in await store.entries(0)] == list(range(1, MAX_SLICE_ENTRIES + 1))
        assert len(await store.entries(MAX_SLICE_ENTRIES)) == 2


@scenario
async def test_whoever_waits_is_woken_by_the_entry_behind_his(stores: Stores) -> None:
    async with session(stores) as store, asyncio.TaskGroup() as tasks:
        epoch = await lead(store)
        await fill(store, epoch, 1, 2)
        await store.wait_for_entries(0)
        await store.wait_for_entries(1)
        third, fourth = [tasks.create_task(store.wait_for_entries(after)) for after in (2, 3)]
        await asyncio.sleep(0)
        assert not third.done()

        await fill(store, epoch, 3, 3)
        await third
        assert not fourth.done()
        await fill(store, epoch, 4, 4)
        await fourth


@scenario
async def test_a_new_session_need_not_wait_for_old_entries(stores: Stores) -> None:
    async with session(stores) as store:
        await fill(store, await lead(store), 1, 2)
    async with session(stores) as store:
        await store.wait_for_entries(1)


@scenario
async def test_an_append_whose_caller_was_cancelled_leaves_no_doubt_behind(stores: Stores) -> None:
    async with session(stores) as store:
        epoch = await lead(store)
        index = 1
        for turns in range(20):
            append = asyncio.create_task(store.append(epoch, index, b"x"))
            for _ in range(turns % 4):
                await asyncio.sleep(0)
            append.cancel()
            await asyncio.wait([append])
            if await store.entries(index - 1):
                await store.wait_for_entries(index - 1)
                index += 1

        await store.append(epoch, index, b"last")
        assert [number for number, _ in await store.entries(0)] == list(range(1, index + 1))


@scenario
async def test_the_newest_snapshot_is_kept(stores: Stores) -> None:
    async with session(stores) as store:
        assert await store.load_snapshot() is None
        await fill(store, await lead(store), 1, 6)
        await store.save_snapshot(3, b"three")
        await store.save_snapshot(5, b"five")
        await store.save_snapshot(4, b"late")
        await store.save_snapshot(5, b"again")
    async with session(stores) as store:
        assert await store.load_snapshot() == (5, b"five")


@scenario
async def test_entries_are_dropped_once_two_snapshots_cover_them(stores: Stores) -> None:
    async with session(stores) as store:
        epoch = await lead(store)
        await fill(store, epoch, 1, 6)
        await store.save_snapshot(3, b"three")
        assert len(await store.entries(0)) == 6
        await store.save_snapshot(5, b"five")

    async with session(stores) as store:
        for after in (0, 2):
            with pytest.raises(EntriesDroppedError, match=f"entry {after + 1} .* load the snapshot"):
                await store.entries(after)
        assert [index for index, _ in await store.entries(3)] == [4, 5, 6]
        assert [index for index, _ in await store.entries(5)] == [6]
        await store.save_snapshot(6, b"six")
        assert [index for index, _ in await store.entries(5)] == [6]
        await fill(store, await lead(store), 7, 7)
        assert [index for index, _ in await store.entries(5)] == [6, 7]


@scenario
async def test_a_snapshot_of_the_future_is_a_bug(stores: Stores) -> None:
    async with session(stores) as store:
        await fill(store, await lead(store), 1, 1)
        for index in (0, 2):
            with pytest.raises(AssertionError):
                await store.save_snapshot(index, b"")
        assert await store.load_snapshot() is None


@scenario
async def test_a_store_that_is_not_open_answers_nothing(stores: Stores) -> None:
    store = stores()
    for _ in range(2):
        for call in (
            store.cluster_id(),
            store.register(1, b""),
            store.members(),
            store.take_controller_lease(1),
            store.append(1, 1, b""),
            store.entries(0),
            store.wait_for_entries(0),
            store.save_snapshot(1, b""),
            store.load_snapshot(),
        ):
            with pytest.raises(StoreClosedError):
                await call
        await store.open()
        await store.close()


@scenario
async def test_a_store_can_be_closed_twice_and_opened_again(stores: Stores) -> None:
    store = stores()
    await store.close()
    for index in (1, 2, 3):
        await store.open()
        assert await store.members() == {}
        assert await store.register(index, b"") == index
        assert await lead(store, broker_id=index) == index
        await store.append(index, index, b"x")
        await store.close()
        await store.close()


@scenario
async def test_closing_wakes_whoever_waits(stores: Stores) -> None:
    store = stores()
    await store.open()
    waiting = asyncio.create_task(store.wait_for_entries(0))
    await asyncio.sleep(0)

    await store.close()

    with pytest.raises(StoreClosedError):
        await waiting


@scenario
async def test_arrivals_go_by_the_highest_index() -> None:
    arrivals = Arrivals()
    arrivals.announce(5)
    arrivals.announce(3)

    await arrivals.wait(4)
    arrivals.close()
    with pytest.raises(StoreClosedError):
        await arrivals.wait(4)


def test_cluster_ids_look_like_kafkas_and_differ() -> None:
    made = {new_cluster_id() for _ in range(500)}

    assert len(made) == 500
    assert all(len(one) == 22 and one[0] != "-" for one in made)
    assert set("".join(made)) <= set(string.ascii_letters + string.digits + "-_")
