"""Three brokers as processes of their own, whose metadata is in ZooKeeper, as an operator runs them on three hosts."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

from penstock.client.sync import Admin
from tests.system.processes import BrokerProcess, Patience, spare_port

BROKERS: Final = 3
SESSION_MS: Final = 2000


class ZookeeperCluster:
    """`with ZookeeperCluster(folder, connect) as cluster:` has brokers 0, 1 and 2, at ports that they keep. Configs are
    those of all brokers, written as `name=value`."""

    def __init__(self, folder: Path, connect: str, *configs: str, session_ms: int = SESSION_MS) -> None:
        self._folder = folder
        self._connect = connect
        self._configs = (f"zookeeper.session.timeout.ms={session_ms}", *configs)
        self._ports = [spare_port() for _ in range(BROKERS)]
        self.brokers: dict[int, BrokerProcess] = {}

    def __enter__(self) -> Self:
        try:
            with ThreadPoolExecutor(BROKERS) as threads:
                list(threads.map(self.start, range(BROKERS)))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            broker.kill()

    def start(self, number: int) -> None:
        """As it was before, after it was killed."""
        self.brokers[number] = BrokerProcess(
            self.data(number),
            *("--zookeeper", self._connect, "--node-id", str(number), "--listen", self.address(number)),
            *(option for config in self._configs for option in ("-X", config)),
        )

    def data(self, number: int) -> Path:
        return self._folder / str(number)

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self._ports[number]}"

    @property
    def bootstrap(self) -> str:
        return ",".join(map(self.address, range(BROKERS)))

    def controller(self, *, says: int = 0) -> int:
        """The controller, by the word of a broker."""
        with Admin(self.address(says)) as admin:
            return admin.cluster().controller_id

    def wait_for_other_controller(self, before: int) -> int:
        """Wait until all other brokers say that another one is the controller. Returns which."""
        others = [number for number in range(BROKERS) if number != before]
        told: set[int] = set()

        def agree() -> bool:
            nonlocal told
            told = {self.controller(says=number) for number in others}
            return len(told) == 1 and told <= set(others)

        wait_until(agree, "another controller")
        return told.pop()

    def wait_until_alive(self) -> None:
        """Wait until every broker says that all are."""

        def agree() -> bool:
            for number in range(BROKERS):
                with Admin(self.address(number)) as admin:
                    if [broker.id for broker in admin.cluster().brokers] != list(range(BROKERS)):
                        return False
            return True

        wait_until(agree, "all brokers to be alive")

    def wait_until_in_sync(self, *topics: str) -> None:
        """Wait until all brokers are alive, and every partition has all its replicas in sync."""
        self.wait_until_alive()

        def agree() -> bool:
            with Admin(self.bootstrap) as admin:
                partitions = [each for topic in topics for each in admin.topic(topic).partitions]
            return all(len(each.isr) == len(each.replicas) == BROKERS for each in partitions)

        wait_until(agree, "all replicas to be in sync")

    def logged(self, message: str) -> list[int]:
        """How often each broker has logged this since it was started."""
        return [len(self.brokers[number].lines(message)) for number in range(BROKERS)]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    patience = Patience()
    while not condition() and patience.lasts(what):
        time.sleep(0.02)
