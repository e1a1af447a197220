"""What every metadata store promises, shown by all of them."""

import asyncio
import string
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.metadata.store import (
    MAX_SLICE_BYTES,
    MAX_SLICE_ENTRIES,
    SECRET_BYTES,
    Arrivals,
    ConflictError,
    Contact,
    EntriesDroppedError,
    EntryTooLargeError,
    FencedError,
    Member,
    MetadataStore,
    OutcomeUnknownError,
    SessionLostError,
    StoreClosedError,
    StoreRefusedError,
    new_cluster_id,
)
from tests.metadata.scenario import scenario
from tests.metadata.stores import ALL_STORES, STORES_OF_SEVERAL_SESSIONS, Point, Stores
from tests.waiting import turns


@pytest.fixture(params=ALL_STORES, ids=lambda stores: stores.name)
def stores(request: pytest.FixtureRequest) -> Stores:
    made = request.param(request)
    assert isinstance(made, Stores)
    return made


@asynccontextmanager
async def session(stores: Stores) -> AsyncIterator[MetadataStore]:
    store = stores.make()
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
            epochs += [await store.register(broker_id, b"", folder="") for broker_id in (1, 2, 1)]

    assert epochs == sorted(set(epochs))
    assert epochs[0] > 0


@scenario
async def test_members_are_known_by_their_latest_registration(stores: Stores) -> None:
    async with session(stores) as store:
        assert await store.members() == {}
        await store.register(1, b"old", folder="")
        other = await store.register(2, b"two", folder="")
        newer = await store.register(1, b"new", folder="")

        assert await store.members() == {1: Member(newer, b"new"), 2: Member(other, b"two")}


@scenario
async def test_membership_ends_with_the_session(stores: Stores) -> None:
    async with session(stores) as store:
        await store.register(1, b"one", folder="")
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
        sizes = [MAX_SLICE_BYTES // 2, MAX_SLICE_BYTES // 2, 1, store.max_entry_bytes, 5, 5]
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
        epoch = await lead(store)
        await fill(store, epoch, 1, 6)
        await store.save_snapshot(epoch, 3, b"three")
        await store.save_snapshot(epoch, 5, b"five")
        await store.save_snapshot(epoch, 4, b"late")
        await store.save_snapshot(epoch, 5, b"again")
    async with session(stores) as store:
        assert await store.load_snapshot() == (5, b"five")


@scenario
async def test_entries_are_dropped_once_two_snapshots_cover_them(stores: Stores) -> None:
    async with session(stores) as store:
        epoch = await lead(store)
        await fill(store, epoch, 1, 6)
        await store.save_snapshot(epoch, 3, b"three")
        assert len(await store.entries(0)) == 6
        await store.save_snapshot(epoch, 5, b"five")

    async with session(stores) as store:
        for after in (0, 2):
            with pytest.raises(EntriesDroppedError, match=f"entry {after + 1} .* load the snapshot"):
                await store.entries(after)
        assert [index for index, _ in await store.entries(3)] == [4, 5, 6]
        assert [index for index, _ in await store.entries(5)] == [6]
        epoch = await lead(store)
        await store.save_snapshot(epoch, 6, b"six")
        assert [index for index, _ in await store.entries(5)] == [6]
        await fill(store, epoch, 7, 7)
        assert [index for index, _ in await store.entries(5)] == [6, 7]


@scenario
async def test_a_snapshot_of_the_future_is_a_bug(stores: Stores) -> None:
    async with session(stores) as store:
        epoch = await lead(store)
        await fill(store, epoch, 1, 1)
        for index in (0, 2):
            with pytest.raises(AssertionError):
                await store.save_snapshot(epoch, index, b"")
        assert await store.load_snapshot() is None


@scenario
async def test_a_store_that_is_not_open_answers_nothing(stores: Stores) -> None:
    store = stores.make()
    for _ in range(2):
        for call in (
            store.cluster_id(),
            store.register(1, b"", folder=""),
            store.members(),
            store.take_controller_lease(1),
            store.append(1, 1, b""),
            store.entries(0),
            store.wait_for_entries(0),
            store.save_snapshot(1, 1, b""),
            store.load_snapshot(),
        ):
            with pytest.raises(StoreClosedError):
                await call
        await store.open()
        await store.close()


@scenario
async def test_a_store_can_be_closed_twice_and_opened_again(stores: Stores) -> None:
    store = stores.make()
    await store.close()
    epochs: list[int] = []
    for index in (1, 2, 3):
        await store.open()
        assert await store.members() == {}
        epochs.append(await store.register(index, b"", folder=""))
        assert await lead(store, broker_id=index) == index
        await store.append(index, index, b"x")
        await store.close()
        await store.close()
    assert epochs == sorted(set(epochs))


@scenario
async def test_closing_wakes_whoever_waits(stores: Stores) -> None:
    store = stores.make()
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


@pytest.fixture(params=STORES_OF_SEVERAL_SESSIONS, ids=lambda stores: stores.name)
def cluster(request: pytest.FixtureRequest) -> Stores:
    made = request.param(request)
    assert isinstance(made, Stores)
    return made


async def append_all(store: MetadataStore, entries: list[bytes]) -> None:
    epoch = await lead(store)
    for index, entry in enumerate(entries, 1):
        await store.append(epoch, index, entry)


@pytest.mark.parametrize("size", ["the largest", "one more"])
@scenario
async def test_an_entry_that_is_too_large_is_refused_before_it_is_sent(stores: Stores, size: str) -> None:
    async with session(stores) as store:
        epoch = await lead(store)
        entry = bytes(store.max_entry_bytes)
        if size == "the largest":
            await store.append(epoch, 1, entry)
            assert await store.entries(0) == [(1, entry)]
        else:
            with pytest.raises(EntryTooLargeError, match=f"of {len(entry) + 1} bytes .* up to {len(entry)}"):
                # Neither the epoch nor the index is looked at.
                await store.append(epoch + 1, 99, entry + b"x")
            assert await store.entries(0) == []


@scenario
async def test_brokers_share_a_secret_that_the_cluster_keeps(stores: Stores) -> None:
    async with session(stores) as store:
        secret = await store.secret()
        assert len(secret) == SECRET_BYTES
        assert len(set(secret)) > 1
    async with session(stores) as store:
        assert await store.secret() == secret


@scenario
async def test_an_open_store_is_in_contact_in_its_first_session(stores: Stores) -> None:
    async with session(stores) as store:
        assert (store.contact, store.session) == (Contact.GOOD, 1)
        await store.wait_for_contact(Contact.DOUBTFUL, 1)
        await store.wait_for_contact(Contact.GOOD, 0)


@scenario
async def test_a_snapshot_of_an_earlier_controller_is_fenced(stores: Stores) -> None:
    async with session(stores) as store:
        old = await lead(store)
        await fill(store, old, 1, 3)
        await store.save_snapshot(old, 1, b"one")
        await store.release_controller_lease()
        new = await lead(store)

        with pytest.raises(FencedError) as caught:
            await store.save_snapshot(old, 3, b"of a zombie")
        assert caught.value.newest == new
        assert await store.load_snapshot() == (1, b"one")


@pytest.mark.parametrize("size", [0, 1, 1024 * 1024, 2_500_000])
@scenario
async def test_a_snapshot_may_be_larger_than_any_entry(stores: Stores, size: int) -> None:
    data = (b"0123456789abcde" * (size // 15 + 1))[:size]
    async with session(stores) as store:
        epoch = await lead(store)
        await fill(store, epoch, 1, 1)
        await store.save_snapshot(epoch, 1, data)
    async with session(stores) as store:
        assert await store.load_snapshot() == (1, data)


@scenario
async def test_a_reader_that_was_too_slow_goes_on_behind_the_snapshot(stores: Stores) -> None:
    async with session(stores) as store:
        epoch = await lead(store)
        await fill(store, epoch, 1, 9)
        assert [index for index, _ in await store.entries(0)][:2] == [1, 2]
        await store.save_snapshot(epoch, 5, b"five")
        await store.save_snapshot(epoch, 8, b"eight")

        await store.wait_for_entries(2)
        with pytest.raises(EntriesDroppedError):
            await store.entries(2)
        snapshot = await store.load_snapshot()
        assert snapshot == (8, b"eight")
        assert await store.entries(8) == [(9, b"entry 9")]


@scenario
async def test_the_lease_can_be_given_back(stores: Stores) -> None:
    async with session(stores) as store:
        await store.wait_for_lease()
        await store.release_controller_lease()
        first = await lead(store, 1)
        assert await store.controller() == (1, first)

        await store.release_controller_lease()

        assert await store.controller() is None
        await store.wait_for_lease()
        second = await lead(store, 2)
        assert second > first
        assert await store.controller() == (2, second)


@scenario
async def test_closing_ends_every_wait(stores: Stores) -> None:
    store = stores.make()
    await store.open()
    await lead(store, 1)
    waits = [
        asyncio.create_task(wait)
        for wait in (
            store.wait_for_entries(0),
            store.wait_for_members({}),
            store.wait_for_lease(),
            store.wait_for_contact(Contact.GOOD, 1),
        )
    ]
    await turns()

    await store.close()

    for wait in waits:
        with pytest.raises(StoreClosedError):
            await wait


@scenario
async def test_a_wait_that_was_cancelled_leaves_the_store_as_it_was(stores: Stores) -> None:
    async with session(stores) as store:
        epoch = await lead(store)
        for _ in range(50):
            wait = asyncio.create_task(store.wait_for_entries(0))
            await turns(3)
            wait.cancel()
            await asyncio.wait([wait])
            assert wait.cancelled()
        await fill(store, epoch, 1, 1)
        await store.wait_for_entries(0)


@scenario
async def test_every_session_sees_the_others_come_and_go(cluster: Stores) -> None:
    one, two = await cluster.session(), await cluster.session()
    first = await one.register(1, b"one", folder="a")
    assert await two.members() == {1: Member(first, b"one", "a")}
    waiting = asyncio.create_task(one.wait_for_members({1: first}))
    await turns()
    assert not waiting.done()

    second = await two.register(2, b"two", folder="b")

    await waiting
    assert await one.members() == {1: Member(first, b"one", "a"), 2: Member(second, b"two", "b")}
    waiting = asyncio.create_task(one.wait_for_members({1: first, 2: second}))
    await turns()
    await two.close()
    await waiting
    assert set(await one.members()) == {1}


@scenario
async def test_a_broker_that_registers_again_is_seen_to_have_done_so(cluster: Stores) -> None:
    one, two = await cluster.session(), await cluster.session()
    first = await one.register(1, b"", folder="a")
    waiting = asyncio.create_task(two.wait_for_members({1: first}))
    await turns()

    second = await one.register(1, b"", folder="a")

    await waiting
    assert {broker: member.broker_epoch for broker, member in (await two.members()).items()} == {1: second}


@scenario
async def test_two_brokers_cannot_have_one_id(cluster: Stores) -> None:
    one, two = await cluster.session(), await cluster.session()
    epoch = await one.register(1, b"one", folder="a")

    with pytest.raises(StoreRefusedError, match="broker 1 is in the cluster already, with another data folder"):
        await two.register(1, b"two", folder="b")

    assert await two.members() == {1: Member(epoch, b"one", "a")}
    assert await two.register(2, b"two", folder="b") > epoch


@scenario
async def test_a_broker_gets_its_id_when_the_one_that_had_it_goes_within_a_session(cluster: Stores) -> None:
    one, two = await cluster.session(), await cluster.session()
    await one.register(1, b"one", folder="a")
    waiting = asyncio.create_task(two.register(1, b"two", folder="b"))
    await turns()
    assert not waiting.done()

    await one.close()

    epoch = await waiting
    assert await two.members() == {1: Member(epoch, b"two", "b")}


@scenario
async def test_a_broker_that_restarts_with_its_folder_takes_its_place_at_once(cluster: Stores) -> None:
    old, new = await cluster.session(), await cluster.session()
    first = await old.register(1, b"old", folder="a")
    cluster.cut(old)

    second = await new.register(1, b"new", folder="a")

    assert second > first
    assert await new.members() == {1: Member(second, b"new", "a")}


@scenario
async def test_what_a_dead_process_held_does_not_take_its_successor_away(cluster: Stores) -> None:
    old, new, third = [await cluster.session() for _ in range(3)]
    await old.register(1, b"old", folder="a")
    epoch = await new.register(1, b"new", folder="a")
    other = await old.register(2, b"", folder="c")

    await old.close()

    await third.wait_for_members({1: epoch, 2: other})
    assert await third.members() == {1: Member(epoch, b"new", "a")}


@scenario
async def test_the_lease_passes_to_the_broker_that_waits_for_it(cluster: Stores) -> None:
    one, two = await cluster.session(), await cluster.session()
    first = await lead(one, 1)
    assert await two.take_controller_lease(2) is None
    assert await two.controller() == (1, first)
    waiting = asyncio.create_task(two.wait_for_lease())
    await turns()
    assert not waiting.done()

    await one.close()

    await waiting
    assert await lead(two, 2) > first


@scenario
async def test_a_lease_that_is_given_back_wakes_the_others(cluster: Stores) -> None:
    one, two = await cluster.session(), await cluster.session()
    first = await lead(one, 1)
    waiting = asyncio.create_task(two.wait_for_lease())
    await turns()

    await two.release_controller_lease()
    await turns()
    assert not waiting.done()
    await one.release_controller_lease()

    await waiting
    assert await lead(two, 2) > first


@scenario
async def test_an_entry_wakes_every_session(cluster: Stores) -> None:
    one, two = await cluster.session(), await cluster.session()
    waiting = asyncio.create_task(two.wait_for_entries(0))
    await turns()
    assert not waiting.done()

    await append_all(one, [b"news"])

    await waiting
    assert await two.entries(0) == [(1, b"news")]


@scenario
async def test_of_two_sessions_that_write_one_entry_one_wins(cluster: Stores) -> None:
    one, two = await cluster.session(), await cluster.session()
    epoch = await lead(one)

    outcomes = await asyncio.gather(
        *(store.append(epoch, 1, b"%d" % number) for number, store in enumerate((one, two))), return_exceptions=True
    )

    winners = [number for number, outcome in enumerate(outcomes) if outcome is None]
    assert len(winners) == 1
    assert isinstance(outcomes[1 - winners[0]], ConflictError)
    assert await two.entries(0) == [(1, b"%d" % winners[0])]


@scenario
async def test_a_controller_that_stood_still_for_longer_than_its_session_is_fenced(cluster: Stores) -> None:
    paused, other = await cluster.session(), await cluster.session()
    old = await lead(paused, 1)
    await paused.append(old, 1, b"before")
    await paused.register(1, b"", folder="a")
    cluster.cut(paused)
    append = asyncio.create_task(paused.append(old, 2, b"of a zombie"))

    await other.wait_for_lease()
    new = await lead(other, 2)
    await other.append(new, 2, b"after")
    assert await other.members() == {}
    cluster.mend(paused)

    with pytest.raises((FencedError, SessionLostError, OutcomeUnknownError)):
        await append
    await back(paused, session=2)
    for index in (2, 3):
        with pytest.raises(FencedError) as caught:
            await paused.append(old, index, b"of a zombie")
        assert caught.value.newest == new
    with pytest.raises(FencedError):
        await paused.save_snapshot(old, 2, b"of a zombie")
    assert await paused.entries(0) == [(1, b"before"), (2, b"after")]


async def back(store: MetadataStore, *, session: int) -> None:
    """Wait until there is contact again, in this session."""
    while (store.contact, store.session) != (Contact.GOOD, session):
        await store.wait_for_contact(store.contact, store.session)


@scenario
async def test_contact_becomes_doubtful_and_comes_back_with_a_new_session(cluster: Stores) -> None:
    store, other = await cluster.session(), await cluster.session()
    epoch = await store.register(1, b"", folder="a")
    cluster.cut(store)
    await store.wait_for_contact(Contact.GOOD, 1)
    assert (store.contact, store.session) == (Contact.DOUBTFUL, 1)
    if cluster.can_be_lost:
        await store.wait_for_contact(Contact.DOUBTFUL, 1)
        assert (store.contact, store.session) == (Contact.LOST, 1)
    await other.wait_for_members({1: epoch})
    assert await other.members() == {}

    cluster.mend(store)
    await back(store, session=2)

    assert await store.register(1, b"", folder="a") > epoch


@scenario
async def test_a_session_outlives_a_short_loss_of_contact(cluster: Stores) -> None:
    store, other = await cluster.session(), await cluster.session()
    epoch = await store.register(1, b"", folder="a")
    controller_epoch = await lead(store, 1)
    cluster.cut(store)
    append = asyncio.create_task(store.append(controller_epoch, 1, b"late"))
    await store.wait_for_contact(Contact.GOOD, 1)

    cluster.mend(store)

    await append
    await back(store, session=1)
    assert set(await other.members()) == {1}
    assert (await store.members())[1].broker_epoch == epoch
    assert await other.controller() == (1, controller_epoch)


@scenario
async def test_calls_wait_for_contact_but_not_beyond_the_session(cluster: Stores) -> None:
    store = await cluster.session()
    cluster.cut(store)

    outcomes = await asyncio.gather(
        store.members(),
        store.entries(0),
        store.wait_for_entries(0),
        store.wait_for_members({}),
        store.take_controller_lease(1),
        store.load_snapshot(),
        return_exceptions=True,
    )

    assert [type(outcome) for outcome in outcomes] == [SessionLostError] * 6
    with pytest.raises(SessionLostError):
        await store.controller()
    cluster.mend(store)
    while store.contact is not Contact.GOOD:
        await store.wait_for_contact(store.contact, store.session)
    assert await store.members() == {}


@scenario
async def test_an_append_without_an_answer_within_the_session_has_an_unknown_outcome_or_none(cluster: Stores) -> None:
    store, other = await cluster.session(), await cluster.session()
    epoch = await lead(store)
    cluster.cut(store)

    with pytest.raises((OutcomeUnknownError, SessionLostError)) as caught:
        await store.append(epoch, 1, b"one")

    if caught.type is SessionLostError:
        assert await other.entries(0) == []


@pytest.mark.parametrize("points", [["request"], ["answer"], ["request"] * 3, ["answer"] * 3, ["request", "answer"]])
@scenario
async def test_an_append_that_loses_contact_is_there_once(cluster: Stores, points: list[Point]) -> None:
    store, other = await cluster.session(), await cluster.session()
    epoch = await lead(store)
    await store.append(epoch, 1, b"one")

    await cluster.append_and_lose(store, points, epoch, 2, b"two")

    assert await other.entries(0) == [(1, b"one"), (2, b"two")]
    await store.append(epoch, 3, b"three")
    assert await other.entries(0) == [(1, b"one"), (2, b"two"), (3, b"three")]


@pytest.mark.parametrize("point", ["request", "answer"])
@scenario
async def test_an_append_that_loses_contact_still_conflicts(cluster: Stores, point: Point) -> None:
    store = await cluster.session()
    epoch = await lead(store)
    await store.append(epoch, 1, b"one")

    with pytest.raises(ConflictError) as caught:
        await cluster.append_and_lose(store, [point], epoch, 1, b"other")

    assert caught.value.last == 1
    assert await store.entries(0) == [(1, b"one")]
