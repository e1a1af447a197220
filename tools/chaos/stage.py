"""The stage has three hosts, each with a ZooKeeper and a broker: they are started, killed, paused and wiped here."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from penstock.client.sync import Admin
from tools.chaos.disks import Ext4Disk
from tools.chaos.network import HOSTS, Network, address
from tools.chaos.shim import Shim
from tools.chaos.view import View, look
from tools.zookeeper.ensemble import Ensemble, Host

PORT: Final = 9092
SESSION_SECONDS: Final = 6.0
REPLICAS: Final = len(HOSTS)
START_SECONDS: Final = 90.0
STOP_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.2
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


class StuckError(Exception):
    """What has to happen has not happened in time."""


@dataclass(slots=True)
class BrokerProcess:
    """The broker of a host, whose number is its id."""

    number: int
    command: list[str]
    data: Path
    log: Path
    shim: Shim | None = None
    """Without it nothing can be wrong with its disk and its clock."""
    disk: Ext4Disk | None = None
    """Without one of its own, `data` lies on that of this machine."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{address(self.number)}:{PORT}"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        assert not self.is_running, f"broker {self.number} runs already"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        environment |= self.shim.environment if self.shim else {}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )

    def kill(self) -> None:
        """At once, as a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """In order, as an operator does."""
        assert self.process is not None
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise StuckError(f"broker {self.number} does not stop within {STOP_SECONDS:.0f} s") from None

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def wipe(self) -> None:
        """An empty disk in place of its own."""
        assert not self.is_running, f"broker {self.number} runs"
        shutil.rmtree(self.data)

    def _signal(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)


class Stage:
    """`with Stage(network, folder) as stage:` has a cluster that is whole; data and logs are in the folder."""

    def __init__(self, network: Network, folder: Path, *, shim: Path | None = None, with_disks: bool = False) -> None:
        """`shim` is its library; with disks, each broker has one that can lose its power."""
        self.network = network
        prefixes = {number: network.command(network.host(number)) for number in HOSTS}
        self.ensemble = Ensemble(nodes=3, hosts=[Host(address(each), tuple(prefixes[each])) for each in HOSTS])
        serve = [sys.executable, "-P", "-m", "penstock", "serve", "--insecure", "--zookeeper"]
        serve += [f"{self.ensemble.connect}/penstock", *(word for config in CONFIGS for word in ("-X", config))]
        self.brokers = {}
        for each in HOSTS:
            own_folder = folder / f"host-{each}"
            own_folder.mkdir()
            disk = Ext4Disk(own_folder) if with_disks else None
            data = (disk.path if disk else own_folder) / "data"
            own = ["--node-id", str(each), "--listen", f"{address(each)}:{PORT}", "--data-dir", str(data)]
            self.brokers[each] = BrokerProcess(
                each,
                [*prefixes[each], *serve, *own],
                data,
                log=folder / f"broker-{each}.log",
                shim=Shim(shim, own_folder / "shim", data) if shim else None,
                disk=disk,
            )

    def __enter__(self) -> Self:
        self.ensemble.__enter__()
        try:
            for broker in self.brokers.values():
                if broker.disk is not None:
                    broker.disk.create()
            for broker in self.brokers.values():
                broker.start()
            self.wait_until_whole(START_SECONDS)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for broker in self.brokers.values():
            # Nothing of it is used again.
            broker.kill()
            if broker.disk is not None:
                broker.disk.unmount()
        self.ensemble.stop()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        with Admin(self.bootstrap) as admin:
            self._create(admin, name, partitions, configs or {})

    def recreate_topic(self, name: str, partitions: int, *, pause: float, patience: float) -> None:
        """Delete it, and create another by its name; returns when all brokers that run know the new one by its id."""
        with Admin(self.bootstrap) as admin:
            admin.delete_topic(name)
            time.sleep(pause)
            topic_id = self._create(admin, name, partitions, {})

        def is_known() -> bool:
            seen = [look(broker.address) for broker in self.brokers.values() if broker.is_running]
            return all(one is not None and one.topic_ids.get(name) == topic_id for one in seen)

        wait_for(is_known, patience, f"all brokers to know the topic {name} that was created again")

    def _create(self, admin: Admin, name: str, partitions: int, configs: Mapping[str, str]) -> bytes:
        made = admin.create_topic(name, partitions, replication_factor=REPLICAS, configs={**TOPIC_CONFIGS, **configs})
        return made.topic_id

    def logs(self) -> list[Path]:
        return [
            *(broker.log for broker in self.brokers.values()),
            *(node.folder / "log" for node in self.ensemble.nodes),
        ]

    def view(self, group: str | None = None) -> View:
        """What a broker says that answers: of the first, if all do."""
        for broker in self.brokers.values():
            if (seen := look(broker.address, group)) is not None:
                return seen
        raise StuckError("no broker answers")

    def zookeeper_leader(self) -> int:
        return self.ensemble.leader().number

    def wait_until_whole(self, seconds: float) -> None:
        """Until every broker says that the cluster is whole."""
        lacks = ""

        def is_whole() -> bool:
            nonlocal lacks
            wanted = frozenset(self.brokers)
            for broker in self.brokers.values():
                seen = look(broker.address)
                if seen is None or not seen.is_whole(wanted):
                    lacks = (
                        f"broker {broker.number} {'does not answer' if seen is None else f'sees {seen.lacks(wanted)}'}"
                    )
                    return False
            return True

        try:
            wait_for(is_whole, seconds, "the cluster whole")
        except StuckError as error:
            raise StuckError(f"{error}; {lacks}") from None


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise StuckError(f"{what}: not within {seconds:.0f} s")
        time.sleep(POLL_SECONDS)
