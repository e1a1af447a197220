"""Chooses where the metadata of the cluster is kept, by the broker's config: in ZooKeeper, in the store of another
process of this host, in a file of the data folder, or in memory."""

import logging
import os
import stat
from typing import Final

from penstock.broker.config.typed import BrokerConfig
from penstock.machines.cluster import ClusterImage
from penstock.machines.stranding import stranding_problem
from penstock.metadata.memory import MemoryStore
from penstock.metadata.sqlite import SqliteStore
from penstock.metadata.store import MetadataStore
from penstock.storage.data_directory import FOLDER_FILE, read_folder
from penstock.storage.errors import DirectoryRefusedError
from penstock.storage.files import Files, RealFiles

log = logging.getLogger(__name__)

METADATA_FILE: Final = "metadata.sqlite"
LOGS: Final = "logs"


def make_store(config: BrokerConfig, files: Files) -> MetadataStore:
    """The store that the config names. The data folder exists afterwards."""
    data_path = config.log_dirs[0]
    if isinstance(files, RealFiles):
        _make_folder(data_path, files)
    session_seconds = config.integer("zookeeper.session.timeout.ms") / 1000
    if config["zookeeper.connect"]:
        from penstock.metadata.zookeeper import ZookeeperStore

        return ZookeeperStore(
            config.string("zookeeper.connect"),
            session_seconds=session_seconds,
            if_absent=_folder_of_a_cluster(data_path, files),
        )
    if config["penstock.metadata.socket"]:
        from penstock.metadata.remote import RemoteStore

        return RemoteStore(config.string("penstock.metadata.socket"), session_seconds)
    if not isinstance(files, RealFiles):
        return MemoryStore(session_seconds=session_seconds)
    path = os.path.join(data_path, METADATA_FILE)
    if os.path.exists(os.path.join(data_path, LOGS, FOLDER_FILE)) and not os.path.exists(path):
        raise DirectoryRefusedError(
            f"{data_path} has logs but no {METADATA_FILE}: it belongs to a broker of a cluster whose metadata is "
            "elsewhere; set zookeeper.connect as that broker did, or choose another data folder"
        )
    return SqliteStore(path)


def refuse_alone(config: BrokerConfig, image: ClusterImage) -> None:
    """A broker that keeps its metadata itself is alone: what other brokers of its host hold would be away."""
    if config["zookeeper.connect"] or config["penstock.metadata.socket"]:
        return
    problem = stranding_problem(image, {config.node_id})
    if problem is not None:
        raise DirectoryRefusedError(
            f"{problem}: start as many brokers as there were, by penstock serve --processes, or delete these topics "
            "while those brokers run"
        )


def _folder_of_a_cluster(data_path: str, files: Files) -> str | None:
    """What to say if the cluster of this folder is not where it is looked for; None if the folder has none yet. To make
    another one there would only stand in the way."""
    found = read_folder(files, os.path.join(data_path, LOGS))
    if found is None:
        return None
    if files.stat(os.path.join(data_path, METADATA_FILE)) is not None:
        return f"the broker of {data_path} was alone; move its metadata there with penstock cluster adopt"
    return (
        f"the data folder {data_path} belongs to cluster {found[1]}, so see that zookeeper.connect names its place. If "
        "its metadata is lost, stop all brokers and restore it with penstock cluster import"
    )


def _make_folder(path: str, files: Files) -> None:
    if not os.path.isdir(path):
        os.makedirs(path, 0o700)
        files.sync_directory(os.path.dirname(os.path.abspath(path)))
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & 0o077:
        log.warning(
            "other users of this machine can enter the data folder: take that from them (chmod 700)",
            extra={"path": path, "mode": f"{mode:04o}"},
        )
