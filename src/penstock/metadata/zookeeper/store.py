"""Implements the metadata store in ZooKeeper, where brokers of several hosts meet.

The nodes are open to every client of ZooKeeper, as they are by its default: such a client can read the secret of the
cluster and change everything. ZooKeeper is to be reached by the hosts of brokers alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.metadata.store import (
    MAX_SLICE_BYTES,
    MAX_SLICE_ENTRIES,
    ConflictError,
    Contact,
    EntriesDroppedError,
    EntryTooLargeError,
    FencedError,
    Founding,
    Member,
    OutcomeUnknownError,
    SessionLostError,
    StoreClosedError,
    StoreError,
    StoreRefusedError,
    new_cluster_id,
    new_secret,
)
from penstock.metadata.zookeeper import layout
from penstock.metadata.zookeeper.layout import BROKERS, CLUSTER, CONTROLLER, EPOCH, HEAD, Broker, Controller, Head

if TYPE_CHECKING:
    from penstock.metadata.zookeeper.connection import Change, Connection, Node, Outcome, Transaction

OPEN_SESSIONS: Final = 3
"""How many sessions long `open` waits for ZooKeeper."""

EXPIRY_SESSIONS: Final = 4 / 3
"""How many sessions long `register` waits for another broker's to end: ZooKeeper rounds them up to its ticks."""

PIPELINE: Final = 16
"""Entries that are asked for at once."""


Begun = TypeVar("Begun")


class ZookeeperStore:
    """A session with the ZooKeeper of a connect string: `host:port,host:port/chroot`. The chroot is made if need be.

    ZooKeeper may grant another length of the session than it was asked for: `tickTime` times 2 to 20. A shorter one
    than `session_seconds` is never known here, so ask for no more than its maximum.

    The first that opens an empty place makes a cluster there. With `if_absent` none is made: it is what the refusal
    says then, after where that is.
    """

    max_entry_bytes: Final = layout.MAX_ENTRY_BYTES

    def __init__(self, connect: str, *, session_seconds: float = 6.0, if_absent: str | None = None) -> None:
        self._address = layout.parse(connect)
        self._if_absent = if_absent
        self._session_seconds = session_seconds
        self._connection: Connection | None = None
        self._cluster = layout.Cluster(layout.FORMAT, "", b"")
        self._snapshots = asyncio.Lock()

    @property
    def contact(self) -> Contact:
        return Contact.LOST if self._connection is None else self._connection.contact

    @property
    def session(self) -> int:
        return 0 if self._connection is None else self._connection.session

    async def wait_for_contact(self, known: Contact, session: int) -> None:
        await self._open_connection().wait_for_contact(known, session)

    async def open(self) -> None:
        self._cluster = await self._connect(self._find_cluster)

    async def _connect(self, begin: "Callable[[Connection], Awaitable[Begun]]") -> Begun:
        assert self._connection is None, "the metadata store is open already"
        try:
            from penstock.metadata.zookeeper.connection import Connection
        except ImportError as error:
            raise StoreRefusedError(
                f"metadata in ZooKeeper needs another package ({error}): pip install 'penstock-mq[zookeeper]'"
            ) from None
        self._connection = Connection(self._address.names, self._address.chroot, self._session_seconds)
        try:
            async with asyncio.timeout(self._session_seconds * OPEN_SESSIONS):
                await self._connection.open()
                return await begin(self._connection)
        except (TimeoutError, SessionLostError):
            await self.close()
            raise StoreRefusedError(
                f"ZooKeeper does not answer at {self._address.names}: see that zookeeper.connect names it, that more "
                "than half of its nodes run, and that this host reaches it"
            ) from None
        except BaseException:
            await self.close()
            raise

    async def check_foundable(self, cluster_id: str) -> bool:
        there = await self._connect(partial(self._look_for, cluster_id=cluster_id))
        await self.close()
        return there is None

    async def found(self, founding: Founding) -> None:
        await self._connect(partial(self._found, founding=founding))
        await self.close()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def cluster_id(self) -> str:
        self._open_connection()
        return self._cluster.cluster_id

    async def secret(self) -> bytes:
        self._open_connection()
        return self._cluster.secret

    async def register(self, broker_id: int, details: bytes, *, folder: str) -> int:
        connection = self._open_connection()
        path = layout.broker_path(broker_id)
        data = layout.write(Broker(folder, details))
        deadline = asyncio.get_running_loop().time() + self._session_seconds * EXPIRY_SESSIONS
        while True:
            # Every registration gives /brokers a new version: so the member that is replaced is the one that was read.
            brokers, found = await asyncio.gather(connection.get(BROKERS), connection.get(path))
            version = _expect(brokers, BROKERS).version
            if found is not None and found.owner != connection.session_id and self._folder_of(path, found) != folder:
                await self._wait_for_end_of_member(broker_id, found, deadline)
                continue
            outcome = await connection.commit(
                partial(_replace_member, path=path, data=data, version=version, is_there=found is not None)
            )
            made = await connection.exists(path) if outcome.is_done else None
            if made is not None and made.owner == connection.session_id:
                return made.created
            await connection.sync()

    async def members(self) -> dict[int, Member]:
        connection = self._open_connection()
        return await self._members_of(await connection.children(BROKERS))

    async def wait_for_members(self, known: Mapping[int, int]) -> None:
        connection = self._open_connection()
        before = dict(known)

        async def differ(change: "Change | None") -> bool:
            found = await self._members_of(await connection.children(BROKERS, change))
            return {broker_id: member.broker_epoch for broker_id, member in found.items()} != before

        await self._wait_until(BROKERS, differ)

    async def take_controller_lease(self, broker_id: int) -> int | None:
        connection = self._open_connection()
        while True:
            found = await connection.get(CONTROLLER)
            if found is not None:
                held = layout.read(Controller, found.data, where=self._place(CONTROLLER))
                is_own = found.owner == connection.session_id and held.broker_id == broker_id
                return held.epoch if is_own else None
            epoch = await self._newest_epoch()
            held = Controller(broker_id, epoch + 1)

            def take(transaction: "Transaction", held: Controller = held) -> None:
                transaction.create(CONTROLLER, layout.write(held), ephemeral=True)
                transaction.set(EPOCH, b"", held.epoch - 1)

            if (await connection.commit(take)).is_done:
                return held.epoch
            await connection.sync()

    async def release_controller_lease(self) -> None:
        connection = self._open_connection()
        while True:
            found = await connection.get(CONTROLLER)
            if found is None or found.owner != connection.session_id:
                return
            if (await connection.commit(lambda transaction: transaction.delete(CONTROLLER))).is_done:
                return

    async def controller(self) -> tuple[int, int] | None:
        found = await self._open_connection().get(CONTROLLER)
        if found is None:
            return None
        held = layout.read(Controller, found.data, where=self._place(CONTROLLER))
        return held.broker_id, held.epoch

    async def wait_for_lease(self) -> None:
        connection = self._open_connection()

        async def is_free(change: "Change | None") -> bool:
            return await connection.exists(CONTROLLER, change) is None

        await self._wait_until(CONTROLLER, is_free)

    async def append(self, controller_epoch: int, index: int, entry: bytes) -> None:
        connection = self._open_connection()
        if len(entry) > layout.MAX_ENTRY_BYTES:
            raise EntryTooLargeError(len(entry), layout.MAX_ENTRY_BYTES)
        entry = bytes(entry)
        await connection.reach()
        if controller_epoch < 1 or index < 1:
            await self._check_controller(controller_epoch)
            raise ConflictError(index, await self._last())
        append = partial(_append, controller_epoch=controller_epoch, index=index, entry=entry)
        try:
            outcome = await connection.commit(append)
            is_sure = not outcome.is_unknown
            if not is_sure:
                # If the first one was done after all, this one is refused, and the entry is found to be ours.
                outcome = await self._commit_until_known(append)
            if outcome.is_done or (not is_sure and await self._is_there(index, entry)):
                return
        except (SessionLostError, StoreClosedError):
            raise OutcomeUnknownError(index) from None
        if outcome.refused_at == 0:
            raise FencedError(controller_epoch, await self._newest_epoch())
        raise ConflictError(index, await self._last())

    async def entries(self, after: int) -> list[tuple[int, bytes]]:
        connection = self._open_connection()
        found: list[tuple[int, bytes]] = []
        room = MAX_SLICE_BYTES
        while len(found) < MAX_SLICE_ENTRIES:
            first = after + len(found) + 1
            indexes = range(first, min(first + PIPELINE, after + MAX_SLICE_ENTRIES + 1))
            nodes = await asyncio.gather(*(connection.get(layout.entry_path(index)) for index in indexes))
            for index, node in zip(indexes, nodes, strict=True):
                if node is None:
                    if not found and await self._is_dropped(index):
                        raise EntriesDroppedError(index)
                    return found
                room -= len(node.data)
                if found and room < 0:
                    return found
                found.append((index, node.data))
        return found

    async def wait_for_entries(self, after: int) -> None:
        connection = self._open_connection()
        path = layout.entry_path(after + 1)

        async def is_there_or_dropped(change: "Change | None") -> bool:
            # In this order: an entry that is dropped between both questions was there before.
            return await connection.exists(path, change) is not None or await self._is_dropped(after + 1)

        await self._wait_until(path, is_there_or_dropped)

    async def save_snapshot(self, controller_epoch: int, index: int, data: bytes) -> None:
        connection = self._open_connection()
        await self._check_controller(controller_epoch)
        async with self._snapshots:
            head, version = await self._head()
            is_there = 0 < index <= head.snapshot or await connection.exists(layout.entry_path(index)) is not None
            assert is_there, f"a snapshot as of entry {index}, which is not there"
            if index <= head.snapshot:
                return
            chunks = layout.chunks_of(data)
            await self._write(controller_epoch, layout.snapshot_path(index), b"")
            for number, chunk in enumerate(chunks):
                await self._write(controller_epoch, layout.chunk_path(index, number), chunk)
            newer = Head(snapshot=index, chunks=len(chunks), first_kept=head.snapshot + 1)
            await self._move_head(controller_epoch, newer, version)
            await self._delete_snapshots(before=index)
            await self._trim(head.first_kept, newer.first_kept)

    async def load_snapshot(self) -> tuple[int, bytes] | None:
        connection = self._open_connection()
        before: Head | None = None
        while True:
            head, _ = await self._head()
            if head.snapshot == 0:
                return None
            if head == before:
                raise StoreError(f"{self._place(layout.snapshot_path(head.snapshot))} in ZooKeeper lacks a part")
            # A newer snapshot may take the place of this one meanwhile.
            before = head
            data = bytearray()
            for number in range(head.chunks):
                chunk = await connection.get(layout.chunk_path(head.snapshot, number))
                if chunk is None:
                    break
                data += chunk.data
            else:
                return head.snapshot, bytes(data)

    async def _find_cluster(self, connection: "Connection") -> layout.Cluster:
        """Read /cluster; the first broker that comes makes all nodes of the layout at once."""
        while True:
            if self._if_absent is None:
                await connection.make_chroot()
            await connection.sync()
            found = await connection.get(CLUSTER)
            if found is not None:
                return self._read_cluster(found)
            children = await connection.children("")
            if CLUSTER.removeprefix("/") in children:
                # Another broker has made it since.
                continue
            layout.check_is_free(children, where=self._place(""))
            if self._if_absent is not None:
                raise StoreRefusedError(f"{self._place('')} in ZooKeeper has no cluster: {self._if_absent}")
            cluster = layout.Cluster(layout.FORMAT, new_cluster_id(), new_secret())

            def make(transaction: "Transaction", cluster: layout.Cluster = cluster) -> None:
                transaction.create(CLUSTER, layout.write(cluster))
                transaction.create(HEAD, layout.write(Head()))
                for path in (EPOCH, BROKERS, layout.LOG, layout.SNAPSHOT):
                    transaction.create(path)

            await connection.commit(make)

    async def _found(self, connection: "Connection", *, founding: Founding) -> layout.Cluster:
        """Put the snapshot in its place, where nothing is read yet, and then make all the rest at once."""
        cluster = layout.Cluster(layout.FORMAT, founding.cluster_id, founding.secret)
        chunks = layout.chunks_of(founding.snapshot)
        while (there := await self._look_for(connection, cluster_id=founding.cluster_id)) is None:
            # What a founding that was interrupted has left is written over.
            for folder in (layout.SNAPSHOT, layout.snapshot_path(1)):
                await self._put(folder, b"")
            paths = [layout.chunk_path(1, number) for number in range(len(chunks))]
            versions = {path: await self._put(path, chunk) for path, chunk in zip(paths, chunks, strict=True)}

            def make(transaction: "Transaction", versions: dict[str, int] = versions) -> None:
                for path, version in versions.items():
                    # Two foundings at once write over each other: then neither is made of both.
                    transaction.check(path, version)
                transaction.create(CLUSTER, layout.write(cluster))
                transaction.create(HEAD, layout.write(Head(snapshot=1, chunks=len(chunks))))
                for path in (EPOCH, BROKERS, layout.LOG):
                    transaction.create(path)
                transaction.create(layout.entry_path(1), founding.entry)

            await connection.commit(make)
        return there

    async def _look_for(self, connection: "Connection", *, cluster_id: str) -> layout.Cluster | None:
        """Returns the cluster if it is there, None if it can be founded. Raises StoreRefusedError."""
        await connection.make_chroot()
        await connection.sync()
        children = set(await connection.children(""))
        found = await connection.get(CLUSTER)
        if found is None:
            # In this order: a cluster that was made between both questions is found.
            layout.check_is_free(children - {layout.SNAPSHOT.strip("/")}, where=self._place(""))
            return None
        there = self._read_cluster(found)
        if there.cluster_id != cluster_id:
            raise StoreRefusedError(
                f"{self._place('')} in ZooKeeper has cluster {there.cluster_id} already, and not {cluster_id}; name a "
                "chroot that is empty or not there yet; or, if that cluster was made by mistake and has no topics, "
                "delete it (deleteall, in ZooKeeper's zkCli)"
            )
        return there

    async def _put(self, path: str, data: bytes) -> int:
        """Have a node hold these bytes; returns the version of it that does."""
        connection = self._open_connection()
        while True:
            found = await connection.get(path)
            if found is not None and found.data == data:
                return found.version

            def write(transaction: "Transaction", found: "Node | None" = found) -> None:
                if found is None:
                    transaction.create(path, data)
                else:
                    transaction.set(path, data, found.version)

            await connection.commit(write)

    def _read_cluster(self, node: "Node") -> layout.Cluster:
        cluster = layout.read(layout.Cluster, node.data, where=self._place(CLUSTER))
        if cluster.penstock > layout.FORMAT:
            raise StoreRefusedError(
                f"{self._place('')} in ZooKeeper has format {cluster.penstock}, and this Penstock knows up to "
                f"{layout.FORMAT}; upgrade Penstock"
            )
        return cluster

    async def _wait_for_end_of_member(self, broker_id: int, found: "Node", deadline: float) -> None:
        """Return when the member is no longer the one that was found."""
        connection = self._open_connection()
        path = layout.broker_path(broker_id)

        async def is_another(change: "Change | None") -> bool:
            node = await connection.exists(path, change)
            return node is None or node.created != found.created

        try:
            async with asyncio.timeout_at(deadline):
                await self._wait_until(path, is_another)
        except TimeoutError:
            raise StoreRefusedError(
                f"broker {broker_id} is in the cluster already, with another data folder: give this broker another "
                "node id, or stop the other one"
            ) from None

    def _folder_of(self, path: str, node: "Node") -> str:
        return layout.read(Broker, node.data, where=self._place(path)).folder

    async def _members_of(self, names: list[str]) -> dict[int, Member]:
        connection = self._open_connection()
        nodes = await asyncio.gather(*(connection.get(f"{BROKERS}/{name}") for name in names))
        members = {}
        for name, node in zip(names, nodes, strict=True):
            if node is not None:
                broker = layout.read(Broker, node.data, where=self._place(f"{BROKERS}/{name}"))
                members[int(name)] = Member(node.created, broker.details, broker.folder)
        return dict(sorted(members.items()))

    async def _wait_until(self, path: str, condition: "Callable[[Change | None], Awaitable[bool]]") -> None:
        """Wait for what a watch of the path can tell of. The first look leaves no watch where there is nothing to wait
        for: it would fire when the node is deleted, long after."""
        connection = self._open_connection()
        while not await condition(None):
            change = connection.watch(path)
            if await condition(change):
                return
            await connection.wait_for(change)

    async def _is_there(self, index: int, entry: bytes) -> bool:
        """Whether an entry is this one, which no other controller can have written: it holds the controller's epoch."""
        connection = self._open_connection()
        await connection.sync()
        found = await connection.get(layout.entry_path(index))
        if found is None and await self._is_dropped(index):
            raise OutcomeUnknownError(index)
        return found is not None and found.data == entry

    async def _is_dropped(self, index: int) -> bool:
        return (await self._head())[0].first_kept > index

    async def _head(self) -> tuple[Head, int]:
        node = _expect(await self._open_connection().get(HEAD), self._place(HEAD))
        return layout.read(Head, node.data, where=self._place(HEAD)), node.version

    async def _newest_epoch(self) -> int:
        return _expect(await self._open_connection().get(EPOCH), self._place(EPOCH)).version

    async def _check_controller(self, controller_epoch: int) -> None:
        newest = await self._newest_epoch()
        if controller_epoch != newest or controller_epoch < 1:
            raise FencedError(controller_epoch, newest)

    async def _last(self) -> int:
        """The index of the last entry, by steps that double and halve: nothing lists the log."""
        connection = self._open_connection()
        await connection.sync()
        head, _ = await self._head()
        last, step = head.snapshot, 1
        while await connection.exists(layout.entry_path(last + step)) is not None:
            last, step = last + step, step * 2
        while step > 1:
            step //= 2
            if await connection.exists(layout.entry_path(last + step)) is not None:
                last += step
        return last

    async def _write(self, controller_epoch: int, path: str, data: bytes) -> None:
        """Create a node, or replace what an interrupted snapshot has left there."""

        def create(transaction: "Transaction") -> None:
            transaction.check(EPOCH, controller_epoch)
            transaction.create(path, data)

        def replace(transaction: "Transaction") -> None:
            transaction.check(EPOCH, controller_epoch)
            transaction.set(path, data)

        for build in (create, replace):
            outcome = await self._commit_until_known(build)
            if outcome.refused_at == 0:
                raise FencedError(controller_epoch, await self._newest_epoch())
            if outcome.is_done:
                return
        raise StoreError(f"{self._place(path)} vanished from ZooKeeper while a snapshot was written")

    async def _move_head(self, controller_epoch: int, head: Head, version: int) -> None:
        def move(transaction: "Transaction") -> None:
            transaction.check(EPOCH, controller_epoch)
            transaction.set(HEAD, layout.write(head), version)

        outcome = await self._commit_until_known(move)
        if outcome.refused_at == 0:
            raise FencedError(controller_epoch, await self._newest_epoch())
        if not outcome.is_done:
            await self._open_connection().sync()
            # Refused because it was done before the connection was lost; only this controller can have done it.
            assert (await self._head())[0] == head, "two snapshots at once with one controller epoch"

    async def _delete_snapshots(self, *, before: int) -> None:
        connection = self._open_connection()
        for name in await connection.children(layout.SNAPSHOT):
            if int(name) < before:
                folder = f"{layout.SNAPSHOT}/{name}"
                await self._delete([f"{folder}/{chunk}" for chunk in await connection.children(folder)])
                await self._delete([folder])

    async def _trim(self, first: int, end: int) -> None:
        """Delete entries below `end`, and those below `first` that a broken off trimming has left."""
        connection = self._open_connection()
        while first > 1 and await connection.exists(layout.entry_path(first - 1)) is not None:
            first = max(1, first - layout.TRIM_ENTRIES)
        for start in range(first, end, layout.TRIM_ENTRIES):
            indexes = range(start, min(start + layout.TRIM_ENTRIES, end))
            await self._delete([layout.entry_path(index) for index in indexes])

    async def _delete(self, paths: list[str]) -> None:
        """Delete nodes, of which some may be gone; up to TRIM_ENTRIES in a request."""
        for start in range(0, len(paths), layout.TRIM_ENTRIES):
            some = paths[start : start + layout.TRIM_ENTRIES]
            if not (await self._commit_until_known(partial(_delete, paths=some))).is_done:
                for path in some:
                    await self._commit_until_known(partial(_delete, paths=[path]))

    async def _commit_until_known(self, build: "Callable[[Transaction], object]") -> "Outcome":
        """Commit what may be tried again when its outcome is unknown: if it was done, it is refused then."""
        connection = self._open_connection()
        while (outcome := await connection.commit(build)).is_unknown:
            pass
        return outcome

    def _open_connection(self) -> "Connection":
        if self._connection is None:
            raise StoreClosedError
        return self._connection

    def _place(self, path: str) -> str:
        """A path as an operator sees it."""
        return self._address.chroot + path or "/"


def _append(transaction: "Transaction", *, controller_epoch: int, index: int, entry: bytes) -> None:
    transaction.check(EPOCH, controller_epoch)
    if index == 1:
        # No snapshot has ever been saved: else entry 1 may have been there, and be dropped.
        transaction.check(HEAD, 0)
    else:
        transaction.check(layout.entry_path(index - 1), -1)
    transaction.create(layout.entry_path(index), entry)


def _replace_member(transaction: "Transaction", *, path: str, data: bytes, version: int, is_there: bool) -> None:
    transaction.set(BROKERS, b"", version)
    if is_there:
        transaction.delete(path)
    transaction.create(path, data, ephemeral=True)


def _delete(transaction: "Transaction", *, paths: list[str]) -> None:
    for path in paths:
        transaction.delete(path)


def _expect(node: "Node | None", path: str) -> "Node":
    if node is None:
        raise StoreError(f"{path} is gone from ZooKeeper: another program has deleted what the cluster keeps there")
    return node
