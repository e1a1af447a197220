"""`penstock cluster export` writes the metadata of a cluster to a file outside ZooKeeper, and `penstock cluster import`
founds the cluster anew with it, once ZooKeeper has lost it."""

import os
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.help import examples
from penstock.cli.options import output_option
from penstock.cli.output import Size, counted, show_json

if TYPE_CHECKING:
    from penstock.metadata.export import Export
    from penstock.metadata.store import FoundableStore, MetadataStore

Done = TypeVar("Done")

zookeeper_option = click.option(
    "--zookeeper",
    required=True,
    metavar="HOST:PORT,.../CHROOT",
    help="Where the metadata is kept, as in zookeeper.connect of the brokers.",
)


@click.command(
    epilog=examples(
        "penstock cluster export --zookeeper zk1:2181,zk2:2181,zk3:2181/penstock",
        "penstock cluster export --zookeeper localhost:2181/penstock /backup/metadata.export",
    )
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@zookeeper_option
@output_option
def export(zookeeper: str, file: Path | None, output: str) -> None:
    """Write a cluster's metadata to a file.

    Topics with their ids, partitions with their replicas, configs and brokers: what is kept in ZooKeeper, and nowhere
    else. Messages and the offsets of groups are in the data folders of brokers. Brokers go on meanwhile.

    Without a FILE it is CLUSTER-ID.export. One of the same cluster that is there is replaced, whole or not at all.
    Export once a day, and after topics were made, got more partitions or more replicas; keep the file on another
    machine. It holds all configs, so only its owner may read it.
    """
    from penstock.metadata.export import encode_export
    from penstock.metadata.zookeeper import ZookeeperStore

    if_absent = "name the place that zookeeper.connect of the brokers names"
    exported = _run(lambda: read(ZookeeperStore(zookeeper, if_absent=if_absent)))
    path, data = file or Path(f"{exported.cluster_id}.export"), encode_export(exported)
    _run(lambda: write(path, data, exported.cluster_id))
    if output == "json":
        show_json({"file": str(path), "bytes": len(data), **_facts(exported)})
        return
    click.echo(f"exported {_described(exported)}, to {path} ({Size(len(data))})")


@click.command(
    name="import",
    epilog=examples(
        "penstock cluster import --zookeeper zk1:2181,zk2:2181,zk3:2181/penstock TKLd8-CRTPKMI3nCVQvvqg.export",
    ),
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@zookeeper_option
@output_option
def import_(zookeeper: str, file: Path, output: str) -> None:
    """Found a cluster anew with an export.

    For a cluster whose ZooKeeper was lost. Stop all its brokers first, import, and start them with their folders:
    messages and offsets of groups are there. Nothing may be at that place of ZooKeeper. If it is interrupted, call it
    again; no broker starts before it is whole.

    The brokers may have gone on after the export. So a partition is led once all its replicas have come and reported
    where their logs end, by the one whose log goes farthest. What was made, deleted or configured since is as it was
    at the export; logs of topics that the export lacks stay in the folders.
    """
    from penstock.metadata.zookeeper import ZookeeperStore

    exported = _run(lambda: load(file))
    _run(lambda: found(ZookeeperStore(zookeeper), exported, zookeeper))
    if output == "json":
        show_json(_facts(exported))
        return
    click.echo(f"imported {_described(exported)}; start its brokers, each with its number and its data folder:")
    for broker_id, broker in sorted(exported.image.brokers.items()):
        host, port = next(iter(broker.listeners.values()), ("", 0))
        click.echo(f"  broker {broker_id}, which was at {host}:{port}")
    click.echo("partitions are led once all their replicas have come; see: penstock cluster health")


async def read(store: "MetadataStore") -> "Export":
    """What the store has, which is opened for it."""
    from penstock.metadata.export import read_export

    await store.open()
    try:
        return await read_export(store, now_ms=time.time_ns() // 1_000_000)
    finally:
        await store.close()


async def load(path: Path) -> "Export":
    """The export in a file. Raises StoreRefusedError."""
    from penstock.metadata.export import decode_export

    return decode_export(path.read_bytes(), where=str(path))


async def write(path: Path, data: bytes, cluster_id: str) -> None:
    """Put an export in its place, durably and as a whole. Raises StoreRefusedError if something else is there."""
    if path.exists():
        await _refuse_other(path, cluster_id)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


async def found(target: "FoundableStore", export: "Export", where: str) -> None:
    """Found the cluster of an export in a place where nothing is. Raises StoreRefusedError."""
    from penstock.machines.founding import founding_entry, imported_snapshot
    from penstock.metadata.store import Founding, StoreRefusedError, new_secret

    if not await target.check_foundable(export.cluster_id):
        raise StoreRefusedError(
            f"{where} has cluster {export.cluster_id} already. If an import was interrupted, it has come to its end: "
            "start the brokers. If another export is to take its place, stop all brokers and delete it first "
            "(deleteall, in ZooKeeper's zkCli), or name another chroot"
        )
    snapshot = imported_snapshot(export.image, now_ms=time.time_ns() // 1_000_000)
    await target.found(Founding(export.cluster_id, new_secret(), founding_entry(), snapshot))


async def _refuse_other(path: Path, cluster_id: str) -> None:
    from penstock.metadata.store import StoreRefusedError

    try:
        there = (await load(path)).cluster_id
    except StoreRefusedError as error:
        raise StoreRefusedError(f"{path} is not replaced, so name another file: {error}") from None
    if there != cluster_id:
        raise StoreRefusedError(
            f"{path} is not replaced, as it is an export of cluster {there}, and this is cluster {cluster_id}: name "
            "another file"
        )


def _run(call: Callable[[], Coroutine[Any, Any, Done]]) -> Done:
    import asyncio

    from penstock.metadata.store import StoreError

    try:
        return asyncio.run(call())
    except (StoreError, OSError) as error:
        raise click.ClickException(str(error)) from None


def _described(export: "Export") -> str:
    at = datetime.fromtimestamp(export.time_ms / 1000, UTC)
    return (
        f"cluster {export.cluster_id} as it was at {at:%Y-%m-%d %H:%M:%S} UTC, with "
        f"{counted(len(export.image.brokers), 'broker')} and {counted(len(export.image.topics), 'topic')} of "
        f"{counted(export.image.partition_count, 'partition')}"
    )


def _facts(export: "Export") -> dict[str, object]:
    return {
        "cluster_id": export.cluster_id,
        "time_ms": export.time_ms,
        "index": export.index,
        "brokers": sorted(export.image.brokers),
        "topics": len(export.image.topics),
        "partitions": export.image.partition_count,
    }
