"""The stage has three hosts, each with a broker of one system: brokers are started, killed, paused and wiped here."""

import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from penstock.client.sync import Admin
from tools.chaos.disks import Ext4Disk
from tools.chaos.network import HOSTS, Network, address
from tools.chaos.shim import Shim
from tools.chaos.view import View, look

PORT: Final = 9092
REPLICAS: Final = len(HOSTS)
START_SECONDS: Final = 90.0
WHOLE_SECONDS: Final = 60.0
"""After a fault brokers have to be back, and all replicas in sync, within this time."""
STOP_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.2


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


class Stage(ABC):
    """`with stage:` has a cluster that is whole. The stages of the systems say what their brokers need beside them."""

    whole_seconds = WHOLE_SECONDS

    def __init__(self, network: Network, brokers: dict[int, BrokerProcess], session_seconds: float) -> None:
        """The others go on without a broker that they have not heard of for a session."""
        self.network = network
        self.brokers = brokers
        self.session_seconds = session_seconds

    def __enter__(self) -> Self:
        try:
            self.prepare()
            for broker in self.brokers.values():
                broker.start()
            self.wait_until_whole(max(START_SECONDS, self.whole_seconds))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def prepare(self) -> None:
        """Whatever brokers need before they start."""

    @abstractmethod
    def warm(self) -> None:
        """Before each round: brokers that need it for being as fast as they can be are loaded for a while."""

    @abstractmethod
    def topic_configs(self, configs: Mapping[str, str]) -> Mapping[str, str]:
        """What topics are created with, given what is asked for in Penstock's words."""

    def stop(self) -> None:
        """Nothing of it is used again."""
        for broker in self.brokers.values():
            broker.kill()

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
            seen = [self.look(broker) for broker in self.brokers.values() if broker.is_running]
            return all(one is not None and one.topic_ids.get(name) == topic_id for one in seen)

        wait_for(is_known, patience, f"all brokers to know the topic {name} that was created again")

    def _create(self, admin: Admin, name: str, partitions: int, configs: Mapping[str, str]) -> bytes:
        told = self.topic_configs(configs)
        made = admin.create_topic(name, partitions, replication_factor=REPLICAS, configs=told)
        return made.topic_id

    def logs(self) -> list[Path]:
        return [broker.log for broker in self.brokers.values()]

    def look(self, broker: BrokerProcess, group: str | None = None) -> View | None:
        """What a broker says; None if it does not answer."""
        return look(broker.address, group)

    def view(self, group: str | None = None) -> View:
        """What a broker says that answers: of the first, if all do."""
        for broker in self.brokers.values():
            if (seen := self.look(broker, group)) is not None:
                return seen
        raise StuckError("no broker answers")

    def wait_until_whole(self, seconds: float) -> None:
        """Until every broker says that the cluster is whole."""
        lacks = ""

        def is_whole() -> bool:
            nonlocal lacks
            wanted = frozenset(self.brokers)
            for broker in self.brokers.values():
                seen = self.look(broker)
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
