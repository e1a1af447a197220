"""The server of a store: who may reach it, whom it cuts off, and what lasts longer than it does."""

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.metadata.memory import MemoryStore, SharedMetadata
from penstock.metadata.remote import RemoteStore, StoreServer
from penstock.metadata.remote.server import MAX_CALLS
from penstock.metadata.remote.wire import Request, frame, max_frame_bytes, raw
from penstock.metadata.sqlite import SqliteStore
from penstock.metadata.store import FencedError, MetadataStore, OutcomeUnknownError, StoreError, StoreRefusedError
from tests.metadata.scenario import scenario
from tests.waiting import until


@contextlib.asynccontextmanager
async def serving(store: MetadataStore, path: str) -> AsyncIterator[StoreServer]:
    server = StoreServer(store, path)
    await store.open()
    await server.open()
    try:
        yield server
    finally:
        await server.close()
        await store.close()


@contextlib.asynccontextmanager
async def client(path: str) -> AsyncIterator[RemoteStore]:
    store = RemoteStore(path)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@scenario
async def test_only_the_owner_may_connect_and_nothing_is_left_in_the_end(path: str) -> None:
    async with serving(MemoryStore(), path):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert os.listdir(Path(path).parent) == ["store"]
    assert os.listdir(Path(path).parent) == []


@scenario
async def test_a_server_takes_the_place_of_one_that_was_killed(path: str) -> None:
    Path(path).touch()
    Path(f"{path}.new").touch()
    async with serving(MemoryStore(), path), client(path) as store:
        assert await store.members() == {}


@scenario
async def test_a_path_that_cannot_be_a_socket_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "store", tmp_path / ("long" * 50)):
        with pytest.raises(StoreRefusedError, match=r"cannot be made a socket: .*choose a shorter path"):
            await StoreServer(MemoryStore(), str(path)).open()


@scenario
async def test_epochs_and_entries_outlive_the_server(tmp_path: Path, path: str) -> None:
    database = str(tmp_path / "metadata")
    async with serving(SqliteStore(database), path), client(path) as store:
        broker_epoch = await store.register(1, b"", folder="a")
        controller_epoch = await store.take_controller_lease(1)
        assert controller_epoch is not None
        await store.append(controller_epoch, 1, b"one")
        cluster_id, secret = await store.cluster_id(), await store.secret()
    async with serving(SqliteStore(database), path), client(path) as store:
        assert (await store.cluster_id(), await store.secret()) == (cluster_id, secret)
        assert await store.entries(0) == [(1, b"one")]
        # No broker has the lease, and no newer controller was there.
        await store.append(controller_epoch, 2, b"two")
        assert await store.register(1, b"", folder="b") > broker_epoch
        newer = await store.take_controller_lease(2)
        assert newer is not None
        assert newer > controller_epoch
        with pytest.raises(FencedError):
            await store.append(controller_epoch, 3, b"of a zombie")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        (max_frame_bytes(MemoryStore().max_entry_bytes) + 1).to_bytes(4, "big"),
        bytes(4),
        b"\x00\x00\x00\x01\xc1",
        frame(Request(1, "drop_everything", raw(()))),
        frame(Request(1, "register", raw(("one", b"", "")))),
        frame(Request(1, "serve", raw(()))),
        frame(Request(1, "wait_for_entries", raw((0,)))) * 2,
        b"".join(frame(Request(number, "wait_for_entries", raw((0,)))) for number in range(MAX_CALLS + 1)),
    ],
    ids=["http", "too long", "empty", "no msgpack", "no call", "other types", "inner name", "number twice", "many"],
)
@scenario
async def test_a_client_that_sends_something_else_is_cut_off_and_others_are_not(path: str, sent: bytes) -> None:
    async with serving(MemoryStore(), path), client(path) as honest:
        await honest.register(1, b"", folder="a")
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(sent)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

        assert set(await honest.members()) == {1}
        assert honest.session == 1


@scenario
async def test_a_failure_of_the_store_beneath_is_told_with_its_words(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    beneath = MemoryStore()

    async def fail(after: int) -> list[tuple[int, bytes]]:
        raise StoreError("its disk is full")

    monkeypatch.setattr(beneath, "entries", fail)
    async with serving(beneath, path), client(path) as store:
        with pytest.raises(StoreError, match="its disk is full"):
            await store.entries(0)
        assert await store.members() == {}


@scenario
async def test_an_append_of_a_client_that_went_away_is_done_before_the_next(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    beneath = MemoryStore(SharedMetadata())
    may_append, is_asked = asyncio.Event(), asyncio.Event()
    append = beneath.append

    async def append_late(controller_epoch: int, index: int, entry: bytes) -> None:
        if index == 1:
            is_asked.set()
            await may_append.wait()
        await append(controller_epoch, index, entry)

    monkeypatch.setattr(beneath, "append", append_late)
    async with serving(beneath, path), client(path) as gone, client(path) as other:
        epoch = await gone.take_controller_lease(1)
        assert epoch is not None
        lost = asyncio.create_task(gone.append(epoch, 1, b"one"))
        await is_asked.wait()
        await gone.close()
        with pytest.raises(OutcomeUnknownError):
            await lost
        later = asyncio.create_task(other.append(epoch, 2, b"two"))
        await asyncio.sleep(0)
        await other.members()
        may_append.set()

        await later

        assert await other.entries(0) == [(1, b"one"), (2, b"two")]


@scenario
async def test_a_wait_that_was_cancelled_is_dropped_by_the_server(path: str) -> None:
    async with serving(MemoryStore(), path), client(path) as store:
        for _ in range(MAX_CALLS + 1):
            wait = asyncio.create_task(store.wait_for_entries(0))
            await asyncio.sleep(0)
            wait.cancel()
            await asyncio.wait([wait])
        assert await store.members() == {}
        assert store.session == 1
        await until(lambda: len(asyncio.all_tasks()) < 50)
