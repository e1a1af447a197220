"""Implements the metadata store by asking the store server of another process of this host.

While the server is away no broker can take the place of another, so contact is doubtful and never lost; when it is
back, all sessions are new.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from penstock.metadata.remote.wire import (
    CALLS,
    CHUNK_BYTES,
    FRAME_ROOM_BYTES,
    MAX_SNAPSHOT_BYTES,
    PROTOCOL,
    BrokenFrameError,
    Greeting,
    Piece,
    Reply,
    Request,
    exception,
    frame,
    max_frame_bytes,
    raw,
    read_frame,
)
from penstock.metadata.sessions import Changes
from penstock.metadata.store import (
    Contact,
    EntryTooLargeError,
    Member,
    OutcomeUnknownError,
    SessionLostError,
    StoreClosedError,
    StoreError,
    StoreRefusedError,
)

log = logging.getLogger(__name__)
R = TypeVar("R")

MAX_BACKOFF_SECONDS: Final = 1.0
FIRST_BACKOFF_SECONDS: Final = 0.02
MAX_ATTEMPTS: Final = 10
"""A request that costs its connection each time is not sent for ever."""
LOOKS_PER_SESSION: Final = 12
"""How often the server is greeted, and the time of its silence looked at."""


class RemoteStore:
    """`session_seconds` without a word, and the server lets another broker take the place of this one."""

    def __init__(self, path: str, session_seconds: float = 6.0) -> None:
        self._path = path
        self._session_seconds = session_seconds
        self._changes = Changes()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_open = False
        self._max_entry_bytes = 0
        self._connection: _Connection | None = None
        self._session_number = 0
        self._contact = Contact.LOST
        self._heard_at = 0.0
        self._saving = asyncio.Lock()
        self._loading = asyncio.Lock()

    @property
    def max_entry_bytes(self) -> int:
        return self._max_entry_bytes

    @property
    def contact(self) -> Contact:
        return self._contact

    @property
    def session(self) -> int:
        return self._session_number

    async def wait_for_contact(self, known: Contact, session: int) -> None:
        self._check_open()
        while self._contact is known and self._session_number == session:
            await self._changes.wait()
            self._check_open()

    async def open(self) -> None:
        """Raises StoreRefusedError if no server answers within the time of a session."""
        assert not self._is_open, "the metadata store is open already"
        loop = asyncio.get_running_loop()
        self._saving, self._loading = asyncio.Lock(), asyncio.Lock()
        try:
            async with asyncio.timeout(self._session_seconds):
                connection = await self._connect()
        except TimeoutError:
            raise StoreRefusedError(
                f"no metadata store answers at {self._path}; start its owner, which is `penstock serve --processes`"
            ) from None
        self._is_open, self._session_number = True, 0
        self._begin_session(connection)
        self._tasks = [loop.create_task(self._stay_connected(connection)), loop.create_task(self._watch_contact())]

    async def close(self) -> None:
        if not self._is_open:
            return
        self._is_open, self._contact = False, Contact.LOST
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(StoreClosedError)
        self._changes.wake()
        await asyncio.gather(*tasks, return_exceptions=True)
        if connection is not None:
            await connection.wait_closed()

    async def cluster_id(self) -> str:
        found: str = await self._ask("cluster_id")
        return found

    async def secret(self) -> bytes:
        found: bytes = await self._ask("secret")
        return found

    async def register(self, broker_id: int, details: bytes, *, folder: str) -> int:
        found: int = await self._ask("register", broker_id, details, folder)
        return found

    async def members(self) -> dict[int, Member]:
        found: dict[int, Member] = await self._ask("members")
        return found

    async def wait_for_members(self, known: Mapping[int, int]) -> None:
        await self._ask("wait_for_members", dict(known))

    async def take_controller_lease(self, broker_id: int) -> int | None:
        found: int | None = await self._ask("take_controller_lease", broker_id)
        return found

    async def release_controller_lease(self) -> None:
        await self._ask("release_controller_lease")

    async def controller(self) -> tuple[int, int] | None:
        found: tuple[int, int] | None = await self._ask("controller")
        return found

    async def wait_for_lease(self) -> None:
        await self._ask("wait_for_lease")

    async def append(self, controller_epoch: int, index: int, entry: bytes) -> None:
        self._check_open()
        if len(entry) > self._max_entry_bytes:
            raise EntryTooLargeError(len(entry), self._max_entry_bytes)
        is_again = False

        async def attempt(connection: _Connection) -> None:
            nonlocal is_again
            # The server looks for the entry first, if it may have been appended by a request whose answer was lost.
            question = (controller_epoch, index, entry, is_again)
            is_again = True
            await connection.ask("append", question)

        try:
            await self._insist(attempt)
        except (SessionLostError, StoreClosedError):
            if is_again:
                raise OutcomeUnknownError(index) from None
            raise

    async def entries(self, after: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = await self._ask("entries", after)
        return found

    async def wait_for_entries(self, after: int) -> None:
        await self._ask("wait_for_entries", after)

    async def save_snapshot(self, controller_epoch: int, index: int, data: bytes) -> None:
        self._check_open()
        if len(data) > MAX_SNAPSHOT_BYTES:
            raise StoreError(f"a snapshot of {len(data)} bytes for a metadata store that takes {MAX_SNAPSHOT_BYTES}")

        async def save(connection: _Connection) -> None:
            for offset in range(0, len(data) or 1, CHUNK_BYTES):
                piece = Piece(index, len(data), data[offset : offset + CHUNK_BYTES])
                await connection.ask("save_snapshot", (controller_epoch, offset, piece))

        async with self._saving:
            await self._insist(save)

    async def load_snapshot(self) -> tuple[int, bytes] | None:
        async def load(connection: _Connection) -> tuple[int, bytes] | None:
            data = bytearray()
            while True:
                piece: Piece | None = await connection.ask("load_snapshot", (len(data),))
                if piece is None:
                    return None
                data += piece.data
                if len(data) >= piece.total:
                    return piece.index, bytes(data)

        self._check_open()
        async with self._loading:
            return await self._insist(load)

    async def _ask(self, call: str, *arguments: Any) -> Any:
        return await self._insist(lambda connection: connection.ask(call, arguments))

    async def _insist(self, attempt: "Callable[[_Connection], Awaitable[R]]") -> R:
        """Ask what may be asked again, until there is an answer or the server has been away for a whole session."""
        for _ in range(MAX_ATTEMPTS):
            connection = await self._reach()
            with contextlib.suppress(_ConnectionLostError):
                return await attempt(connection)
        raise SessionLostError

    async def _reach(self) -> "_Connection":
        """The connection to the server, when there is one. Raises SessionLostError when the server has been away for a
        whole session."""
        while True:
            self._check_open()
            if self._silent_seconds() >= self._session_seconds:
                raise SessionLostError
            if self._connection is not None:
                return self._connection
            await self._changes.wait()

    def _silent_seconds(self) -> float:
        """The time since the server was last heard of."""
        return asyncio.get_running_loop().time() - self._heard_at

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreClosedError

    async def _stay_connected(self, connection: "_Connection") -> None:
        while True:
            await connection.read(self._heard)
            self._connection = None
            connection.close(_ConnectionLostError)
            await connection.wait_closed()
            while True:
                # A server that ends each connection at once is not asked without a pause.
                await asyncio.sleep(FIRST_BACKOFF_SECONDS)
                try:
                    connection = await self._connect()
                    break
                except StoreRefusedError as error:
                    log.warning("the metadata store refuses this broker", extra={"error": str(error)})
                    await asyncio.sleep(MAX_BACKOFF_SECONDS)
            self._begin_session(connection)

    async def _connect(self) -> "_Connection":
        """Try until a server answers. Raises StoreRefusedError if it speaks another language."""
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            try:
                async with asyncio.timeout(self._session_seconds):
                    return await _Connection.open(self._path, self._session_seconds)
            except (EOFError, OSError):
                backoff = min(backoff * 2, MAX_BACKOFF_SECONDS)
                await asyncio.sleep(backoff)

    def _begin_session(self, connection: "_Connection") -> None:
        self._connection = connection
        self._max_entry_bytes = connection.max_entry_bytes
        self._session_number += 1
        self._heard_at = asyncio.get_running_loop().time()
        self._contact = Contact.GOOD
        self._changes.wake()

    def _heard(self) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        if self._contact is not Contact.GOOD:
            self._contact = Contact.GOOD
            self._changes.wake()

    async def _watch_contact(self) -> None:
        while True:
            await asyncio.sleep(self._session_seconds / LOOKS_PER_SESSION)
            if self._connection is not None:
                self._connection.greet()
            if self._silent_seconds() >= self._session_seconds * 2 / 3:
                self._contact = Contact.DOUBTFUL
                self._changes.wake()
            if self._silent_seconds() >= self._session_seconds and self._connection is not None:
                self._connection.fail(SessionLostError)


class _ConnectionLostError(Exception):
    """The connection ended before the answer came."""


class _Connection:
    """Requests and the answers that are waited for."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.max_entry_bytes = 0
        self._reader = reader
        self._writer = writer
        self._requests = 0
        self._answers: dict[int, asyncio.Future[Reply]] = {}

    @classmethod
    async def open(cls, path: str, session_seconds: float) -> "_Connection":
        reader, writer = await asyncio.open_unix_connection(path)
        connection = cls(reader, writer)
        try:
            connection._send("hello", (PROTOCOL, session_seconds))
            reply = _decode_reply(await read_frame(reader, FRAME_ROOM_BYTES))
            greeting = msgspec.msgpack.decode(reply.value, type=Greeting)
            if greeting.protocol != PROTOCOL:
                raise StoreRefusedError(f"the store server at {path} is another Penstock; restart it and its brokers")
        except (BrokenFrameError, msgspec.MsgspecError) as error:
            connection.close(_ConnectionLostError)
            raise StoreRefusedError(f"{path} is not the socket of a store server: {error}") from error
        except BaseException:
            connection.close(_ConnectionLostError)
            raise
        connection.max_entry_bytes = greeting.max_entry_bytes
        return connection

    async def ask(self, call: str, arguments: tuple[Any, ...]) -> Any:
        if self._writer.is_closing():
            raise _ConnectionLostError
        number = self._send(call, arguments)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            reply = await answer
        except asyncio.CancelledError:
            self._send("cancel", (number,))
            raise
        finally:
            self._answers.pop(number, None)
        if reply.failure is not None:
            raise exception(reply.failure, arguments)
        return msgspec.msgpack.decode(reply.value, type=CALLS[call].value)

    def greet(self) -> None:
        """Say a word, and have one said; no task waits for it."""
        self._send("ping", ())

    async def read(self, heard: Callable[[], None]) -> None:
        """Read answers until the connection ends."""
        try:
            while True:
                reply = _decode_reply(await read_frame(self._reader, max_frame_bytes(self.max_entry_bytes)))
                heard()
                answer = self._answers.get(reply.number)
                if answer is not None and not answer.done():
                    answer.set_result(reply)
        except (EOFError, OSError):
            pass
        except (BrokenFrameError, msgspec.MsgspecError) as error:
            log.error("the metadata store sent what is no answer", extra={"error": str(error)})

    def close(self, error: type[Exception]) -> None:
        """End the connection, and all calls with an error."""
        self._writer.transport.abort()
        self.fail(error)

    async def wait_closed(self) -> None:
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def fail(self, error: type[Exception]) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error())

    def _send(self, call: str, arguments: tuple[Any, ...]) -> int:
        self._requests += 1
        if not self._writer.is_closing():
            self._writer.write(frame(Request(self._requests, call, raw(arguments))))
        return self._requests


_decode_reply: Final = msgspec.msgpack.Decoder(Reply).decode
