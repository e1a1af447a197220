"""A metadata store with faults: what a broker asks of it is late, is lost on the way or on the way back, or is the last
thing that the broker does."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.metadata.memory import MemoryStore
from penstock.metadata.sessions import Changes
from penstock.metadata.store import (
    ConflictError,
    Contact,
    EntriesDroppedError,
    FencedError,
    Member,
    OutcomeUnknownError,
    SessionLostError,
    StoreClosedError,
    StoreError,
)

if TYPE_CHECKING:
    from tools.simulate.controller.node import Node

T = TypeVar("T")

# Requests that may arrive after the process that sent them has died, or has stopped waiting for them.
OUTLIVING: Final = frozenset({"append", "save_snapshot", "take_controller_lease"})


class FaultyStore:
    """Requests of one session arrive in order, as through one connection. Contact and session are what the broker
    believes, which may be old. The store goes on while its broker is paused."""

    def __init__(self, inner: MemoryStore, node: "Node") -> None:
        self.inner = inner
        self.is_open = False
        self._node = node
        self._world = node.world
        self._seen = (Contact.LOST, 0)
        # When the broker learned that.
        self.seen_at = 0.0
        self._changes = Changes()
        self._channel: asyncio.Future[None] | None = None
        self._on_the_way: set[asyncio.Future[None]] = set()
        self._is_dead = False
        self._cuts = 0
        # Until then the broker does not notice what has become of its session.
        self.stale_until = 0.0

    # Faults

    def die(self) -> None:
        """The process is gone. What it has sent may arrive yet."""
        self._is_dead = True
        self._changes.wake()
        self._abandon_if_done()

    def cut(self) -> None:
        """Once more than it is mended."""
        self._cuts += 1
        if self.is_open and not self._is_dead:
            self.inner.cut()

    def mend(self) -> None:
        self._cuts -= 1
        if not self._cuts and self.is_open and not self._is_dead:
            self.inner.mend()

    @property
    def is_cut(self) -> bool:
        return self._cuts > 0

    def _abandon_if_done(self) -> None:
        if self._is_dead and not self._on_the_way and self.is_open:
            self.is_open = False
            self.inner.abandon()

    # The session

    @property
    def max_entry_bytes(self) -> int:
        return self.inner.max_entry_bytes

    @property
    def contact(self) -> Contact:
        return self._seen[0]

    @property
    def session(self) -> int:
        return self._seen[1]

    async def wait_for_contact(self, known: Contact, session: int) -> None:
        if self._world.spurious():
            await asyncio.sleep(0)
            return
        while self._seen == (known, session):
            self._check()
            await self._changes.wait()
        self._check()

    async def open(self) -> None:
        async def opened() -> None:
            await self.inner.open()
            self.is_open = True
            self._seen, self.seen_at = (self.inner.contact, self.inner.session), self._world.loop.time()
            if self._cuts:
                self.inner.cut()
            self._world.loop.create_task(self._watch(), context=self._world.new_owner("watch").context())

        await self._ask("open", opened)

    async def close(self) -> None:
        async def closed() -> None:
            self.is_open = False
            await self.inner.close()

        await self._ask("close", closed)
        self._is_dead = True
        self._changes.wake()

    async def _watch(self) -> None:
        """Tell the broker how it stands with the store, once it can take notice."""
        inner, world = self.inner, self._world
        try:
            while True:
                await self._node.running.wait()
                if self.stale_until > world.loop.time():
                    await asyncio.sleep(self.stale_until - world.loop.time())
                    continue
                found = (inner.contact, inner.session)
                if found != self._seen:
                    self._seen, self.seen_at = found, world.loop.time()
                    world.note(self._node, f"contact {found[0].value}, session {found[1]}")
                    if found[0] is Contact.DOUBTFUL:
                        world.reach("contact was doubtful")
                    self._changes.wake()
                await inner.wait_for_contact(*found)
        except StoreClosedError:
            pass

    # What the broker asks for

    async def cluster_id(self) -> str:
        return await self._ask("cluster_id", self.inner.cluster_id)

    async def secret(self) -> bytes:
        return await self._ask("secret", self.inner.secret)

    async def register(self, broker_id: int, details: bytes, *, folder: str) -> int:
        async def registered() -> int:
            before = self._world.shared.table.members().get(broker_id)
            epoch = await self.inner.register(broker_id, details, folder=folder)
            if before is not None:
                self._world.reach("a registration replaced another of a session that went on")
            self._world.note(self._node, f"registered, epoch {epoch}")
            return epoch

        return await self._ask("register", registered)

    async def members(self) -> dict[int, Member]:
        return await self._ask("members", self.inner.members)

    async def wait_for_members(self, known: Mapping[int, int]) -> None:
        await self._wait(lambda: self.inner.wait_for_members(known))

    async def take_controller_lease(self, broker_id: int) -> int | None:
        return await self._ask("take_controller_lease", lambda: self.inner.take_controller_lease(broker_id))

    async def release_controller_lease(self) -> None:
        await self._ask("release_controller_lease", self.inner.release_controller_lease)

    async def controller(self) -> tuple[int, int] | None:
        return await self._ask("controller", self.inner.controller)

    async def wait_for_lease(self) -> None:
        await self._wait(self.inner.wait_for_lease)

    async def append(self, controller_epoch: int, index: int, entry: bytes) -> None:
        await self._ask("append", lambda: self._append(controller_epoch, index, entry))

    async def entries(self, after: int) -> list[tuple[int, bytes]]:
        try:
            return await self._ask("entries", lambda: self.inner.entries(after))
        except EntriesDroppedError:
            self._world.reach("a snapshot had replaced what a broker was to read")
            self._world.note(self._node, f"entries after {after} are gone")
            raise

    async def wait_for_entries(self, after: int) -> None:
        await self._wait(lambda: self.inner.wait_for_entries(after))

    async def save_snapshot(self, controller_epoch: int, index: int, data: bytes) -> None:
        async def saved() -> None:
            try:
                await self.inner.save_snapshot(controller_epoch, index, data)
            except FencedError:
                self._world.reach("a snapshot of a former controller was refused")
                raise
            self._world.note(self._node, f"snapshot of {index} in epoch {controller_epoch}")
            self._world.ledger.snapshot_saved(index, data)

        await self._ask("save_snapshot", saved)

    async def load_snapshot(self) -> tuple[int, bytes] | None:
        return await self._ask("load_snapshot", self.inner.load_snapshot)

    # On the way

    async def _append(self, controller_epoch: int, index: int, entry: bytes) -> None:
        world, node = self._world, self._node
        told = f"append {index} in epoch {controller_epoch}"
        loss = world.loss()
        if loss == "no room":
            world.reach("the store refused an entry")
            world.note(node, f"{told}: no room")
            raise StoreError("no room for an entry")
        if loss == "request":
            await self._lose_contact(index, f"{told}: lost on the way")
            world.reach("a lost request was sent again")
        if self._is_dead:
            world.reach("an entry arrived after its writer had died")
        try:
            await self.inner.append(controller_epoch, index, entry)
        except FencedError:
            world.note(node, f"{told}: fenced")
            world.reach("a former controller was fenced")
            raise
        except ConflictError as error:
            world.problem(f"broker {node.broker_id} led without having caught up: {error}")
            raise
        world.note(node, f"{told}: done, {len(entry)} bytes")
        world.ledger.look(node, controller_epoch)
        if loss == "duplicate":
            duplicate = self._append_again(controller_epoch, index, entry)
            world.loop.create_task(duplicate, context=world.new_owner("duplicate").context())
        if loss == "answer":
            await self._lose_contact(index, f"{told}: its answer is lost")
            world.reach("a lost answer was found out")

    async def _append_again(self, controller_epoch: int, index: int, entry: bytes) -> None:
        """A duplicate of a request that was carried out."""
        world = self._world
        await asyncio.sleep(world.short_delay())
        try:
            await self.inner.append(controller_epoch, index, entry)
        except (ConflictError, FencedError) as error:
            world.reach("a duplicate of an append was refused")
            world.note(self._node, f"duplicate of append {index} in epoch {controller_epoch}: {type(error).__name__}")
        except (SessionLostError, StoreClosedError):
            pass
        else:
            world.problem(f"entry {index} was appended twice")

    async def _lose_contact(self, index: int, told: str) -> None:
        """Returns when there is contact in this session again."""
        world = self._world
        world.note(self._node, told)
        if self._is_dead:
            raise StoreClosedError
        self.cut()
        world.loop.call_later(world.outage(), self.mend)
        try:
            await self.inner.controller()
        except (SessionLostError, StoreClosedError):
            world.ledger.outcome_unknown(index)
            raise OutcomeUnknownError(index) from None

    async def _ask(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        self._check()
        world = self._world
        before, self._channel = self._channel, world.loop.create_future()
        sent = world.loop.create_task(
            self._deliver(name, work, before, self._channel), context=world.new_owner(name).context()
        )
        self._on_the_way.add(self._channel)
        sent.add_done_callback(partial(self._delivered, self._channel))
        try:
            return await asyncio.shield(sent)
        except asyncio.CancelledError:
            # It is on its way all the same, or has never left.
            if name not in OUTLIVING or world.random.random() < 0.5:
                sent.cancel()
            raise

    async def _deliver(
        self,
        name: str,
        work: Callable[[], Awaitable[T]],
        before: "asyncio.Future[None] | None",
        done: "asyncio.Future[None]",
    ) -> T:
        world, node = self._world, self._node
        try:
            delay, fault = world.request_fault(name)
            if fault == "before":
                world.strike(node, f"before {name}")
            if delay:
                await asyncio.sleep(delay)
            if before is not None and not before.done():
                await asyncio.wait([before])
            if self._is_dead and name not in OUTLIVING:
                raise StoreClosedError
            result = await work()
        finally:
            self._arrived(done)
        if fault == "after":
            world.strike(node, f"after {name}")
        if back := world.short_delay():
            await asyncio.sleep(back)
        return result

    async def _wait(self, work: Callable[[], Awaitable[None]]) -> None:
        self._check()
        world = self._world
        if world.spurious():
            world.reach("a wake-up came without a cause")
            await asyncio.sleep(world.short_delay())
            return

        async def waited() -> None:
            await work()
            if delay := world.short_delay():
                await asyncio.sleep(delay)

        task: asyncio.Task[Any] = world.loop.create_task(waited(), context=world.new_owner("wait").context())
        await task

    def _check(self) -> None:
        if self._is_dead:
            raise StoreClosedError

    def _arrived(self, done: "asyncio.Future[None]") -> None:
        """The next request may come."""
        if not done.done():
            done.set_result(None)
            self._on_the_way.remove(done)
            self._abandon_if_done()

    def _delivered(self, done: "asyncio.Future[None]", sent: "asyncio.Task[Any]") -> None:
        """A request that was cancelled before it left has not arrived otherwise."""
        self._arrived(done)
        if not sent.cancelled():
            # Whether its outcome is waited for or not.
            sent.exception()
