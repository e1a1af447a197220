"""Penstock's stage: each host has a ZooKeeper, too, and brokers may have disks of their own and a shim."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.chaos.disks import Ext4Disk
from tools.chaos.network import HOSTS, Network, address
from tools.chaos.shim import Shim
from tools.chaos.stage import PORT, BrokerProcess, Stage
from tools.zookeeper.ensemble import Ensemble, Host

SESSION_SECONDS: Final = 6.0
CONFIGS: Final = (
    "default.replication.factor=3",
    "min.insync.replicas=2",
    "auto.create.topics.enable=false",
    "offsets.topic.num.partitions=10",
    f"zookeeper.session.timeout.ms={SESSION_SECONDS * 1000:.0f}",
    # Retention is to have its chance while a clock is wrong.
    "log.retention.check.interval.ms=1000",
)
TOPIC_CONFIGS: Final = {"internal.segment.bytes": "30000"}
"""Small enough for closed segments within seconds."""


class PenstockStage(Stage):
    """Data and logs are in the folder."""

    def __init__(self, network: Network, folder: Path, *, shim: Path | None = None, with_disks: bool = False) -> None:
        """`shim` is its library; with disks, each broker has one that can lose its power."""
        prefixes = {number: network.command(network.host(number)) for number in HOSTS}
        self.ensemble = Ensemble(nodes=3, hosts=[Host(address(each), tuple(prefixes[each])) for each in HOSTS])
        serve = [sys.executable, "-P", "-m", "penstock", "serve", "--insecure", "--zookeeper"]
        serve += [f"{self.ensemble.connect}/penstock", *(word for config in CONFIGS for word in ("-X", config))]
        brokers = {}
        for each in HOSTS:
            own_folder = folder / f"host-{each}"
            own_folder.mkdir()
            disk = Ext4Disk(own_folder) if with_disks else None
            data = (disk.path if disk else own_folder) / "data"
            own = ["--node-id", str(each), "--listen", f"{address(each)}:{PORT}", "--data-dir", str(data)]
            brokers[each] = BrokerProcess(
                each,
                [*prefixes[each], *serve, *own],
                data,
                log=folder / f"broker-{each}.log",
                shim=Shim(shim, own_folder / "shim", data) if shim else None,
                disk=disk,
            )
        super().__init__(network, brokers, SESSION_SECONDS)

    def prepare(self) -> None:
        self.ensemble.__enter__()
        for broker in self.brokers.values():
            if broker.disk is not None:
                broker.disk.create()

    def warm(self) -> None:
        """It compiles nothing while it runs."""

    def topic_configs(self, configs: Mapping[str, str]) -> Mapping[str, str]:
        return {**TOPIC_CONFIGS, **configs}

    def stop(self) -> None:
        super().stop()
        for broker in self.brokers.values():
            if broker.disk is not None:
                broker.disk.unmount()
        self.ensemble.stop()

    def logs(self) -> list[Path]:
        return [*super().logs(), *(node.folder / "log" for node in self.ensemble.nodes)]
