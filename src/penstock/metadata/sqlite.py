"""Implements the metadata store in a SQLite file with one owner, which is the default on a single host.

    <path>          the database; its user_version is the version of this schema
    <path>.lock     held by the process that has it open

    facts           one row: cluster id, and the newest broker epoch and controller epoch given away
    entries         the metadata log
    snapshots       at most one row: the newest snapshot
    secrets         one row, since schema 2: what only the brokers of the cluster know

Members and the lease last as long as the session, which is the only one, and are not stored.
"""

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Final, ParamSpec, TypeVar

from penstock.metadata.sessions import Session, SessionTable
from penstock.metadata.store import (
    MAX_SLICE_BYTES,
    MAX_SLICE_ENTRIES,
    Arrivals,
    ConflictError,
    Contact,
    EntriesDroppedError,
    EntryTooLargeError,
    FencedError,
    Member,
    StoreClosedError,
    StoreError,
    StoreRefusedError,
    new_cluster_id,
    new_secret,
)

MAX_ENTRY_BYTES: Final = 16 * 1024 * 1024
SCHEMA_VERSION: Final = 2

_SCHEMA_1 = (
    """CREATE TABLE facts (
        only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
        cluster_id TEXT NOT NULL,
        broker_epoch INTEGER NOT NULL,
        controller_epoch INTEGER NOT NULL
    )""",
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, data BLOB NOT NULL)",
    """CREATE TABLE snapshots (
        only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
        number INTEGER NOT NULL,
        data BLOB NOT NULL
    )""",
    "PRAGMA user_version = 1",
)
_SCHEMA_2 = (
    "CREATE TABLE secrets (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), data BLOB NOT NULL)",
    "PRAGMA user_version = 2",
)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class SqliteStore:
    """The folder of the path must exist. All work with the file is done in one thread, a transaction in a call."""

    max_entry_bytes: Final = MAX_ENTRY_BYTES
    session: Final = 1

    def __init__(self, path: str) -> None:
        self._path = path
        self._database = _Database(path)
        self._thread: ThreadPoolExecutor | None = None
        self._arrivals = Arrivals()
        self._table = SessionTable()
        self._session = Session()

    @property
    def contact(self) -> Contact:
        return Contact.LOST if self._thread is None else Contact.GOOD

    async def wait_for_contact(self, known: Contact, session: int) -> None:
        await self._wait_until(lambda: known is not Contact.GOOD or session != self.session)

    async def open(self) -> None:
        assert self._thread is None, "the metadata store is open already"
        self._thread = ThreadPoolExecutor(1, "metadata")
        self._arrivals = Arrivals()
        self._session = Session()
        try:
            self._arrivals.announce(await self._run(self._database.open))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._thread is None:
            return
        closed = asyncio.get_running_loop().run_in_executor(self._thread, self._database.close)
        self._thread.shutdown(wait=False)
        self._thread = None
        self._arrivals.close()
        self._table.end(self._session, StoreClosedError)
        # Whatever happens to the caller, the file is closed and its lock released.
        await asyncio.shield(closed)

    async def cluster_id(self) -> str:
        return await self._run(self._database.cluster_id)

    async def secret(self) -> bytes:
        return await self._run(self._database.secret)

    async def register(self, broker_id: int, details: bytes, *, folder: str) -> int:
        self._check_open()
        # There is no other session, whose end would be worth waiting for.
        return await self._table.register(
            self._session,
            broker_id,
            details,
            folder=folder,
            patience_seconds=0,
            new_epoch=partial(self._run, self._database.grow, "broker_epoch"),
        )

    async def members(self) -> dict[int, Member]:
        self._check_open()
        return self._table.members()

    async def wait_for_members(self, known: Mapping[int, int]) -> None:
        before = dict(known)
        await self._wait_until(lambda: self._table.epochs() != before)

    async def take_controller_lease(self, broker_id: int) -> int | None:
        self._check_open()
        return await self._table.take_lease(
            self._session, broker_id, new_epoch=partial(self._run, self._database.grow, "controller_epoch")
        )

    async def release_controller_lease(self) -> None:
        self._check_open()
        self._table.release_lease(self._session)

    async def controller(self) -> tuple[int, int] | None:
        self._check_open()
        return self._table.controller()

    async def wait_for_lease(self) -> None:
        await self._wait_until(lambda: self._table.controller() is None)

    async def append(self, controller_epoch: int, index: int, entry: bytes) -> None:
        self._check_open()
        if len(entry) > MAX_ENTRY_BYTES:
            raise EntryTooLargeError(len(entry), MAX_ENTRY_BYTES)
        loop, arrivals = asyncio.get_running_loop(), self._arrivals

        def append_and_announce() -> None:
            self._database.append(controller_epoch, index, entry)
            # Done here, because a caller that was cancelled meanwhile cannot do it.
            loop.call_soon_threadsafe(arrivals.announce, index)

        await self._run(append_and_announce)

    async def entries(self, after: int) -> list[tuple[int, bytes]]:
        return await self._run(self._database.entries, after)

    async def wait_for_entries(self, after: int) -> None:
        self._check_open()
        await self._arrivals.wait(after)

    async def save_snapshot(self, controller_epoch: int, index: int, data: bytes) -> None:
        await self._run(self._database.save_snapshot, controller_epoch, index, data)

    async def load_snapshot(self) -> tuple[int, bytes] | None:
        return await self._run(self._database.load_snapshot)

    def _check_open(self) -> None:
        if self._thread is None:
            raise StoreClosedError

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        self._check_open()
        while not condition():
            await self._table.changes.wait()
            self._check_open()

    async def _run(
        self, function: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        self._check_open()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: function(*arguments, **named))
        except sqlite3.Error as error:
            raise StoreError(
                f"the metadata store {self._path} failed: {error}; see whether its disk is full"
            ) from error


def connect(path: str) -> sqlite3.Connection:
    """A connection on which a commit is durable when it returns, and which begins transactions only when told to."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        # On macOS, where a sync stops at the cache of the drive, these go further; elsewhere they do nothing.
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
    except BaseException:
        connection.close()
        raise
    return connection


class _Database:
    """The file. Used by one thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock: int | None = None
        self._connection: sqlite3.Connection | None = None

    def open(self) -> int:
        """Take the file, make it if need be, and return the index of the last entry. After an error, close."""
        try:
            self._lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Metadata can hold secrets: the file is for its owner, and what SQLite puts beside it likewise.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._connection = connect(self._path)
            self._prepare_schema(self._connection)
            return self._last()
        except BlockingIOError:
            raise StoreRefusedError(
                f"{self._path} is in use by another process; stop it, or choose another data folder"
            ) from None
        except (OSError, sqlite3.Error) as error:
            raise StoreRefusedError(
                f"{self._path} cannot be opened: {error}; check its folder and permissions, or restore a backup"
            ) from error

    def close(self) -> None:
        try:
            if self._connection is not None:
                self._connection.close()
        finally:
            self._connection = None
            if self._lock is not None:
                os.close(self._lock)
            self._lock = None

    def cluster_id(self) -> str:
        (cluster_id,) = self._row("SELECT cluster_id FROM facts")
        assert isinstance(cluster_id, str)
        return cluster_id

    def secret(self) -> bytes:
        (secret,) = self._row("SELECT data FROM secrets")
        assert isinstance(secret, bytes)
        return secret

    def grow(self, epoch: str) -> int:
        """Return the next broker epoch or controller epoch."""
        with self._begin() as connection:
            connection.execute(f"UPDATE facts SET {epoch} = {epoch} + 1")
            return self._number(f"SELECT {epoch} FROM facts")

    def append(self, controller_epoch: int, index: int, entry: bytes) -> None:
        with self._begin() as connection:
            self._check_controller(controller_epoch)
            last = self._last()
            if index != last + 1:
                raise ConflictError(index, last)
            connection.execute("INSERT INTO entries VALUES (?, ?)", (index, entry))

    def entries(self, after: int) -> list[tuple[int, bytes]]:
        if after + 1 < self._number("SELECT coalesce(min(number), 0) FROM entries"):
            raise EntriesDroppedError(after + 1)
        found: list[tuple[int, bytes]] = []
        room = MAX_SLICE_BYTES
        query = "SELECT number, data FROM entries WHERE number > ? ORDER BY number LIMIT ?"
        with closing(self._open_connection().execute(query, (after, MAX_SLICE_ENTRIES))) as rows:
            for index, entry in rows:
                room -= len(entry)
                if found and room < 0:
                    break
                found.append((index, entry))
        return found

    def save_snapshot(self, controller_epoch: int, index: int, data: bytes) -> None:
        with self._begin() as connection:
            self._check_controller(controller_epoch)
            last = self._last()
            assert 0 < index <= last, f"a snapshot as of entry {index}, and the last is {last}"
            previous = self._number("SELECT coalesce(max(number), 0) FROM snapshots")
            if index > previous:
                connection.execute("DELETE FROM entries WHERE number <= ?", (previous,))
                connection.execute("REPLACE INTO snapshots VALUES (1, ?, ?)", (index, data))

    def load_snapshot(self) -> tuple[int, bytes] | None:
        found = self._open_connection().execute("SELECT number, data FROM snapshots").fetchone()
        return None if found is None else (found[0], found[1])

    def _prepare_schema(self, connection: sqlite3.Connection) -> None:
        version = self._number("PRAGMA user_version")
        if version > SCHEMA_VERSION:
            raise StoreRefusedError(
                f"{self._path} has schema {version}, and this Penstock knows up to {SCHEMA_VERSION}; upgrade Penstock"
            )
        if version == 0 and self._number("SELECT count(*) FROM sqlite_master"):
            raise StoreRefusedError(f"{self._path} is a database of something else; choose another data folder")
        if version < SCHEMA_VERSION:
            with self._begin():
                if version < 1:
                    self._execute_all(connection, _SCHEMA_1)
                    connection.execute("INSERT INTO facts VALUES (1, ?, 0, 0)", (new_cluster_id(),))
                self._execute_all(connection, _SCHEMA_2)
                connection.execute("INSERT INTO secrets VALUES (1, ?)", (new_secret(),))

    @staticmethod
    def _execute_all(connection: sqlite3.Connection, statements: Iterable[str]) -> None:
        for statement in statements:
            connection.execute(statement)

    def _check_controller(self, controller_epoch: int) -> None:
        newest = self._number("SELECT controller_epoch FROM facts")
        if controller_epoch != newest or controller_epoch == 0:
            raise FencedError(controller_epoch, newest)

    def _open_connection(self) -> sqlite3.Connection:
        assert self._connection is not None, "the thread ends with the connection"
        return self._connection

    def _begin(self) -> sqlite3.Connection:
        """As a context: a transaction, committed at the end and rolled back after an error."""
        connection = self._open_connection()
        connection.execute("BEGIN IMMEDIATE")
        return connection

    def _last(self) -> int:
        return self._number("SELECT coalesce(max(number), 0) FROM entries")

    def _number(self, query: str) -> int:
        (number,) = self._row(query)
        assert isinstance(number, int)
        return number

    def _row(self, query: str) -> tuple[object, ...]:
        row: tuple[object, ...] = self._open_connection().execute(query).fetchone()
        return row
