"""The metadata of a folder that moves into another store, whatever interrupts it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.cluster.adoption import ADOPTED, ADOPTING, METADATA, adopt, read_founding
from penstock.machines.cluster_records import BrokerRegistered, PartitionsCreated, Record, TopicCreated, encode
from penstock.metadata.memory import MemoryStore, SharedMetadata
from penstock.metadata.reading import read_image
from penstock.metadata.sqlite import SqliteStore
from penstock.metadata.store import MetadataStore, StoreRefusedError
from penstock.storage.data_directory import DataDirectory
from penstock.storage.files import RealFiles
from tests.waiting import in_loop

ORDERS = bytes(15) + b"\1"
RECORDS: list[Record] = [
    BrokerRegistered(0, 1, {"PLAINTEXT": ("127.0.0.1", 9092)}, None, "f", "f"),
    TopicCreated(ORDERS, "orders", {}),
    PartitionsCreated(ORDERS, 0, ((0,), (0,))),
]


class Killed(BaseException):
    """Stands for the end of the process."""


async def fill(store: MetadataStore) -> None:
    await store.open()
    epoch = await store.take_controller_lease(0)
    assert epoch is not None
    await store.append(epoch, 1, encode(RECORDS, controller_epoch=epoch, index=1))
    await store.close()


async def folder(path: Path) -> str:
    """A folder as a broker leaves it; returns its cluster id."""
    store = SqliteStore(str(path / METADATA))
    await fill(store)
    await store.open()
    cluster_id = await store.cluster_id()
    await store.close()
    DataDirectory(str(path / "logs"), RealFiles(), cluster_id=cluster_id).close()
    return cluster_id


async def check_adopted(path: Path, shared: SharedMetadata, cluster_id: str) -> None:
    assert sorted(name for name in os.listdir(path) if name.startswith(METADATA)) == [ADOPTED, f"{METADATA}.lock"]
    store = MemoryStore(shared)
    await store.open()
    assert await store.cluster_id() == cluster_id
    image = await read_image(store)
    assert {name: len(topic.partitions) for name, topic in image.topics.items()} == {"orders": 2}
    assert len(await store.entries(0)) == 1
    await store.close()


@in_loop
async def test_the_other_store_has_the_cluster_and_the_folder_is_marked(tmp_path: Path) -> None:
    cluster_id, shared = await folder(tmp_path), SharedMetadata()
    adopted = await adopt(str(tmp_path), MemoryStore(shared))
    assert (adopted.cluster_id, adopted.topics, adopted.partitions) == (cluster_id, 1, 2)
    assert adopted.folders == {0: str(tmp_path)}
    await check_adopted(tmp_path, shared, cluster_id)


@in_loop
async def test_any_two_stores_can_take_over_from_each_other() -> None:
    one, other = SharedMetadata(), SharedMetadata()
    await fill(source := MemoryStore(one))
    await source.open()
    founding, image = await read_founding(source)
    await MemoryStore(other).found(founding)
    target = MemoryStore(other)
    await target.open()
    assert (other.cluster_id, other.secret) == (one.cluster_id, one.secret)
    assert (await read_image(target)).topics == image.topics
    await source.close()
    await target.close()


async def steps_until(killed_at: int, path: Path, shared: SharedMetadata, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Adopt, and die at a step: before or after each thing that is done. Whether it came to its end."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps == killed_at:
            raise Killed

    def around(call: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **named: Any) -> Any:
            step()
            done = call(*args, **named)
            step()
            return done

        return stepping

    class Target(MemoryStore):
        async def found(self, founding: Any) -> None:
            step()
            await super().found(founding)
            step()

    with monkeypatch.context() as patched:
        for name in ("rename", "fsync", "unlink"):
            patched.setattr(f"penstock.cli.cluster.adoption.os.{name}", around(getattr(os, name)))
        try:
            await adopt(str(path), Target(shared))
        except Killed:
            return False
    return True


@in_loop
async def test_killed_at_any_step_it_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for killed_at in range(1, 100):
        path, shared = tmp_path / str(killed_at), SharedMetadata()
        path.mkdir()
        cluster_id = await folder(path)
        if await steps_until(killed_at, path, shared, monkeypatch):
            break
        if (path / ADOPTED).exists():
            # It died after its last step: all that is left to say is that it was done.
            with pytest.raises(StoreRefusedError, match="adopted already"):
                await adopt(str(path), MemoryStore(shared))
            (path / f"{ADOPTING}.lock").unlink(missing_ok=True)
        else:
            await adopt(str(path), MemoryStore(shared))
        await check_adopted(path, shared, cluster_id)
    assert killed_at > 8


@in_loop
async def test_a_store_with_another_cluster_is_refused_and_the_folder_stays(tmp_path: Path) -> None:
    await folder(tmp_path)
    await fill(MemoryStore(shared := SharedMetadata()))
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(StoreRefusedError, match="is there already"):
        await adopt(str(tmp_path), MemoryStore(shared))
    assert sorted(os.listdir(tmp_path)) == before
    assert (await image_of(tmp_path)).partition_count == 2


async def image_of(path: Path) -> Any:
    store = SqliteStore(str(path / METADATA))
    await store.open()
    try:
        return await read_image(store)
    finally:
        await store.close()


@in_loop
async def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    cluster_id = await folder(tmp_path)
    other = DataDirectory(str(tmp_path / "1" / "logs"), RealFiles(), cluster_id=cluster_id)
    with pytest.raises(StoreRefusedError, match="stop its broker"):
        await adopt(str(tmp_path), MemoryStore(SharedMetadata()))
    other.close()


@in_loop
async def test_what_is_no_folder_of_a_broker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreRefusedError, match="there is no folder"):
        await adopt(str(tmp_path / "nothing"), MemoryStore())
    with pytest.raises(StoreRefusedError, match="a broker that has run alone"):
        await adopt(str(tmp_path), MemoryStore())


@in_loop
async def test_a_folder_that_was_adopted_is_not_adopted_by_another_cluster(tmp_path: Path) -> None:
    await folder(tmp_path)
    await adopt(str(tmp_path), MemoryStore(SharedMetadata()))
    with pytest.raises(StoreRefusedError, match="adopted already"):
        await adopt(str(tmp_path), MemoryStore(SharedMetadata()))


@in_loop
async def test_several_brokers_of_one_host_move_together(tmp_path: Path) -> None:
    cluster_id = await folder(tmp_path)
    store = SqliteStore(str(tmp_path / METADATA))
    await store.open()
    epoch = await store.take_controller_lease(0)
    assert epoch is not None
    second = BrokerRegistered(1, 2, {"PLAINTEXT": ("127.0.0.1", 9093)}, None, "g", "g")
    await store.append(epoch, 2, encode([second], controller_epoch=epoch, index=2))
    await store.close()
    DataDirectory(str(tmp_path / "1" / "logs"), RealFiles(), cluster_id=cluster_id).close()
    adopted = await adopt(str(tmp_path), MemoryStore(SharedMetadata()))
    assert adopted.folders == {0: str(tmp_path), 1: str(tmp_path / "1")}
