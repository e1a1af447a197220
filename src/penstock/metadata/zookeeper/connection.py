"""Runs a kazoo client in an event loop: calls are awaited, and contact is judged by the clock of this process.

kazoo calls back in threads of its own. They only ever schedule work in the loop, and nothing here blocks it.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    WriterNotClosedException,
    ZookeeperError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from penstock.metadata.store import Contact, SessionLostError, StoreClosedError, StoreError

PROBES: Final = 6
"""How often in a session the leader of ZooKeeper is asked for a word."""

FIRST_DELAY_SECONDS: Final = 0.05
MAX_DELAY_SECONDS: Final = 1.0
"""The rest between attempts to connect, which doubles."""

# It warns about every attempt to connect, and at DEBUG it writes what nodes hold, the secret too. What users should
# know is told by the broker, from `contact`.
_log = logging.getLogger("penstock.metadata.kazoo")
_log.setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class Node:
    """`owner` is the session that an ephemeral node ends with, 0 for others."""

    data: bytes
    version: int
    created: int
    owner: int
    children: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a transaction. `refused_at` is the place of the operation because of which nothing was done; when
    that is unknown, the connection was lost before an answer came."""

    is_done: bool
    refused_at: int | None = None

    @property
    def is_unknown(self) -> bool:
        return not self.is_done and self.refused_at is None


class Change:
    """A watch of one node, which fires once: when the node has changed, or the connection was lost (kazoo calls watches
    then, since ZooKeeper has forgotten them). Its waiters look again, and compare."""

    __slots__ = ("_connection", "is_over", "waiting", "where")

    def __init__(self, connection: "Connection", where: str) -> None:
        self._connection = connection
        self.where = where
        self.is_over = False
        self.waiting: set[asyncio.Future[None]] = set()

    def __call__(self, _event: object) -> None:
        """Called by a thread of kazoo's."""
        self._connection.schedule(self._connection.end_change, self)


class Connection:
    """A session with ZooKeeper after another. Paths are those below the chroot."""

    def __init__(self, hosts: str, chroot: str, session_seconds: float) -> None:
        self._hosts = hosts
        self._chroot = chroot
        self._session_seconds = session_seconds
        self._loop = asyncio.get_running_loop()
        self._client: KazooClient | None = None
        self._probing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_connected = False
        self.session = 0
        self.session_id = 0
        # When the newest question was sent that the leader has answered: it has heard of us since then.
        self._heard = -math.inf
        self._told = Contact.LOST
        self._contact_changed = asyncio.Event()
        self._pending: set[asyncio.Future[Any]] = set()
        self._connecting: set[asyncio.Future[None]] = set()
        self._probe_now = asyncio.Event()
        self._stopping: set[asyncio.Future[None]] = set()
        self._changes: dict[str, Change] = {}

    @property
    def contact(self) -> Contact:
        silence = time.monotonic() - self._heard
        if silence < self._session_seconds * 2 / 3:
            return Contact.GOOD
        return Contact.DOUBTFUL if silence < self._session_seconds else Contact.LOST

    async def open(self) -> None:
        """Return when ZooKeeper has answered; the caller does not wait for ever, and closes."""
        self._client = self._start_client()
        self._probing = asyncio.create_task(self._probe())
        while self.contact is Contact.LOST:
            await self._contact_changed.wait()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        self._heard = -math.inf
        if self._timer is not None:
            self._timer.cancel()
        self._fail_pending(StoreClosedError)
        self._tell()
        assert self._probing is not None
        self._probing.cancel()
        await asyncio.wait([self._probing])
        # It waits for ZooKeeper's word that the session has ended, as long as there is a connection.
        self._stop_client(client)
        await asyncio.shield(asyncio.gather(*self._stopping))

    async def wait_for_contact(self, known: Contact, session: int) -> None:
        while self.contact is known and self.session == session:
            self._check_open()
            await self._contact_changed.wait()
        self._check_open()

    async def reach(self) -> None:
        """Return when there is a connection. Raises SessionLostError when there was none for the whole session."""
        self._check_open()
        if self.contact is Contact.LOST:
            raise SessionLostError
        while not self._is_connected:
            await self._wait_in(self._connecting)

    async def get(self, path: str) -> Node | None:
        found = await self._read(lambda client: client.get_async(self._chroot + path))
        return None if found is None else _node(*found)

    async def exists(self, path: str, change: Change | None = None) -> Node | None:
        stat = await self._read(lambda client: client.exists_async(self._place(path), watch=change))
        return None if stat is None else _node(b"", stat)

    async def children(self, path: str, change: Change | None = None) -> list[str]:
        """The names below a node that has few."""
        found = await self._read(lambda client: client.get_children_async(self._place(path), watch=change))
        return found or []

    async def sync(self) -> None:
        """Have the server that answers catch up with its leader."""
        await self._read(lambda client: client.sync_async(self._place("")))

    async def make_chroot(self) -> None:
        await self._read(lambda client: client.ensure_path_async(self._place("")))

    async def commit(self, build: Callable[["Transaction"], object]) -> Outcome:
        """Do all or nothing. What a node's being there, being gone or having changed forbids is refused; anything else
        that goes wrong is an error."""
        await self.reach()

        def send(client: KazooClient) -> Any:
            transaction = client.transaction()
            build(Transaction(transaction, self._chroot))
            return transaction.commit_async()

        try:
            return _outcome(await self._ask(send))
        except ConnectionLoss:
            return Outcome(is_done=False)
        except ZookeeperError as error:
            raise _failure(error) from error

    def watch(self, path: str) -> Change:
        """A watch to be given to `exists` or `children` of this path; there is one at a time."""
        return self._changes.setdefault(path, Change(self, path))

    async def wait_for(self, change: Change) -> None:
        self._check_open()
        if not change.is_over:
            await self._wait_in(change.waiting)

    def end_change(self, change: Change) -> None:
        if self._changes.get(change.where) is change:
            del self._changes[change.where]
        change.is_over = True
        _wake(change.waiting)

    def schedule(self, callback: Callable[..., None], *arguments: object) -> None:
        """Have the loop call this. The only thing that threads of kazoo's do."""
        # A loop that is closed no longer waits for anything.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _start_client(self) -> KazooClient:
        client = KazooClient(
            self._hosts,
            timeout=self._session_seconds,
            handler=Handler(self._session_seconds / len(self._hosts.split(","))),
            connection_retry=KazooRetry(max_tries=-1, delay=FIRST_DELAY_SECONDS, max_delay=MAX_DELAY_SECONDS),
            logger=_log,
        )
        client.add_listener(partial(self._state_changed, client))
        client.start_async()
        return client

    def _stop_client(self, client: KazooClient) -> None:
        stopping = self._loop.run_in_executor(None, _stop, client)
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)

    async def _read(self, send: Callable[[KazooClient], Any]) -> Any:
        """Ask until there is an answer, None if the node is not there; for calls that may be done twice."""
        while True:
            await self.reach()
            try:
                return await self._ask(send)
            except ConnectionLoss:
                continue
            except NoNodeError:
                return None
            except ZookeeperError as error:
                raise _failure(error) from error

    async def _ask(self, send: Callable[[KazooClient], Any]) -> Any:
        future: asyncio.Future[Any] = self._new_future()
        assert self._client is not None
        result = send(self._client)
        result.rawlink(partial(self.schedule, _settle, future))
        try:
            return await future
        except ConnectionClosedError:
            raise StoreClosedError from None
        except SessionExpiredError:
            raise SessionLostError from None

    async def _probe(self) -> None:
        """Ask the leader for a word, PROBES times in a session: a follower that was cut off would still answer."""
        while True:
            self._probe_now.clear()
            rest = self._session_seconds / PROBES
            if self._is_connected:
                asked = time.monotonic()
                try:
                    await self._ask(lambda client: client.sync_async("/"))
                    self._heard = asked
                    self._look()
                except (ConnectionLoss, SessionLostError):
                    rest = FIRST_DELAY_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._probe_now.wait()

    def _look(self) -> None:
        """Tell contact if it has changed, and look again when it changes next if no word comes."""
        if self._timer is not None:
            self._timer.cancel()
        contact = self.contact
        if contact is Contact.LOST:
            self._fail_pending(SessionLostError)
            if self._client is not None:
                # What comes after a lost session is another one, even if ZooKeeper has kept the old one for longer.
                self._stop_client(self._client)
                self._is_connected, self._client = False, self._start_client()
        else:
            share = 2 / 3 if contact is Contact.GOOD else 1
            passed = self._heard + self._session_seconds * share - time.monotonic()
            # A moment later, so that the threshold has been passed by then whatever the clock's steps are.
            self._timer = self._loop.call_later(max(passed, 0) + 0.001, self._look)
        if contact is not self._told:
            self._told = contact
            self._tell()

    def _tell(self) -> None:
        self._contact_changed.set()
        self._contact_changed = asyncio.Event()

    def _state_changed(self, client: KazooClient, state: str) -> None:
        """Called by a thread of kazoo's."""
        identity = client.client_id
        self.schedule(self._follow, client, state, identity[0] if identity else 0)

    def _follow(self, client: KazooClient, state: str, session_id: int) -> None:
        if client is not self._client:
            return
        self._is_connected = state == KazooState.CONNECTED
        if state == KazooState.LOST:
            self._heard = -math.inf
            self._look()
        elif self._is_connected:
            if session_id != self.session_id:
                self.session, self.session_id = self.session + 1, session_id
                self._tell()
            if self.contact is not Contact.GOOD:
                self._probe_now.set()
            _wake(self._connecting)

    async def _wait_in(self, room: set[asyncio.Future[None]]) -> None:
        waiting: asyncio.Future[None] = self._new_future()
        room.add(waiting)
        try:
            await waiting
        finally:
            room.discard(waiting)

    def _new_future(self) -> asyncio.Future[Any]:
        """A future that fails when the session is lost or closed."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future

    def _fail_pending(self, error: type[StoreError]) -> None:
        for future in list(self._pending):
            if not future.done():
                future.set_exception(error())

    def _check_open(self) -> None:
        if self._client is None:
            raise StoreClosedError

    def _place(self, path: str) -> str:
        return self._chroot + path or "/"


class Transaction:
    """Operations that are done together or not at all, on paths below the chroot."""

    def __init__(self, kazoo: TransactionRequest, chroot: str) -> None:
        self._kazoo = kazoo
        self._chroot = chroot

    def check(self, path: str, version: int) -> None:
        """The node is there, in this version; -1 is any."""
        self._kazoo.check(self._chroot + path, version)

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        self._kazoo.create(self._chroot + path, data, ephemeral=ephemeral)

    def set(self, path: str, data: bytes, version: int = -1) -> None:
        self._kazoo.set_data(self._chroot + path, data, version)

    def delete(self, path: str) -> None:
        self._kazoo.delete(self._chroot + path)


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no type hints
    """kazoo would wait a whole session for a host that does not answer, and never come to the next in time."""

    def __init__(self, connect_seconds: float) -> None:
        super().__init__()
        self._connect_seconds = connect_seconds

    def create_connection(self, *arguments: Any, timeout: float, **named: Any) -> Any:
        return super().create_connection(*arguments, timeout=min(timeout, self._connect_seconds), **named)


def _node(data: bytes, stat: Any) -> Node:
    return Node(data, stat.version, stat.czxid, stat.ephemeralOwner, stat.numChildren)


def _outcome(results: Iterable[object]) -> Outcome:
    """kazoo returns what failed instead of raising it, and says of the operations around it that they were undone."""
    for place, result in enumerate(results):
        if isinstance(result, NodeExistsError | NoNodeError | BadVersionError | NotEmptyError):
            return Outcome(is_done=False, refused_at=place)
        if isinstance(result, ZookeeperError) and not isinstance(result, RolledBackError | RuntimeInconsistency):
            raise result
    return Outcome(is_done=True)


def _failure(error: ZookeeperError) -> StoreError:
    return StoreError(f"ZooKeeper refuses: {error!r}; check its log, its disk, and the rights of the chroot")


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if result.exception is not None:
        future.set_exception(result.exception)
    else:
        future.set_result(result.value)


def _wake(waiting: set[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)


def _stop(client: KazooClient) -> None:
    try:
        client.stop()
        client.close()
    except WriterNotClosedException:
        _log.error("a connection to ZooKeeper does not end; it does when the process does")
