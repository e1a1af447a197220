"""The store in ZooKeeper: what goes wrong between both, chroots that are not ours, and how large anything gets. What it
shares with other stores is shown in tests/metadata/test_store.py."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.metadata.store import (
    ConflictError,
    Contact,
    EntriesDroppedError,
    EntryTooLargeError,
    FencedError,
    Founding,
    OutcomeUnknownError,
    SessionLostError,
    StoreError,
    StoreRefusedError,
)
from penstock.metadata.zookeeper import ZookeeperStore, layout
from penstock.metadata.zookeeper.connection import Connection, Transaction
from tests.metadata.zookeeper.proxy import Proxy, Side
from tests.waiting import in_loop, turns, until
from tools.fixtures.kafka import free_ports
from tools.zookeeper.ensemble import Ensemble, install

SHORT_SECONDS = 1.2
LONG_SECONDS = 30.0
LARGEST_FRAME = 512 * 1024


@asynccontextmanager
async def opened(connect: str, session_seconds: float = LONG_SECONDS) -> AsyncIterator[ZookeeperStore]:
    store = ZookeeperStore(connect, session_seconds=session_seconds)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def behind_a_proxy(
    ensemble: Ensemble, connect: str, session_seconds: float = LONG_SECONDS
) -> AsyncIterator[tuple[Proxy, ZookeeperStore]]:
    _, chroot = connect.split("/")
    async with Proxy.open(ensemble.nodes[0].address) as proxy:
        try:
            async with opened(f"{proxy.address}/{chroot}", session_seconds) as store:
                yield proxy, store
                proxy.speak()
        finally:
            proxy.speak()


@asynccontextmanager
async def bare(connect: str) -> AsyncIterator[Connection]:
    """Past the store, to see and change what lies there."""
    address = layout.parse(connect)
    connection = Connection(address.names, address.chroot, LONG_SECONDS)
    try:
        await connection.open()
        yield connection
    finally:
        await connection.close()


async def lead(store: ZookeeperStore, broker_id: int = 0) -> int:
    epoch = await store.take_controller_lease(broker_id)
    assert epoch is not None
    return epoch


async def fill(store: ZookeeperStore, epoch: int, first: int, last: int) -> None:
    for index in range(first, last + 1):
        await store.append(epoch, index, b"%d of epoch %d" % (index, epoch))


async def all_entries(store: ZookeeperStore) -> list[bytes]:
    found: list[tuple[int, bytes]] = []
    while more := await store.entries(len(found)):
        found += more
    assert [index for index, _ in found] == list(range(1, len(found) + 1))
    return [entry for _, entry in found]


def every_cut(longest: int = 6) -> list[set[tuple[Side, int]]]:
    """Single cuts at each request and reply, and several in a row."""
    single: list[set[tuple[Side, int]]] = [
        {(side, number)} for side in ("request", "reply") for number in range(longest)
    ]
    rows = [set.union(*single[:count]) for count in (2, 4)]
    return single + rows + [{("reply", 0), ("request", 1)}, {("reply", 0), ("reply", 2), ("request", 4)}]


@in_loop
async def test_an_append_is_done_once_wherever_the_connection_is_cut(ensemble: Ensemble, connect: str) -> None:
    async with behind_a_proxy(ensemble, connect) as (proxy, store):
        epoch = await lead(store)
        written: list[bytes] = []
        for cuts in every_cut():
            entry = b"entry with %r" % cuts
            proxy.cut_at(cuts)
            await store.append(epoch, len(written) + 1, entry)
            proxy.cut_at(set())
            written.append(entry)
        assert proxy.cuts >= 8
        assert store.session == 1
        assert await all_entries(store) == written


@in_loop
async def test_a_refused_append_is_refused_wherever_the_connection_is_cut(ensemble: Ensemble, connect: str) -> None:
    async with behind_a_proxy(ensemble, connect) as (proxy, store):
        epoch = await lead(store)
        await fill(store, epoch, 1, 3)
        for index, error, asked in ((5, ConflictError, epoch), (4, FencedError, epoch + 1)):
            for cuts in every_cut(5):
                proxy.cut_at(cuts)
                with pytest.raises(error):
                    await store.append(asked, index, b"x")
        proxy.cut_at(set())
        assert len(await all_entries(store)) == 3


@in_loop
async def test_every_other_call_is_answered_wherever_the_connection_is_cut(ensemble: Ensemble, connect: str) -> None:
    async with behind_a_proxy(ensemble, connect) as (proxy, store):
        epoch = await lead(store)
        last, members = 0, {}
        for cuts in every_cut(10):
            proxy.cut_at(cuts)
            await store.release_controller_lease()
            newer = await lead(store)
            assert newer > epoch
            epoch = newer
            members[1] = await store.register(1, b"%d" % last, folder="f")
            assert {broker: member.broker_epoch for broker, member in (await store.members()).items()} == members
            await fill(store, epoch, last + 1, last + 2)
            last += 2
            await store.save_snapshot(epoch, last, b"as of %d" % last)
            assert await store.load_snapshot() == (last, b"as of %d" % last)
            assert [index for index, _ in await store.entries(last - 2)] == [last - 1, last]
            assert await store.controller() == (0, epoch)
        assert store.session == 1
        async with bare(connect) as connection:
            assert sorted(await connection.children(layout.LOG)) == [
                layout.entry_path(index).rpartition("/")[2] for index in (last - 1, last)
            ]
            assert len(await connection.children(layout.SNAPSHOT)) == 1


@in_loop
async def test_the_outcome_of_an_append_is_unknown_when_no_answer_comes_in_the_session(
    ensemble: Ensemble, connect: str
) -> None:
    async with behind_a_proxy(ensemble, connect, SHORT_SECONDS) as (proxy, store):
        epoch = await lead(store)
        proxy.count()

        def silent(asked: Side, number: int) -> bool:
            if (asked, number) == ("reply", 0):
                proxy.fall_silent()
                return True
            return False

        proxy.cut_when = silent
        with pytest.raises(OutcomeUnknownError):
            await store.append(epoch, 1, b"x")
        with pytest.raises(SessionLostError):
            await store.append(epoch, 1, b"x")


@in_loop
async def test_whoever_waits_hears_of_what_was_written_while_the_connection_was_cut(
    ensemble: Ensemble, connect: str
) -> None:
    async with behind_a_proxy(ensemble, connect) as (proxy, reader), opened(connect) as writer:
        epoch = await lead(writer)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reader.wait_for_entries(0))
            tasks.create_task(reader.wait_for_members({}))
            tasks.create_task(reader.wait_for_lease())
            await turns()
            proxy.fall_silent()
            proxy.cut()
            await fill(writer, epoch, 1, 1)
            await writer.register(1, b"", folder="")
            await writer.release_controller_lease()
            proxy.speak()
        assert len(await reader.entries(0)) == 1


@in_loop
async def test_a_reader_that_waits_for_a_dropped_entry_is_sent_to_the_snapshot(connect: str) -> None:
    async with opened(connect) as store:
        epoch = await lead(store)
        await fill(store, epoch, 1, 6)
        await store.save_snapshot(epoch, 3, b"three")
        await store.save_snapshot(epoch, 5, b"five")

        await store.wait_for_entries(1)
        with pytest.raises(EntriesDroppedError):
            await store.entries(1)
        with pytest.raises(ConflictError, match="whose last entry is 6"):
            await store.append(epoch, 1, b"where a dropped one was")


@in_loop
async def test_nothing_is_as_large_as_half_of_what_zookeeper_takes(ensemble: Ensemble, connect: str) -> None:
    async with behind_a_proxy(ensemble, connect) as (proxy, store):
        epoch = await lead(store)
        largest = 2 * layout.TRIM_ENTRIES
        await fill(store, epoch, 1, largest - 1)
        await store.append(epoch, largest, bytes(store.max_entry_bytes))
        with pytest.raises(EntryTooLargeError):
            await store.append(epoch, largest + 1, bytes(store.max_entry_bytes + 1))
        assert len((await store.entries(largest - 1))[0][1]) == store.max_entry_bytes
        data = bytes(range(256)) * (4 * LARGEST_FRAME // 256)
        await store.save_snapshot(epoch, largest - 1, data)
        await store.save_snapshot(epoch, largest, data[::-1])
        assert await store.load_snapshot() == (largest, data[::-1])
        assert len(await store.entries(largest - 1)) == 1
        assert LARGEST_FRAME * 0.9 < proxy.largest < LARGEST_FRAME


@in_loop
async def test_what_a_crash_left_of_a_snapshot_and_of_trimming_is_cleared_away(connect: str) -> None:
    async with opened(connect) as store, bare(connect) as connection:
        epoch = await lead(store)
        await fill(store, epoch, 1, 250)

        def leave(transaction: Transaction) -> None:
            for index, chunks in ((130, 1), (200, 3)):
                transaction.create(layout.snapshot_path(index))
                for chunk in range(chunks):
                    transaction.create(layout.chunk_path(index, chunk), b"of a controller that died")
            # Entries up to 120 were to be deleted, and the first seven were.
            transaction.set(layout.HEAD, layout.write(layout.Head(snapshot=130, chunks=1, first_kept=121)))
            for index in range(1, 8):
                transaction.delete(layout.entry_path(index))

        assert (await connection.commit(leave)).is_done
        await store.save_snapshot(epoch, 200, b"two hundred")

        assert await store.load_snapshot() == (200, b"two hundred")
        assert await connection.children(layout.SNAPSHOT) == [layout.snapshot_path(200).rpartition("/")[2]]
        left = sorted(int(name) for name in await connection.children(layout.LOG))
        assert left == list(range(131, 251))
        await fill(store, epoch, 251, 251)


@in_loop
async def test_a_snapshot_that_lacks_a_part_is_an_error(connect: str) -> None:
    async with opened(connect) as store, bare(connect) as connection:
        epoch = await lead(store)
        await fill(store, epoch, 1, 1)
        await store.save_snapshot(epoch, 1, b"one")
        assert (await connection.commit(lambda transaction: transaction.delete(layout.chunk_path(1, 0)))).is_done
        await connection.sync()
        with pytest.raises(StoreError, match="lacks a part"):
            await store.load_snapshot()


@in_loop
async def test_a_folder_waits_for_the_end_of_another_that_goes(connect: str) -> None:
    async with opened(connect) as store, asyncio.TaskGroup() as tasks:
        async with opened(connect) as going:
            await going.register(1, b"", folder="one")
            registering = tasks.create_task(store.register(1, b"", folder="two"))
            await turns()
            assert not registering.done()
        epoch = await registering
        assert (await store.members())[1].broker_epoch == epoch


@in_loop
async def test_a_late_registration_does_not_replace_a_member_that_it_has_not_seen(
    ensemble: Ensemble, connect: str
) -> None:
    async with behind_a_proxy(ensemble, connect) as (proxy, late), asyncio.TaskGroup() as tasks:
        async with opened(connect) as other:
            async with opened(connect) as dead:
                await dead.register(1, b"", folder="one")
                # After the members' node and the member comes what replaces it.
                held = hold_at(proxy, 2)
                registering = tasks.create_task(late.register(1, b"", folder="one"))
                await held.wait()
            epoch = await other.register(1, b"", folder="two")
            proxy.speak()
            # An answer after the one to the registration.
            assert await late.load_snapshot() is None
            assert (await other.members())[1].broker_epoch == epoch
            assert not registering.done()
        assert await registering > epoch


@in_loop
async def test_a_late_candidate_gets_no_epoch_that_another_had(ensemble: Ensemble, connect: str) -> None:
    async with behind_a_proxy(ensemble, connect) as (proxy, late), opened(connect) as other:
        # After the controller and the epoch comes what takes the lease.
        held = hold_at(proxy, 2)
        taking = asyncio.create_task(lead(late))
        await held.wait()
        epoch = await lead(other)
        await other.release_controller_lease()
        proxy.speak()
        assert await taking > epoch


def hold_at(proxy: Proxy, number: int) -> asyncio.Event:
    """Have the proxy fall silent at a request from now on; the event says when."""
    held = asyncio.Event()

    def hold(side: Side, passing: int) -> bool:
        if (side, passing) == ("request", number):
            proxy.fall_silent()
            held.set()
        return False

    proxy.count()
    proxy.cut_when = hold
    return held


@in_loop
async def test_a_broker_that_finds_a_cluster_made_meanwhile_joins_it(ensemble: Ensemble, connect: str) -> None:
    async with bare(connect) as connection:
        await connection.make_chroot()
    async with Proxy.open(ensemble.nodes[0].address) as proxy:
        # After a word of the leader, the chroot, a word again and the cluster comes what lies in the chroot.
        held = hold_at(proxy, 4)
        late = ZookeeperStore(proxy.address + layout.parse(connect).chroot, session_seconds=LONG_SECONDS)
        opening = asyncio.create_task(late.open())
        await held.wait()
        async with opened(connect) as other:
            cluster_id = await other.cluster_id()
        proxy.speak()
        await opening
        assert await late.cluster_id() == cluster_id
        await late.close()


@in_loop
async def test_brokers_that_begin_a_cluster_at_once_agree_on_it(connect: str) -> None:
    stores = [ZookeeperStore(f"{connect}/deep/below") for _ in range(4)]
    try:
        await asyncio.gather(*(store.open() for store in stores))
        assert len({await store.cluster_id() for store in stores}) == 1
        [secret] = {await store.secret() for store in stores}
        assert len(secret) == 32
    finally:
        await asyncio.gather(*(store.close() for store in stores))


def founding(cluster_id: str = "of-a-single-node", snapshot: bytes = b"state") -> Founding:
    return Founding(cluster_id, bytes(range(32)), b"first", snapshot)


@in_loop
async def test_a_cluster_begins_with_what_it_was_founded_with(connect: str) -> None:
    large = bytes(range(256)) * 5000
    await ZookeeperStore(connect).found(founding(snapshot=large))
    async with opened(connect) as store:
        assert (await store.cluster_id(), await store.secret()) == ("of-a-single-node", bytes(range(32)))
        assert await store.load_snapshot() == (1, large)
        assert await store.entries(0) == [(1, b"first")]
        epoch = await lead(store)
        with pytest.raises(ConflictError):
            await store.append(epoch, 1, b"x")
        await store.append(epoch, 2, b"second")
        await store.save_snapshot(epoch, 2, b"newer")
        assert await store.load_snapshot() == (2, b"newer")


@in_loop
async def test_a_cluster_is_founded_once(connect: str) -> None:
    await ZookeeperStore(connect).check_foundable("of-a-single-node")
    await ZookeeperStore(connect).found(founding())
    async with opened(connect) as store:
        await store.append(await lead(store), 2, b"second")
    await ZookeeperStore(connect).found(founding(snapshot=b"an older state"))
    async with opened(connect) as store:
        assert await store.load_snapshot() == (1, b"state")
        assert len(await all_entries(store)) == 2
    for refused in (ZookeeperStore(connect).found(founding("another")), ZookeeperStore(connect).check_foundable("b")):
        with pytest.raises(StoreRefusedError, match="has cluster of-a-single-node already"):
            await refused


@in_loop
async def test_a_founding_is_whole_wherever_the_connection_is_cut(ensemble: Ensemble, connect: str) -> None:
    for number, cuts in enumerate(every_cut(14)):
        chroot = f"{connect.split('/')[1]}-{number}"
        async with Proxy.open(ensemble.nodes[0].address) as proxy:
            proxy.cut_at(cuts)
            await ZookeeperStore(f"{proxy.address}/{chroot}", session_seconds=LONG_SECONDS).found(founding())
        async with opened(f"{ensemble.connect}/{chroot}") as store:
            assert await store.load_snapshot() == (1, b"state")
            assert await all_entries(store) == [b"first"]


@in_loop
async def test_what_an_interrupted_founding_left_is_no_cluster_and_is_written_over(connect: str) -> None:
    async with bare(connect) as connection:
        await connection.make_chroot()

        def left(transaction: Transaction) -> None:
            for path in (layout.SNAPSHOT, layout.snapshot_path(1), layout.chunk_path(1, 0)):
                transaction.create(path, b"half of something")

        assert (await connection.commit(left)).is_done
    with pytest.raises(StoreRefusedError, match="penstock cluster adopt"):
        await ZookeeperStore(connect).open()
    await ZookeeperStore(connect).found(founding())
    async with opened(connect) as store:
        assert await store.load_snapshot() == (1, b"state")


@in_loop
async def test_a_chroot_of_kafka_is_refused(connect: str) -> None:
    async with bare(connect) as connection:
        await connection.make_chroot()

        def kafka(transaction: Transaction) -> None:
            for path in ("/brokers", "/brokers/ids", "/admin", "/controller_epoch"):
                transaction.create(path)

        assert (await connection.commit(kafka)).is_done
        with pytest.raises(StoreRefusedError, match=r"\(admin, brokers, controller_epoch\); name a chroot"):
            await ZookeeperStore(connect).open()
        assert (await connection.commit(lambda transaction: transaction.create("/cluster"))).is_done
        with pytest.raises(StoreRefusedError, match=r"/cluster in ZooKeeper cannot be read .* name another chroot"):
            await ZookeeperStore(connect).open()
        assert sorted(await connection.children("")) == ["admin", "brokers", "cluster", "controller_epoch"]


@in_loop
async def test_a_newer_format_is_refused(connect: str) -> None:
    async with bare(connect) as connection:
        await connection.make_chroot()
        newer = layout.write(layout.Cluster(layout.FORMAT + 1, "id", b""))
        assert (await connection.commit(lambda transaction: transaction.create("/cluster", newer))).is_done
        with pytest.raises(StoreRefusedError, match="has format 2, and this Penstock knows up to 1; upgrade Penstock"):
            await ZookeeperStore(connect).open()


@in_loop
async def test_nodes_that_were_deleted_under_a_cluster_are_an_error_and_no_endless_wait(connect: str) -> None:
    async with opened(connect) as store, bare(connect) as connection:
        epoch = await lead(store)
        assert (await connection.commit(lambda transaction: transaction.delete(layout.EPOCH))).is_done
        await connection.sync()
        with pytest.raises(StoreError, match="/epoch is gone from ZooKeeper"):
            await store.append(epoch, 1, b"x")


@in_loop
async def test_zookeeper_that_is_away_is_named_with_what_to_check() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    store = ZookeeperStore(f"{address}/penstock", session_seconds=0.1)
    for _ in range(2):
        with pytest.raises(StoreRefusedError, match=f"ZooKeeper does not answer at {address}: see that"):
            await store.open()
    assert (store.contact, store.session) == (Contact.LOST, 0)


@in_loop
async def test_a_missing_kazoo_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "penstock.metadata.zookeeper.connection")
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(StoreRefusedError, match=r"pip install 'penstock-mq\[zookeeper\]'"):
        await ZookeeperStore("127.0.0.1").open()


@in_loop
async def test_entries_that_were_acknowledged_outlive_a_leader_of_the_ensemble() -> None:
    await asyncio.to_thread(install)
    with Ensemble(nodes=3) as ensemble:
        async with (
            opened(f"{ensemble.connect}/penstock", 6) as store,
            opened(f"{ensemble.connect}/penstock", 6) as reader,
        ):
            epoch = await lead(store)
            written, last = 0, sys.maxsize

            async def write() -> None:
                nonlocal written
                while written < last:
                    await store.append(epoch, written + 1, b"entry %d" % (written + 1))
                    written += 1

            async def read() -> None:
                seen = 0
                while seen < last:
                    await reader.wait_for_entries(seen)
                    for index, entry in await reader.entries(seen):
                        assert (index, entry) == (seen + 1, b"entry %d" % index)
                        seen = index

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(write())
                tasks.create_task(read())
                await until(lambda: written >= 50)
                leader = await asyncio.to_thread(ensemble.leader)
                leader.kill()
                before = written
                await asyncio.to_thread(ensemble.leader)
                await until(lambda: written > before)
                last = written + 50
            assert await all_entries(store) == [b"entry %d" % index for index in range(1, written + 1)]
            assert store.session == 1


@in_loop
async def test_a_cluster_that_is_expected_and_not_there_is_not_made(connect: str) -> None:
    for _ in range(2):
        with pytest.raises(StoreRefusedError, match="has no cluster: name another place"):
            await ZookeeperStore(connect, if_absent="name another place").open()
    assert await ZookeeperStore(connect).check_foundable("of-a-single-node")
    await ZookeeperStore(connect).found(founding())
    assert not await ZookeeperStore(connect).check_foundable("of-a-single-node")
    store = ZookeeperStore(connect, if_absent="name another place")
    await store.open()
    assert await store.cluster_id() == "of-a-single-node"
    await store.close()
