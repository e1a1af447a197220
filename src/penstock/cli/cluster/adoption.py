"""Adoption moves the metadata of a stopped data folder into another store, where its brokers then belong to a cluster.

    metadata.sqlite             the folder is on its own
    metadata.sqlite.adopting    no broker starts on it; whatever was interrupted is repeated by adopting again
    metadata.sqlite.adopted     the other store has everything; this file is what it was founded with

Logs stay where they are. Every step is done or not done, and can be repeated.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from penstock.machines.cluster import ClusterImage
from penstock.machines.founding import founding_entry, founding_snapshot
from penstock.metadata.reading import read_image
from penstock.metadata.sqlite import SqliteStore
from penstock.metadata.store import FoundableStore, Founding, MetadataStore, StoreRefusedError

METADATA = "metadata.sqlite"
ADOPTING = f"{METADATA}.adopting"
ADOPTED = f"{METADATA}.adopted"


@dataclass(slots=True, frozen=True)
class Adopted:
    """What was moved. `folders` are the data folders of brokers, by their numbers."""

    cluster_id: str
    topics: int
    partitions: int
    folders: dict[int, str]


async def adopt(data: str, target: FoundableStore) -> Adopted:
    """Found the cluster of a folder in the target. Raises StoreRefusedError, with what to do."""
    with _locked(data):
        aside = os.path.join(data, ADOPTING)
        if not os.path.exists(aside):
            await _set_aside(data, aside, target)
        founding, image = await _founding_of(SqliteStore(aside))
        await target.found(founding)
        _rename(aside, os.path.join(data, ADOPTED))
        _remove_lock(aside)
    folders = {broker_id: _folder_of(data, broker_id) for broker_id in image.brokers}
    return Adopted(founding.cluster_id, len(image.topics), image.partition_count, folders)


async def read_founding(store: MetadataStore) -> tuple[Founding, ClusterImage]:
    """What another store would be founded with, from one that is open."""
    image = await read_image(store)
    cluster_id, secret = await store.cluster_id(), await store.secret()
    return Founding(cluster_id, secret, founding_entry(), founding_snapshot(image)), image


def _folder_of(data: str, broker_id: int) -> str:
    """Brokers of `penstock serve --processes` have folders in that of the first, which is also that of one alone."""
    own = os.path.join(data, str(broker_id))
    return own if broker_id > 0 and os.path.isdir(own) else data


async def _set_aside(data: str, aside: str, target: FoundableStore) -> None:
    """The point from which on the folder is no longer on its own: everything that can be refused is refused before."""
    path = os.path.join(data, METADATA)
    if not os.path.exists(path):
        if os.path.exists(os.path.join(data, ADOPTED)):
            raise StoreRefusedError(f"{data} was adopted already: start its broker with --zookeeper")
        raise StoreRefusedError(f"{data} has no {METADATA}: name the data folder of a broker that has run alone")
    founding, _ = await _founding_of(SqliteStore(path))
    await target.check_foundable(founding.cluster_id)
    _rename(path, aside)


async def _founding_of(store: SqliteStore) -> tuple[Founding, ClusterImage]:
    await store.open()
    try:
        return await read_founding(store)
    finally:
        # Closing it writes everything into the one file that is then renamed.
        await store.close()


def _rename(path: str, to: str) -> None:
    os.rename(path, to)
    folder = os.open(os.path.dirname(os.path.abspath(to)), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _remove_lock(path: str) -> None:
    try:
        os.unlink(f"{path}.lock")
    except FileNotFoundError:
        pass


@contextmanager
def _locked(data: str) -> Iterator[None]:
    """Hold what the brokers of a folder hold while they run."""
    if not os.path.isdir(data):
        raise StoreRefusedError(f"there is no folder {data}")
    names = [data, *(os.path.join(data, name) for name in sorted(os.listdir(data)) if name.isdecimal())]
    with ExitStack() as held:
        for path in (os.path.join(name, "logs", "lock") for name in names):
            if os.path.exists(path):
                lock = held.enter_context(open(path, "rb"))
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise StoreRefusedError(
                        f"{os.path.dirname(path)} is in use: stop its broker first, with Ctrl-C or SIGTERM"
                    ) from None
        yield
