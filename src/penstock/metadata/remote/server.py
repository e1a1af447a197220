"""Serves a metadata store to other processes of this host, on a Unix socket.

A session lives while its connection does, unless nothing was heard of it for its own time. Members and the lease are
the server's; what must never be given twice, epochs and entries, is made by the store beneath.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from penstock.metadata.remote.wire import (
    CALLS,
    CHUNK_BYTES,
    MAX_SNAPSHOT_BYTES,
    PROTOCOL,
    BrokenFrameError,
    Failure,
    Greeting,
    Piece,
    Reply,
    Request,
    failure,
    frame,
    max_frame_bytes,
    raw,
    read_frame,
)
from penstock.metadata.sessions import Session, SessionTable
from penstock.metadata.store import (
    EntriesDroppedError,
    Member,
    MetadataStore,
    OutcomeUnknownError,
    SessionLostError,
    StoreRefusedError,
)

log = logging.getLogger(__name__)

MAX_CALLS: Final = 1000
"""A client that waits for more answers than this is cut off."""
LOOKS_PER_SESSION: Final = 6
"""How often the server looks whether a client has said something."""


class StoreServer:
    """The store is open before the server, and closed after it."""

    def __init__(self, store: MetadataStore, path: str) -> None:
        self._store = store
        self._path = path
        self._table = SessionTable()
        self._appending = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        assert self._server is None, "the store server is open already"
        try:
            listening = _listen(self._path)
        except OSError as error:
            raise StoreRefusedError(
                f"{self._path} cannot be made a socket: {error}; check its folder, or choose a shorter path"
            ) from error
        self._server = await asyncio.start_unix_server(self._connected, sock=listening)

    @property
    def members(self) -> set[int]:
        """The brokers that are alive."""
        return set(self._table.epochs())

    @property
    def controller(self) -> int | None:
        """The broker that holds the lease."""
        held = self._table.controller()
        return None if held is None else held[0]

    async def close(self) -> None:
        """Ends all sessions."""
        if self._server is None:
            return
        self._server.close()
        clients = list(self._clients)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        self._server = None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            await _Client(self._store, self._table, self._appending, reader, writer).serve()
        except asyncio.CancelledError:
            # The server closes. A task of asyncio's server that ends by cancellation is reported as an error.
            pass
        finally:
            self._clients.discard(task)


def _listen(path: str) -> socket.socket:
    """A socket that other users can never connect to, in the place of what a dead server left there."""
    new = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(new)
        os.chmod(new, 0o600)
        listening.listen(100)
        os.rename(new, path)
    except BaseException:
        listening.close()
        raise
    return listening


class _Client:
    """One session: reads requests, answers each in a task of its own."""

    def __init__(
        self,
        store: MetadataStore,
        table: SessionTable,
        appending: asyncio.Lock,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._store = store
        self._table = table
        self._appending = appending
        self._reader = reader
        self._writer = writer
        self._session = Session()
        self._session_seconds = 0.0
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._saving = bytearray()
        self._loading: tuple[int, bytes] | None = None
        self._watch: asyncio.TimerHandle | None = None

    async def serve(self) -> None:
        try:
            await self._read()
        except (EOFError, OSError):
            pass
        except (BrokenFrameError, msgspec.MsgspecError) as error:
            log.warning("a client of the metadata store was cut off", extra={"error": str(error)})
        finally:
            if self._watch is not None:
                self._watch.cancel()
            self._table.end(self._session, SessionLostError)
            self._writer.transport.abort()
            calls = list(self._calls.values())
            for call in calls:
                call.cancel()
            # An append goes on to its end; the next one learns its outcome, because appends wait for each other.
            await asyncio.gather(*calls, return_exceptions=True)
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    async def _read(self) -> None:
        decode = msgspec.msgpack.Decoder(Request).decode
        max_bytes = max_frame_bytes(self._store.max_entry_bytes)
        while True:
            request = decode(await read_frame(self._reader, max_bytes))
            self._heard_at = self._loop.time()
            if request.call not in CALLS:
                raise BrokenFrameError(f"no call is named {request.call!r}")
            arguments = msgspec.msgpack.decode(request.arguments, type=CALLS[request.call].arguments)
            if request.call == "cancel":
                if (call := self._calls.get(arguments[0])) is not None:
                    call.cancel()
                continue
            if len(self._calls) >= MAX_CALLS or request.number in self._calls:
                raise BrokenFrameError(f"request {request.number} while {len(self._calls)} wait for their answers")
            task = self._loop.create_task(self._answer(request.number, request.call, arguments))
            self._calls[request.number] = task
            task.add_done_callback(partial(self._answered, request.number))

    def _answered(self, number: int, _: asyncio.Task[None]) -> None:
        del self._calls[number]

    async def _answer(self, number: int, call: str, arguments: tuple[Any, ...]) -> None:
        try:
            value = await getattr(self, f"_{call}")(*arguments)
            reply = Reply(number, None, raw(value))
        except Exception as error:
            reply = Reply(number, self._failure(call, error), raw(None))
        if not self._writer.is_closing():
            self._writer.write(frame(reply))
            with contextlib.suppress(OSError):
                await self._writer.drain()

    def _failure(self, call: str, error: Exception) -> Failure:
        told = failure(error)
        if told.name == "bug":
            log.error("a call of the metadata store failed", extra={"call": call}, exc_info=error)
        return told

    async def _hello(self, protocol: int, session_seconds: float) -> Greeting:
        if protocol == PROTOCOL and session_seconds > 0 and self._watch is None:
            self._session_seconds = session_seconds
            self._look_later()
        return Greeting(PROTOCOL, self._store.max_entry_bytes)

    def _look_later(self) -> None:
        seconds = self._session_seconds / LOOKS_PER_SESSION
        self._watch = self._loop.call_later(seconds, self._look, self._loop.time() + seconds)

    def _look(self, expected: float) -> None:
        now = self._loop.time()
        if now - expected > self._session_seconds / LOOKS_PER_SESSION:
            # This process stood still, so what the client said meanwhile is still to be read.
            self._heard_at = now
        if now - self._heard_at >= self._session_seconds:
            log.warning("a broker said nothing to the metadata store for its whole session, which ends")
            self._table.end(self._session, SessionLostError)
            self._writer.transport.abort()
        else:
            self._look_later()

    async def _ping(self) -> None:
        pass

    async def _cluster_id(self) -> str:
        return await self._store.cluster_id()

    async def _secret(self) -> bytes:
        return await self._store.secret()

    async def _register(self, broker_id: int, details: bytes, folder: str) -> int:
        async def new_epoch() -> int:
            # To the store beneath every registration is its own broker's, and replaces the one before.
            return await self._store.register(broker_id, b"", folder="")

        return await self._table.register(
            self._session,
            broker_id,
            details,
            folder=folder,
            patience_seconds=self._session_seconds,
            new_epoch=new_epoch,
        )

    async def _members(self) -> dict[int, Member]:
        return self._table.members()

    async def _wait_for_members(self, known: Mapping[int, int]) -> None:
        await self._wait_until(lambda: self._table.epochs() != known)

    async def _take_controller_lease(self, broker_id: int) -> int | None:
        async def new_epoch() -> int:
            await self._store.release_controller_lease()
            epoch = await self._store.take_controller_lease(broker_id)
            assert epoch is not None, "the store beneath has no other session"
            return epoch

        return await self._table.take_lease(self._session, broker_id, new_epoch=new_epoch)

    async def _release_controller_lease(self) -> None:
        self._table.release_lease(self._session)

    async def _controller(self) -> tuple[int, int] | None:
        return self._table.controller()

    async def _wait_for_lease(self) -> None:
        await self._wait_until(lambda: self._table.controller() is None)

    async def _append(self, controller_epoch: int, index: int, entry: bytes, is_again: bool) -> None:
        await asyncio.shield(self._append_in_turn(controller_epoch, index, entry, is_again))

    async def _append_in_turn(self, controller_epoch: int, index: int, entry: bytes, is_again: bool) -> None:
        async with self._appending:
            if not is_again or not await self._is_there(index, entry):
                await self._store.append(controller_epoch, index, entry)

    async def _is_there(self, index: int, entry: bytes) -> bool:
        try:
            found = await self._store.entries(index - 1)
        except EntriesDroppedError:
            raise OutcomeUnknownError(index) from None
        return bool(found) and found[0] == (index, entry)

    async def _entries(self, after: int) -> list[tuple[int, bytes]]:
        return await self._store.entries(after)

    async def _wait_for_entries(self, after: int) -> None:
        await self._store.wait_for_entries(after)

    async def _save_snapshot(self, controller_epoch: int, offset: int, piece: Piece) -> None:
        if offset == 0:
            self._saving = bytearray()
        assert offset == len(self._saving), "the pieces of a snapshot follow one another"
        assert offset + len(piece.data) <= piece.total <= MAX_SNAPSHOT_BYTES, "a snapshot as long as it said"
        self._saving += piece.data
        if len(self._saving) == piece.total:
            data, self._saving = bytes(self._saving), bytearray()
            await self._store.save_snapshot(controller_epoch, piece.index, data)

    async def _load_snapshot(self, offset: int) -> Piece | None:
        if offset == 0:
            self._loading = await self._store.load_snapshot()
        if self._loading is None:
            assert offset == 0, "a snapshot is loaded from its beginning"
            return None
        index, data = self._loading
        if offset + CHUNK_BYTES >= len(data):
            self._loading = None
        return Piece(index, len(data), data[offset : offset + CHUNK_BYTES])

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._table.changes.wait()
