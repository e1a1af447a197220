"""A registration is what a broker tells the cluster about itself when it starts; it travels in the metadata store as
the details of a member."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from penstock import __version__
from penstock.machines.cluster import FLUSHED, ClusterImage, PartitionImage
from penstock.machines.cluster_records import Listeners
from penstock.machines.elections import awaits_reports, reporters
from penstock.machines.log_ends import LogEnds, PackedEnds, pack, unpack


@dataclass(frozen=True, slots=True)
class Registration:
    """`folder` is the id of the broker's data folder, `was_clean` whether the broker had stopped cleanly before,
    `offline_logs` how many of its logs cannot be opened, `log_ends` where those end whose partitions wait for that.

    `may_lack_unflushed` says that its machine has been started again since, with no clean stop before: records that
    were not flushed may be gone. `flush` is how it flushes by its own file, where topic and cluster have nothing
    set."""

    broker_id: int
    broker_epoch: int
    listeners: Listeners
    rack: str | None
    folder: str
    was_clean: bool
    offline_logs: int = 0
    log_ends: LogEnds = field(default_factory=dict)
    may_lack_unflushed: bool = False
    flush: str = FLUSHED

    @classmethod
    def of_member(cls, broker_id: int, broker_epoch: int, *, folder: str, details: bytes) -> "Registration":
        """What the store knows about a member. Raises DamagedDetailsError."""
        try:
            found = _decoder.decode(details)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DamagedDetailsError(broker_id, str(error)) from None
        return cls(
            broker_id,
            broker_epoch,
            found.listeners,
            found.rack,
            folder,
            found.was_clean,
            found.offline_logs,
            unpack(found.log_ends),
            found.may_lack_unflushed,
            found.flush,
        )


class DamagedDetailsError(Exception):
    """What a member says about itself cannot be read."""

    def __init__(self, broker_id: int, reason: str) -> None:
        super().__init__(
            f"the registration of broker {broker_id} in the metadata store cannot be read ({reason}); restart that "
            "broker with the Penstock that the others have"
        )


def folder_problem(image: ClusterImage, broker_id: int) -> str | None:
    """Why a broker that is alive leads nothing, and what to do, if it came with another folder than the one in which
    its replicas are."""
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.is_alive or broker.is_usable:
        return None
    where = (
        f"broker {broker_id} came with the data folder {broker.folder}, but its replicas are in the data folder "
        f"{broker.home_folder}"
    )
    if unreported := _partitions(image, lambda each: awaits_reports(each) and broker_id in reporters(each)):
        return (
            f"{where}: {_named(unreported)} were imported and wait until all their replicas have reported where their "
            "logs end; start the broker with that folder. If it is lost, let other replicas lead with `penstock topic "
            "elect TOPIC --unclean`, and start this broker once more"
        )
    return (
        f"{where}: {_named(_partitions(image, lambda each: each.isr == (broker_id,)), 'that only it has ')} stay "
        "without a leader until it is started with that folder again; if that folder is lost, accept the new one, "
        "which loses their records"
    )


def encode_details(
    *,
    listeners: Listeners,
    rack: str | None,
    was_clean: bool,
    offline_logs: int = 0,
    log_ends: LogEnds | None = None,
    may_lack_unflushed: bool = False,
    flush: str = FLUSHED,
) -> bytes:
    """The bytes that the broker gives to the metadata store when it registers."""
    ends = pack(log_ends or {})
    return _encoder.encode(
        _Details(__version__, listeners, rack, was_clean, offline_logs, ends, may_lack_unflushed, flush)
    )


def _partitions(image: ClusterImage, belongs: Callable[[PartitionImage], bool]) -> list[str]:
    return [
        f"{topic.name}-{partition.index}"
        for topic in image.topics.values()
        for partition in topic.partitions
        if belongs(partition)
    ]


def _named(partitions: list[str], which: str = "") -> str:
    some = ", ".join(partitions[:3]) + ", …" * (len(partitions) > 3)
    return f"{len(partitions)} partitions {which}({some})"


class _Details(msgspec.Struct, array_like=True):
    """Later versions add items at the end, with a default."""

    penstock: str
    listeners: Listeners
    rack: str | None
    was_clean: bool
    offline_logs: int = 0
    log_ends: PackedEnds = []
    may_lack_unflushed: bool = False
    flush: str = FLUSHED


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Details)
