"""Apache Kafka's stage: three nodes, each a broker and a controller at once (KRaft), set up for acks=all as Penstock's
brokers are, and started as Kafka's scripts start it."""

import asyncio
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.client.sync import Admin
from penstock.protocol.errors import DecodeError
from penstock.protocol.schemas.cluster import DescribeClusterRequest
from tools.chaos.network import HOSTS, Network, address
from tools.chaos.stage import PORT, BrokerProcess, Stage, wait_for
from tools.chaos.systems.warming import load
from tools.chaos.view import ASK_SECONDS, View
from tools.clients.processes import OutsideError, last_lines
from tools.fixtures.connection import Connection
from tools.fixtures.kafka import CLUSTER_ID, FORMAT_SECONDS, java

DEFAULT_SESSION_SECONDS: Final = 9.0
HEAP_MB: Final = 512
CONTROLLER_PORT: Final = 9093
WARM_PARTITIONS: Final = 12
KNOWN_SECONDS: Final = 30.0
WHOLE_SECONDS: Final = 180.0
"""On two busy cores Java alone takes a minute to start, which says nothing of recovery."""
_OF_CONTROLLERS: Final = 2
"""A kind of endpoint in DescribeCluster (KIP-919)."""
_OURS: Final = "penstock."
_SHORT: Final = ("-XX:TieredStopAtLevel=1", "-XX:-UseG1GC", "-XX:+UseSerialGC")
"""For a program that ends soon."""

# Whatever is not here is as Kafka has it by default: segments of 1 GB, records that the system flushes.
PROPERTIES: Final = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{address}:{port},CONTROLLER://{address}:{controller_port}
log.dirs={data}
broker.session.timeout.ms={session_ms}
default.replication.factor=3
min.insync.replicas=2
auto.create.topics.enable=false
offsets.topic.num.partitions=10
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
share.coordinator.state.topic.replication.factor=3
share.coordinator.state.topic.min.isr=2
"""
LOGGING: Final = """\
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.out.ref=out
"""


class KafkaStage(Stage):
    """Data and logs are in the folder."""

    whole_seconds = WHOLE_SECONDS

    def __init__(self, network: Network, folder: Path, *, session_seconds: float) -> None:
        logging = folder / "log4j2.properties"
        logging.write_text(LOGGING)
        self._java = [*java(HEAP_MB), f"-Dlog4j2.configurationFile={logging}"]
        self._properties = {each: folder / f"host-{each}" / "server.properties" for each in HOSTS}
        self._warmings = 0
        self._warm: set[int] = set()
        """The ids of the processes that were loaded."""
        brokers = {}
        for each, properties in self._properties.items():
            properties.parent.mkdir()
            data = properties.parent / "data"
            properties.write_text(properties_of(each, data, session_seconds))
            command = [*network.command(network.host(each)), *self._java, "kafka.Kafka", str(properties)]
            brokers[each] = BrokerProcess(each, command, data, log=folder / f"broker-{each}.log")
        super().__init__(network, brokers, session_seconds)

    def prepare(self) -> None:
        tool = [*self._java, *_SHORT, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"]
        for properties in self._properties.values():
            command = [*tool, str(properties)]
            done = subprocess.run(command, capture_output=True, check=False, timeout=FORMAT_SECONDS)
            if done.returncode:
                raise OutsideError(f"Kafka's StorageTool: {last_lines(done.stdout + done.stderr)}")

    def warm(self) -> None:
        """Java compiles what runs often: a process that has started since the last round is no process of a day ago."""
        processes = {broker.process.pid for broker in self.brokers.values() if broker.process is not None}
        if processes <= self._warm:
            return
        self._warmings += 1
        # A new topic has leaders on all brokers.
        topic = f"warming-{self._warmings}"
        self.create_topic(topic, WARM_PARTITIONS)
        load(self.bootstrap, topic, WARM_PARTITIONS)
        with Admin(self.bootstrap) as admin:
            admin.delete_topic(topic)
        self.wait_until_whole(self.whole_seconds)
        self._warm |= processes

    def topic_configs(self, configs: Mapping[str, str]) -> Mapping[str, str]:
        return {name: value for name, value in configs.items() if not name.startswith(_OURS)}

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Returns when all brokers know it."""
        super().create_topic(name, partitions, configs)

        def is_known() -> bool:
            seen = [self.look(broker) for broker in self.brokers.values()]
            return all(one is not None and (name, partitions - 1) in one.partitions for one in seen)

        wait_for(is_known, KNOWN_SECONDS, f"all brokers to know the topic {name}")

    def look(self, broker: BrokerProcess, group: str | None = None) -> View | None:
        """Brokers name any of them as the controller, as each hands on what is for it: its own listener is asked."""
        seen = super().look(broker, group)
        controller = active_controller(f"{address(broker.number)}:{CONTROLLER_PORT}")
        return None if seen is None or controller is None else replace(seen, controller=controller)


def properties_of(node: int, data: Path, session_seconds: float) -> str:
    return PROPERTIES.format(
        node=node,
        voters=",".join(f"{each}@{address(each)}:{CONTROLLER_PORT}" for each in HOSTS),
        address=address(node),
        port=PORT,
        controller_port=CONTROLLER_PORT,
        data=data,
        session_ms=round(session_seconds * 1000),
    )


def active_controller(listener: str) -> int | None:
    """Which of the controllers leads the others, -1 for none; None if the one that is asked does not answer."""

    async def ask() -> int:
        async with asyncio.timeout(ASK_SECONDS), Connection(listener) as connection:
            return int((await connection.ask(DescribeClusterRequest(endpoint_type=_OF_CONTROLLERS))).controller_id)

    try:
        return asyncio.run(ask())
    except (OSError, OutsideError, TimeoutError, DecodeError):
        return None
