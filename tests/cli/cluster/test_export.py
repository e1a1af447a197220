"""Exports as files, and what an import refuses. In tests/system/test_export.py a cluster comes back with one."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.cluster.export import found, load, read, write
from penstock.cli.main import penstock
from penstock.machines.elections import awaits_reports
from penstock.metadata.export import Export, encode_export
from penstock.metadata.memory import MemoryStore, SharedMetadata
from penstock.metadata.reading import read_image
from penstock.metadata.store import StoreRefusedError
from tests.cli.cluster.test_adoption import fill
from tests.waiting import in_loop


async def exported() -> Export:
    shared = SharedMetadata()
    await fill(MemoryStore(shared))
    return await read(MemoryStore(shared))


@in_loop
async def test_only_its_owner_may_read_an_export_and_it_replaces_an_older_one(tmp_path: Path) -> None:
    path, export = tmp_path / "metadata.export", await exported()
    for _ in range(2):
        await write(path, encode_export(export), export.cluster_id)
        assert path.stat().st_mode & 0o777 == 0o600
        assert await load(path) == export
        assert os.listdir(tmp_path) == [path.name]


@in_loop
async def test_what_is_no_export_of_this_cluster_is_not_replaced(tmp_path: Path) -> None:
    path, export = tmp_path / "metadata.export", await exported()
    path.write_bytes(b"something else")
    with pytest.raises(StoreRefusedError, match=r"is not replaced, so name another file: .* is no export"):
        await write(path, encode_export(export), export.cluster_id)
    assert path.read_bytes() == b"something else"
    path.unlink()
    await write(path, encode_export(export), export.cluster_id)
    with pytest.raises(StoreRefusedError, match=r"it is an export of cluster .*, and this is cluster another"):
        await write(path, encode_export(export), "another")
    assert await load(path) == export


@in_loop
async def test_a_write_that_fails_leaves_the_older_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, export = tmp_path / "metadata.export", await exported()
    await write(path, encode_export(export), export.cluster_id)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("penstock.cli.cluster.export.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        await write(path, b"newer", export.cluster_id)
    assert await load(path) == export
    assert os.listdir(tmp_path) == [path.name]


@in_loop
async def test_an_import_founds_the_cluster_with_a_secret_of_its_own() -> None:
    export, shared = await exported(), SharedMetadata()
    await found(MemoryStore(shared), export, "zk:2181/queue")
    store = MemoryStore(shared)
    await store.open()
    assert await store.cluster_id() == export.cluster_id
    image = await read_image(store)
    assert image.topics.keys() == export.image.topics.keys()
    assert all(awaits_reports(each) for each in image.topics["orders"].partitions)
    await store.close()
    other = SharedMetadata()
    await found(MemoryStore(other), export, "zk:2181/other")
    assert other.secret != shared.secret


@in_loop
async def test_an_import_is_refused_where_something_is() -> None:
    export, shared = await exported(), SharedMetadata()
    await found(MemoryStore(shared), export, "zk:2181/queue")
    with pytest.raises(StoreRefusedError, match=r"zk:2181/queue has cluster .* already\. If an import was interrupted"):
        await found(MemoryStore(shared), export, "zk:2181/queue")
    await fill(MemoryStore(other := SharedMetadata()))
    with pytest.raises(StoreRefusedError, match="is there already, and not"):
        await found(MemoryStore(other), export, "zk:2181/other")


def test_a_file_that_is_no_export_and_one_that_is_missing_are_told_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("notes")
    told = CliRunner().invoke(penstock, ["cluster", "import", str(path), "--zookeeper", "127.0.0.1:1/queue"])
    assert (told.exit_code, told.stdout) == (1, "")
    assert "is no export of a cluster's metadata" in told.stderr
    missing = CliRunner().invoke(penstock, ["cluster", "import", "missing", "--zookeeper", "127.0.0.1:1/queue"])
    assert missing.exit_code == 1
    assert "missing" in missing.stderr
