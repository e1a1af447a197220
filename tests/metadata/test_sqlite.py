"""The SQLite file: durable, owned by one process, and refused when it is not ours."""

import asyncio
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.metadata import sqlite
from penstock.metadata.sqlite import SCHEMA_VERSION, SqliteStore, connect
from penstock.metadata.store import EntriesDroppedError, StoreError, StoreRefusedError
from tests.metadata.scenario import scenario

APPENDER = """
import asyncio, sys
from penstock.metadata.sqlite import SqliteStore

async def main(path, snapshots):
    store = SqliteStore(path)
    await store.open()
    epoch = await store.take_controller_lease(1)
    snapshot = await store.load_snapshot()
    last = snapshot[0] if snapshot else 0
    while entries := await store.entries(last):
        last = entries[-1][0]
    while True:
        last += 1
        await store.append(epoch, last, b"entry %d" % last)
        print("entry", last, flush=True)
        if snapshots and last % 7 == 0:
            await store.save_snapshot(epoch, last, b"snapshot %d" % last + bytes(20_000))
            print("snapshot", last, flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2] == "snapshots"))
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "metadata")


def start_appending(path: str, *, snapshots: bool = False) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", APPENDER, path, "snapshots" if snapshots else "entries"]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def kill_after(child: subprocess.Popen[str], lines: int) -> dict[str, int]:
    """Let the child acknowledge so much, kill it in the middle of the next, and tell all that it acknowledged."""
    assert child.stdout is not None
    acknowledged = {"entry": 0, "snapshot": 0}
    with child:
        for number, line in enumerate(child.stdout, 1):
            if not line.endswith("\n"):
                # It was killed in the middle of saying so.
                break
            kind, index = line.split()
            acknowledged[kind] = int(index)
            if number == lines:
                child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    return acknowledged


async def read_all(store: SqliteStore, after: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while entries := await store.entries(found[-1][0] if found else after):
        found += entries
    return found


@pytest.mark.parametrize("seed", range(3))
@scenario
async def test_acknowledged_entries_survive_a_kill(path: str, seed: int) -> None:
    rng = random.Random(seed)
    acknowledged = 0
    for _ in range(3):
        acknowledged = kill_after(start_appending(path), rng.randint(1, 60))["entry"]
        store = SqliteStore(path)
        await store.open()
        entries = await read_all(store, 0)
        await store.close()

        assert acknowledged <= len(entries) <= acknowledged + 1, f"seed {seed}"
        assert entries == [(index, b"entry %d" % index) for index in range(1, len(entries) + 1)], f"seed {seed}"


@pytest.mark.parametrize("seed", range(3))
@scenario
async def test_a_kill_leaves_a_snapshot_and_all_entries_behind_it(path: str, seed: int) -> None:
    acknowledged = kill_after(start_appending(path, snapshots=True), random.Random(seed).randint(40, 90))
    store = SqliteStore(path)
    await store.open()

    index, data = await store.load_snapshot() or (0, b"")
    entries = await read_all(store, index)
    with pytest.raises(EntriesDroppedError):
        await store.entries(0)
    await store.close()

    assert index in (acknowledged["snapshot"], acknowledged["snapshot"] + 7), f"seed {seed}"
    assert data == b"snapshot %d" % index + bytes(20_000), f"seed {seed}"
    last = index + len(entries)
    assert [number for number, _ in entries] == list(range(index + 1, last + 1)), f"seed {seed}"
    assert last in (acknowledged["entry"], acknowledged["entry"] + 1), f"seed {seed}"


def test_a_commit_is_synced_before_it_is_acknowledged(path: str) -> None:
    connection = connect(path)
    try:
        settings = ("journal_mode", "synchronous", "fullfsync", "checkpoint_fullfsync")
        assert [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in settings] == ["wal", 2, 1, 1]
    finally:
        connection.close()


@scenario
async def test_epochs_never_go_back_after_a_kill(path: str) -> None:
    kill_after(start_appending(path), 1)
    store = SqliteStore(path)
    await store.open()

    assert await store.take_controller_lease(2) == 2
    await store.close()


@scenario
async def test_another_process_is_refused_while_the_file_is_in_use(path: str) -> None:
    child = start_appending(path)
    assert child.stdout is not None
    assert child.stdout.readline() == "entry 1\n"
    store = SqliteStore(path)

    with pytest.raises(StoreRefusedError, match="in use by another process; stop it"):
        await store.open()

    kill_after(child, 1)
    await store.open()
    await store.close()


@scenario
async def test_two_stores_of_one_process_are_refused_too(path: str) -> None:
    first, second = SqliteStore(path), SqliteStore(path)
    await first.open()

    with pytest.raises(StoreRefusedError, match="in use"):
        await second.open()

    await first.register(1, b"the first one is not disturbed", folder="")
    await first.close()
    await second.open()
    await second.close()


@scenario
async def test_a_file_from_the_future_is_refused(path: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()

    with pytest.raises(StoreRefusedError, match=f"schema {SCHEMA_VERSION + 1}.*upgrade"):
        await SqliteStore(path).open()


async def make_version_1(path: str) -> str:
    """A file as Penstock 0.1 left it, with a registration and an entry. Returns the id of its cluster."""
    store = SqliteStore(path)
    await store.open()
    await store.register(1, b"", folder="")
    epoch = await store.take_controller_lease(1)
    assert epoch is not None
    await store.append(epoch, 1, b"one")
    cluster_id = await store.cluster_id()
    await store.close()
    connection = sqlite3.connect(path)
    connection.executescript("DROP TABLE secrets; PRAGMA user_version = 1;")
    connection.close()
    return cluster_id


@scenario
async def test_a_file_of_schema_1_gets_a_secret_and_keeps_the_rest(path: str) -> None:
    cluster_id = await make_version_1(path)
    secrets = set()
    for broker_epoch in (2, 3):
        store = SqliteStore(path)
        await store.open()
        assert await store.cluster_id() == cluster_id
        assert await store.entries(0) == [(1, b"one")]
        assert await store.register(1, b"", folder="") == broker_epoch
        secrets.add(await store.secret())
        await store.close()

    assert [len(secret) for secret in secrets] == [32]
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    connection.close()


@scenario
async def test_an_upgrade_that_fails_leaves_schema_1(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await make_version_1(path)

    def fail() -> bytes:
        raise OSError("no randomness")

    monkeypatch.setattr(sqlite, "new_secret", fail)
    with pytest.raises(StoreRefusedError, match="no randomness"):
        await SqliteStore(path).open()

    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert connection.execute("SELECT name FROM sqlite_master WHERE name = 'secrets'").fetchall() == []
    connection.close()


@scenario
async def test_another_folder_is_refused_at_once_where_there_is_no_other_session(path: str) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.register(1, b"", folder="a")

    with pytest.raises(StoreRefusedError, match="broker 1 is in the cluster already"):
        await store.register(1, b"", folder="b")
    await store.close()


@scenario
async def test_somebody_elses_database_is_refused_and_left_alone(path: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.commit()

    with pytest.raises(StoreRefusedError, match="something else"):
        await SqliteStore(path).open()

    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("recipes",)]
    connection.close()


@scenario
async def test_a_file_that_is_no_database_is_refused_and_left_alone(path: str) -> None:
    content = b"metadata of the last century\n" * 100
    Path(path).write_bytes(content)
    store = SqliteStore(path)

    for _ in range(2):
        with pytest.raises(StoreRefusedError, match="cannot be opened: file is not a database"):
            await store.open()
    assert Path(path).read_bytes() == content


@scenario
async def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreRefusedError, match=r"No such file or directory.*check its folder"):
        await SqliteStore(str(tmp_path / "missing" / "metadata")).open()


@scenario
async def test_only_the_owner_may_read_the_files(path: str) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.register(1, b"", folder="")
    files = list(Path(path).parent.iterdir())
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in files}
    await store.close()

    assert {"metadata", "metadata-wal", "metadata.lock"} <= set(modes)
    assert set(modes.values()) == {0o600}


@scenario
async def test_a_failure_is_an_error_of_the_store_which_goes_on_without_the_entry(path: str) -> None:
    store = SqliteStore(path)
    await store.open()
    epoch = await store.take_controller_lease(1)
    assert epoch is not None
    saboteur = sqlite3.connect(path)
    saboteur.execute(
        "CREATE TRIGGER full AFTER INSERT ON entries BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
    )

    with pytest.raises(StoreError, match="failed: database or disk is full; see whether"):
        await store.append(epoch, 1, b"refused")

    saboteur.execute("DROP TRIGGER full")
    saboteur.close()
    assert await store.entries(0) == []
    await store.append(epoch, 1, b"taken")
    assert await store.entries(0) == [(1, b"taken")]
    await store.close()


@pytest.mark.parametrize("turns", range(5))
@scenario
async def test_an_opening_that_was_cancelled_leaves_the_file_free(
    path: str, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled, other = SqliteStore(path), SqliteStore(path)
    # However slow this thread is, the other one has not opened the file before.
    may_open, open_file = threading.Event(), cancelled._database.open

    def open_later() -> int:
        may_open.wait()
        return open_file()

    monkeypatch.setattr(cancelled._database, "open", open_later)
    opening = asyncio.create_task(cancelled.open())
    for _ in range(turns):
        await asyncio.sleep(0)
    opening.cancel()
    may_open.set()
    await asyncio.wait([opening])
    assert opening.cancelled()

    await other.open()
    await other.close()


@scenario
async def test_a_closed_store_leaves_one_file_and_its_lock(path: str) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.register(1, b"", folder="")
    await store.close()

    assert sorted(os.listdir(Path(path).parent)) == ["metadata", "metadata.lock"]
