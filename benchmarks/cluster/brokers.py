"""Runs brokers over a ZooKeeper of three nodes, each in a process of its own, and kills them."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.cluster.asking import Told, ask_metadata
from benchmarks.cluster.syncs import SyncCounter
from benchmarks.cluster.traffic import Traffic, counted
from benchmarks.processes import Server, ServerError
from benchmarks.scratch import CACHE, scratch_folder
from benchmarks.systems import speaks_kafka
from tools.fixtures.kafka import free_ports
from tools.zookeeper.ensemble import Ensemble

PATIENCE_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.05


@dataclass(slots=True)
class Brokers:
    """Those that run, by their numbers. CPU of one that was killed is kept."""

    folder: Path
    zookeeper: str
    traffic: Traffic
    ports: list[int]
    # By what each of them serves its metrics, and what counts its syncs, where that is wanted.
    metrics_ports: list[int] = field(default_factory=list)
    syncs: list[SyncCounter] = field(default_factory=list)
    configs: dict[str, str] = field(default_factory=dict)
    running: dict[int, Server] = field(default_factory=dict)

    def start(self, number: int) -> Server:
        """Returns when it serves clients."""
        folder = self.folder / str(number)
        folder.mkdir(exist_ok=True)
        port = self.ports[number]
        program = (sys.executable, "-c", "from penstock.cli.main import main; main()", "serve")
        place = ("--zookeeper", self.zookeeper, "--node-id", str(number))
        address = ("--data-dir", str(folder / "data"), "--listen", f"127.0.0.1:{port}")
        configs = dict(self.configs)
        if self.metrics_ports:
            configs["penstock.metrics.listen"] = f"127.0.0.1:{self.metrics_ports[number]}"
        options = [part for name, value in configs.items() for part in ("-X", f"{name}={value}")]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        if self.syncs:
            environment |= self.syncs[number].environment
        server = Server(
            [*program, *place, *address, *options, "--log-level", "info", "--log-format", "json"],
            port=port,
            folder=folder,
            cores=(),
            is_ready=speaks_kafka,
            environment=environment,
            # Linux shares out a busy machine among sessions, and brokers have machines of their own elsewhere.
            has_own_session=bool(self.syncs),
        )
        self.running[number] = server
        return server

    def kill(self, number: int) -> None:
        """As a crash does."""
        server = self.running.pop(number)
        server.process.kill()
        server.process.wait()

    def cpu_seconds(self) -> dict[int, float]:
        return {number: server.cpu_seconds() for number, server in self.running.items()}

    def addresses(self) -> str:
        return ",".join(f"127.0.0.1:{self.ports[number]}" for number in sorted(self.running))

    def wait_until(self, what: str, is_so: Callable[[Told], bool]) -> float:
        """Until every broker that runs says so of the cluster; the seconds until then."""
        began = time.monotonic()
        waiting = sorted(self.running)
        while waiting:
            told = ask_metadata(self.ports[waiting[0]])
            if is_so(told):
                waiting.pop(0)
            elif time.monotonic() - began > PATIENCE_SECONDS:
                raise ServerError(f"after {PATIENCE_SECONDS:.0f} s broker {waiting[0]} waits for {what}: {told}")
            else:
                time.sleep(_POLL_SECONDS)
        return time.monotonic() - began


@contextmanager
def cluster_of(
    count: int, *, is_counted: bool = False, configs: Mapping[str, str] | None = None, within: Path = CACHE
) -> Iterator[Brokers]:
    """Brokers that have just been started; all is gone afterwards. If they are to be counted, they serve metrics, and
    their syncs are counted."""
    with (
        scratch_folder(warm_bytes=0, within=within) as folder,
        Ensemble(nodes=3, within=within) as ensemble,
        counted([node.address for node in ensemble.nodes]) as (connect, traffic),
    ):
        brokers = Brokers(Path(folder), f"{connect}/bench", traffic, free_ports(count), configs=dict(configs or {}))
        if is_counted:
            brokers.metrics_ports = free_ports(count)
            brokers.syncs = [SyncCounter(Path(folder, f"syncs-{number}")) for number in range(count)]
        try:
            for number in range(count):
                brokers.start(number)
            brokers.wait_until("the others", lambda told: len(told.brokers) == count)
            yield brokers
        finally:
            for number in list(brokers.running):
                brokers.kill(number)
