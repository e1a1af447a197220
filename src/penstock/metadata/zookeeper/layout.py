"""Says where and how the metadata of a cluster lies in ZooKeeper, and reads connect strings.

    <chroot>/cluster                    id and secret of the cluster; made together with the five below it
            /epoch                      empty; its version is the newest controller epoch
            /head                       newest snapshot, and the first entry that is kept
            /log/<20 digits>            an entry of the metadata log
            /snapshot/<20 digits>/<4>   the state as of an entry, in chunks
            /brokers/<id>               ephemeral: a member; the id of its creation (czxid) is the broker epoch
            /controller                 ephemeral: who holds the lease, and its epoch

Every request and every reply stays below 512 KB, half of ZooKeeper's default limit, and no node has many children that
are ever listed: the log is read by names that the reader knows.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from penstock.metadata.store import StoreRefusedError

FORMAT: Final = 1
MAX_ENTRY_BYTES: Final = 256 * 1024
CHUNK_BYTES: Final = 500 * 1024
TRIM_ENTRIES: Final = 100
"""Entries that one request deletes."""

DEFAULT_PORT: Final = 2181

CLUSTER: Final = "/cluster"
EPOCH: Final = "/epoch"
HEAD: Final = "/head"
LOG: Final = "/log"
SNAPSHOT: Final = "/snapshot"
BROKERS: Final = "/brokers"
CONTROLLER: Final = "/controller"

OWN_ROOT: Final = frozenset({"zookeeper"})
"""What lies in the root of every ZooKeeper."""

_HOST: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<name>[^\s:/\[\]]+))(?::(?P<port>[0-9]+))?")
_EXAMPLE: Final = "write it as zk1:2181,zk2:2181,zk3:2181/penstock"


class Cluster(msgspec.Struct, frozen=True):
    """What `/cluster` holds."""

    penstock: int
    cluster_id: str
    secret: bytes


class Head(msgspec.Struct, frozen=True):
    """What `/head` holds. No snapshot has index 0."""

    snapshot: int = 0
    chunks: int = 0
    first_kept: int = 1


class Broker(msgspec.Struct, frozen=True):
    """What a member says about itself."""

    folder: str
    details: bytes


class Controller(msgspec.Struct, frozen=True):
    """Who holds the lease."""

    broker_id: int
    epoch: int


Content = TypeVar("Content", Cluster, Head, Broker, Controller)


@dataclass(frozen=True, slots=True)
class Address:
    """A connect string, taken apart. The chroot is empty or begins with a slash."""

    hosts: tuple[tuple[str, int], ...]
    chroot: str

    @property
    def names(self) -> str:
        """The hosts without the chroot, as they stand in a connect string."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)


def parse(connect: str) -> Address:
    """Take a connect string apart. Raises StoreRefusedError."""
    hosts, slash, path = connect.strip().partition("/")
    if "," in path:
        raise _wrong(connect, "the chroot stands once, after the last host")
    parts = path.rstrip("/").split("/") if path.rstrip("/") else []
    if any(part in ("", ".", "..") or not part.isprintable() or part != part.strip() for part in parts):
        raise _wrong(connect, f"{slash}{path} is no path of nodes")
    return Address(
        tuple(_host(connect, each.strip()) for each in hosts.split(",")), "".join(f"/{part}" for part in parts)
    )


def entry_path(index: int) -> str:
    return f"{LOG}/{index:020}"


def snapshot_path(index: int) -> str:
    return f"{SNAPSHOT}/{index:020}"


def chunk_path(index: int, chunk: int) -> str:
    return f"{snapshot_path(index)}/{chunk:04}"


def broker_path(broker_id: int) -> str:
    return f"{BROKERS}/{broker_id}"


def chunks_of(data: bytes) -> list[bytes]:
    """Cut a snapshot; an empty one is one chunk, too."""
    return [data[start : start + CHUNK_BYTES] for start in range(0, max(len(data), 1), CHUNK_BYTES)]


def write(content: Cluster | Head | Broker | Controller) -> bytes:
    return msgspec.json.encode(content)


def read(kind: type[Content], data: bytes, *, where: str) -> Content:
    """Read the content of a node. Raises StoreRefusedError when it was written by something else."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise StoreRefusedError(
            f"{where} in ZooKeeper cannot be read ({error}): it is not Penstock's, or another program has changed it; "
            "name another chroot, or restore it"
        ) from None


def check_is_free(children: Iterable[str], *, where: str) -> None:
    """Raise StoreRefusedError when a chroot without a cluster of ours holds something."""
    foreign = sorted(set(children) - OWN_ROOT)
    if foreign == [SNAPSHOT.strip("/")]:
        raise StoreRefusedError(
            f"{where} in ZooKeeper holds the beginning of a cluster: `penstock cluster adopt` or `penstock cluster "
            "import` was interrupted, so call it again, or name another chroot"
        )
    if foreign:
        named = ", ".join(foreign[:5]) + (", …" if len(foreign) > 5 else "")
        raise StoreRefusedError(
            f"{where} in ZooKeeper holds something else than a Penstock cluster ({named}); "
            f"name a chroot that is empty or not there yet, for example {where.rstrip('/')}/penstock"
        )


def _host(connect: str, text: str) -> tuple[str, int]:
    found = _HOST.fullmatch(text)
    if found is None:
        raise _wrong(connect, f"{text!r} is no host with a port" if text else "a host is missing")
    port = int(found["port"] or DEFAULT_PORT)
    if not 0 < port < 65536:
        raise _wrong(connect, f"{port} is no port")
    return found["v6"] or found["name"], port


def _wrong(connect: str, reason: str) -> StoreRefusedError:
    return StoreRefusedError(f"zookeeper.connect is {connect!r}: {reason}; {_EXAMPLE}")
