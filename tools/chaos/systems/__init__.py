"""The systems that can be broken: Penstock, and Apache Kafka beside it, with its own session timeout and with ours."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.chaos.network import Network
from tools.chaos.shim import build
from tools.chaos.stage import Stage
from tools.chaos.systems.kafka import DEFAULT_SESSION_SECONDS, KafkaStage
from tools.chaos.systems.penstock import SESSION_SECONDS, PenstockStage
from tools.fixtures import kafka
from tools.zookeeper import ensemble


@dataclass(frozen=True, slots=True)
class System:
    title: str
    session_seconds: float
    is_ours: bool = False
    """Others have no ZooKeeper, no shims and no disks of their own: they can have few of the faults."""

    def stage(self, network: Network, folder: Path, *, shims: Path | None, with_disks: bool) -> Stage:
        """In the folder `shims` the shim is compiled, if there is to be one."""
        if not self.is_ours:
            return KafkaStage(network, folder, session_seconds=self.session_seconds)
        shim = None if shims is None else build(shims)
        return PenstockStage(network, folder, shim=shim, with_disks=with_disks)


PENSTOCK: Final = "penstock"
SYSTEMS: Final = {
    PENSTOCK: System("Penstock", SESSION_SECONDS, is_ours=True),
    "kafka": System("Apache Kafka", DEFAULT_SESSION_SECONDS),
    "kafka-6s": System("Apache Kafka", SESSION_SECONDS),
}


def install(names: Iterable[str]) -> None:
    """Fetch what these systems run on, as far as it is not there."""
    for is_ours in {SYSTEMS[name].is_ours for name in names}:
        if is_ours:
            ensemble.install()
        else:
            asyncio.run(kafka.install())
