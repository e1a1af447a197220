"""Holds the rules of membership and of the controller's lease among the sessions that one process keeps a store for:
all brokers of a store in memory, the clients of a store server, and the single owner of a SQLite file."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.metadata.store import Member, SessionLostError, StoreClosedError, StoreRefusedError


class Changes:
    """Wakes all waiting tasks at every change. A task that looks, finds nothing and waits without an await in between
    misses no change."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        await self._changed.wait()


class Session:
    """The session of one broker. What it holds, the table knows; `ended` is the error of its calls once it is over."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended: type[SessionLostError] | type[StoreClosedError] | None = None


class SessionTable:
    """Members and the lease, by the session that holds them. New epochs come from the store that keeps them, by
    `new_epoch`, and are above all before them."""

    def __init__(self) -> None:
        self.changes = Changes()
        self._members: dict[int, tuple[Session, Member]] = {}
        self._lease: tuple[Session, int, int] | None = None
        self._taking_lease = asyncio.Lock()

    def end(self, session: Session, error: type[SessionLostError] | type[StoreClosedError]) -> None:
        """The session is over, and with it what it held."""
        session.ended = error
        self._drop(session)
        self.changes.wake()

    def members(self) -> dict[int, Member]:
        return {broker_id: member for broker_id, (_, member) in self._members.items()}

    def epochs(self) -> dict[int, int]:
        """The epoch of every member, which is what tells one registration from the next."""
        return {broker_id: member.broker_epoch for broker_id, (_, member) in self._members.items()}

    def controller(self) -> tuple[int, int] | None:
        return None if self._lease is None else self._lease[1:]

    async def register(
        self,
        session: Session,
        broker_id: int,
        details: bytes,
        *,
        folder: str,
        patience_seconds: float,
        new_epoch: Callable[[], Awaitable[int]],
    ) -> int:
        """Make the broker a member, in the place of its own dead process if need be. A member from another folder has
        the time of our patience to go."""
        deadline = asyncio.get_running_loop().time() + patience_seconds
        while True:
            await self._wait_for_place(session, broker_id, folder, deadline)
            epoch = await new_epoch()
            self._check(session)
            # Another broker may have taken the place meanwhile. Then the epoch is never used.
            if not self._is_taken(broker_id, folder):
                break
        self._replace(session, broker_id, Member(epoch, details, folder))
        return epoch

    async def take_lease(
        self, session: Session, broker_id: int, *, new_epoch: Callable[[], Awaitable[int]]
    ) -> int | None:
        # One at a time: of two new epochs the lower would hold the lease, and be fenced by the higher.
        async with self._taking_lease:
            self._check(session)
            if self._lease is None:
                epoch = await new_epoch()
                self._check(session)
                self._lease = (session, broker_id, epoch)
                self.changes.wake()
            holder, controller_id, epoch = self._lease
            return epoch if holder is session and controller_id == broker_id else None

    def release_lease(self, session: Session) -> None:
        if self._lease is not None and self._lease[0] is session:
            self._lease = None
            self.changes.wake()

    async def _wait_for_place(self, session: Session, broker_id: int, folder: str, deadline: float) -> None:
        self._check(session)
        if not self._is_taken(broker_id, folder):
            return
        try:
            async with asyncio.timeout_at(deadline):
                while self._is_taken(broker_id, folder):
                    await self.changes.wait()
                    self._check(session)
        except TimeoutError:
            raise StoreRefusedError(
                f"broker {broker_id} is in the cluster already, with another data folder: give this broker another "
                "node id, or stop the other one"
            ) from None

    def _is_taken(self, broker_id: int, folder: str) -> bool:
        found = self._members.get(broker_id)
        return found is not None and found[1].folder != folder

    def _replace(self, session: Session, broker_id: int, member: Member) -> None:
        before = self._members.get(broker_id)
        if before is not None:
            if before[0] is not session:
                # It held the lock of this data folder: its process is gone, and will not use the lease either.
                self.release_lease(before[0])
            if before[1].broker_epoch > member.broker_epoch:
                return
        self._members[broker_id] = (session, member)
        self.changes.wake()

    def _drop(self, session: Session) -> None:
        self._members = {
            broker_id: (holder, member)
            for broker_id, (holder, member) in self._members.items()
            if holder is not session
        }
        if self._lease is not None and self._lease[0] is session:
            self._lease = None

    @staticmethod
    def _check(session: Session) -> None:
        if session.ended is not None:
            raise session.ended
