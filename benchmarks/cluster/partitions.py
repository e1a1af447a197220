"""Measures a cluster of three brokers with ten thousand partitions over a ZooKeeper with its default limits: creates
and lists them, kills a broker and the controller, and lets both come back."""

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Final

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.batches import KB, MB
from benchmarks.cluster.asking import Connection, Probe, Told, ask_metadata
from benchmarks.cluster.brokers import PATIENCE_SECONDS, Brokers, cluster_of
from benchmarks.measure import Step
from benchmarks.processes import Server, ServerError
from benchmarks.report import Row, Table, Target
from penstock.machines import cluster_records
from penstock.metadata.zookeeper.store import ZookeeperStore
from penstock.protocol.schemas.metadata import MetadataRequest
from tools.clients.packages import HERE, class_path

BROKERS: Final = 3
MAX_REQUEST_KB: Final = 512
NO_LEADER: Final = -1
# Of Metadata: librdkafka, Java and our own questions have later ones, so nothing is kept of these yet.
FRESH_VERSIONS: Final = range(1, 9)
_NEXT_REQUESTS: Final = 5
_SETTLING_SECONDS: Final = 0.02
_RATIO: Final = "next / first"
_LARGEST: Final = "largest request KB"


@dataclass(slots=True, frozen=True)
class Shape:
    """Topics, and how many partitions each has."""

    topics: int
    partitions: int

    @property
    def name(self) -> str:
        return f"{self.topics:,} × {self.partitions:,}"

    @property
    def total(self) -> int:
        return self.topics * self.partitions

    def names(self) -> list[str]:
        return [f"topic-{number:05d}" for number in range(self.topics)]


@dataclass(slots=True)
class Stage:
    """The cluster, and what has been found out."""

    brokers: Brokers
    shape: Shape
    step: Step
    rows: list[Row] = field(default_factory=list)

    @contextmanager
    def measured(self, what: str, *, probed: int | None = None) -> Iterator[dict[str, float]]:
        """A step of the run, which may say seconds of its own; `probed` is a broker that runs all the time."""
        self.step(f"{self.shape.name}: {what}")
        traffic = self.brokers.traffic
        traffic.largest = 0
        requests, request_bytes = traffic.requests, traffic.request_bytes
        before = self.brokers.cpu_seconds()
        # What a killed broker has used is not known afterwards.
        began = time.monotonic()
        told: dict[str, float] = {}
        if probed is None:
            yield told
            longest: float | str = ""
        else:
            with Probe(self.brokers.ports[probed]) as probe:
                yield told
            longest = probe.longest_seconds * 1000
        seconds = told.get("seconds", time.monotonic() - began)
        used = [now - before.get(number, 0) for number, now in self.brokers.cpu_seconds().items()]
        self.rows.append(
            Row(
                {
                    "partitions": self.shape.name,
                    "step": what,
                    "s": seconds,
                    "CPU s of a broker, most": max(used),
                    "all": sum(used),
                    "longest wait ms": longest,
                    "requests": float(traffic.requests - requests),
                    "KB": (traffic.request_bytes - request_bytes) / KB,
                    "largest": traffic.largest / KB,
                }
            )
        )


def run(step: Step, shape: Shape) -> list[Table]:
    step(f"{shape.name}: starting ZooKeeper and brokers")
    with cluster_of(BROKERS) as brokers:
        stage = Stage(brokers, shape, step)
        memory = {"idle": _memory_mb(brokers)}
        _create(stage)
        memory["with empty partitions"] = _memory_mb(brokers)
        _list(stage)
        costs = _repeated_metadata(stage)
        _kill_and_return(stage, "empty")
        _fill(stage)
        memory["with a message in each"] = _memory_mb(brokers)
        _kill_and_return(stage, "filled")
        memory["in the end"] = _memory_mb(brokers)
        step(f"{shape.name}: reading the metadata log")
        log = asyncio.run(_read_log(brokers.zookeeper))
        largest = brokers.traffic.largest_request
    return [
        Table(
            f"Ten thousand partitions, {shape.name}",
            "Three brokers and three nodes of ZooKeeper, each a process, on all cores of one machine. CPU is that of "
            "the brokers; the longest wait is that of a small question which one broker is asked every 5 ms. Requests, "
            "KB and the largest one are those of all brokers to ZooKeeper, whose own limit is 1 MB. A session lasts "
            "6 s: so long after a kill nothing happens.",
            stage.rows,
        ),
        Table(
            f"Metadata of all, {shape.name}",
            f"CPU ms of a broker for a reply, over one connection: the first one in a version, and those that follow "
            f"it. Medians over versions {FRESH_VERSIONS[0]} to {FRESH_VERSIONS[-1]} and {BROKERS} brokers.",
            [_cost_row(shape, costs)],
            {"first and mean of the next": costs},
        ),
        Table(
            f"The metadata log, {shape.name}",
            "After all of the above, as it lies in ZooKeeper.",
            [_log_row(log, largest)],
        ),
        Table(
            f"Memory of a broker, {shape.name}",
            "Resident MB of each broker. After the first kills two of the three are new processes.",
            [_memory_row(what, found) for what, found in memory.items()],
        ),
    ]


def _create(stage: Stage) -> None:
    shape, brokers = stage.shape, stage.brokers
    # Not the controller: the request is forwarded.
    told = ask_metadata(brokers.ports[0])
    asked = next(number for number in brokers.running if number != told.controller_id)
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{brokers.ports[asked]}"})
    with stage.measured("created, all in one request", probed=told.controller_id) as took:
        began = time.monotonic()
        topics = [NewTopic(name, num_partitions=shape.partitions, replication_factor=1) for name in shape.names()]
        for created in admin.create_topics(topics, request_timeout=PATIENCE_SECONDS).values():
            created.result(PATIENCE_SECONDS)
        answered = time.monotonic() - began
        brokers.wait_until("all partitions", partial(_is_led, shape.total))
        took["answered"] = answered


def _is_led(total: int, told: Told, *, without: int = 0) -> bool:
    return told.partitions == total and told.leaders[NO_LEADER] == without


def _list(stage: Stage) -> None:
    brokers, total = stage.brokers, stage.shape.total
    for number in brokers.running:
        with stage.measured(f"listed by librdkafka, broker {number}"):
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{brokers.ports[number]}"})
            topics = admin.list_topics(timeout=PATIENCE_SECONDS).topics.values()
            led = sum(
                partition.leader in brokers.running for topic in topics for partition in topic.partitions.values()
            )
            if led != total:
                raise ServerError(f"librdkafka lists {led:,} partitions with a leader instead of {total:,}")
    with stage.measured("listed and described by Java, twice, with its start"):
        command = ["java", "-cp", class_path("java"), str(HERE / "java" / "Listing.java"), brokers.addresses(), "2"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
        leaders = json.loads(done.stdout)["leaders"]
        if sum(leaders.values()) != total or str(NO_LEADER) in leaders:
            raise ServerError(f"Java lists partitions with the leaders {leaders} instead of {total:,}")


def _repeated_metadata(stage: Stage) -> list[tuple[float, float]]:
    """CPU seconds of the first reply in a version, and of one of those that follow it."""
    found = []
    for number, server in stage.brokers.running.items():
        with Connection(stage.brokers.ports[number]) as connection:
            for version in FRESH_VERSIONS:
                stage.step(f"{stage.shape.name}: metadata {version} of broker {number}")
                first = _cost(server, connection, version, times=1)
                found.append((first, _cost(server, connection, version, times=_NEXT_REQUESTS)))
    return found


def _cost(server: Server, connection: Connection, version: int, *, times: int) -> float:
    before = server.cpu_seconds()
    for _ in range(times):
        connection.ask(MetadataRequest(topics=None), version)
    # What it does after it has answered counts, too.
    time.sleep(_SETTLING_SECONDS)
    return (server.cpu_seconds() - before) / times


def _kill_and_return(stage: Stage, state: str) -> None:
    """One broker is killed, the controller too, and both come back."""
    brokers, total = stage.brokers, stage.shape.total
    told = ask_metadata(brokers.ports[0])
    controller = told.controller_id
    killed, left = (number for number in brokers.running if number != controller)
    first, both = told.leaders[killed], told.leaders[killed] + told.leaders[controller]
    with stage.measured(f"{state}: a broker killed", probed=left):
        brokers.kill(killed)
        brokers.wait_until(
            "the dead broker's partitions to be without a leader", partial(_is_led, total, without=first)
        )
    with stage.measured(f"{state}: the controller killed, too", probed=left):
        brokers.kill(controller)
        brokers.wait_until(
            "another controller",
            lambda told: told.controller_id == left and _is_led(total, told, without=both),
        )
    with stage.measured(f"{state}: the first is back", probed=left):
        brokers.start(killed)
        brokers.wait_until("leaders", partial(_is_led, total, without=both - first))
    with stage.measured(f"{state}: the second is back", probed=left):
        brokers.start(controller)
        brokers.wait_until("leaders", partial(_is_led, total))


def _fill(stage: Stage) -> None:
    with stage.measured("a message to each, acks=all", probed=min(stage.brokers.running)):
        fill(stage.shape, stage.brokers.addresses(), PATIENCE_SECONDS)


def fill(shape: Shape, addresses: str, seconds: float) -> None:
    """Send a message to each partition, and wait until all are acknowledged."""
    producer = Producer({"bootstrap.servers": addresses, "acks": "all", "linger.ms": 50, "log_level": 0})
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    for name in shape.names():
        for partition in range(shape.partitions):
            producer.produce(name, b"%d" % partition, partition=partition, on_delivery=delivered)
        producer.poll(0)
    if producer.flush(seconds) or refused:
        raise ServerError(f"messages were not delivered: {refused[:3] or 'there was no answer'}")


@dataclass(slots=True, frozen=True)
class MetadataLog:
    entry_bytes: list[int]
    records: int
    snapshot_bytes: int


async def _read_log(zookeeper: str) -> MetadataLog:
    store = ZookeeperStore(zookeeper)
    await store.open()
    try:
        snapshot = await store.load_snapshot()
        sizes: list[int] = []
        records = 0
        while entries := await store.entries(len(sizes)):
            for _, entry in entries:
                sizes.append(len(entry))
                records += len(cluster_records.decode(entry).records)
        return MetadataLog(sizes, records, len(snapshot[1]) if snapshot else 0)
    finally:
        await store.close()


def _log_row(log: MetadataLog, largest_request: int) -> Row:
    return Row(
        {
            "entries": float(len(log.entry_bytes)),
            "records": float(log.records),
            "KB": sum(log.entry_bytes) / KB,
            "largest entry KB": max(log.entry_bytes) / KB,
            "snapshot KB": log.snapshot_bytes / KB,
            _LARGEST: largest_request / KB,
        },
        (Target(_LARGEST, MAX_REQUEST_KB, at_most=True),),
    )


def _cost_row(shape: Shape, costs: list[tuple[float, float]]) -> Row:
    return Row(
        {
            "partitions": shape.name,
            "first": median(first for first, _ in costs) * 1000,
            "next": median(later for _, later in costs) * 1000,
            _RATIO: median(later / first for first, later in costs),
            "worst": max(later / first for first, later in costs),
        },
        (Target(_RATIO, 0.1, at_most=True),),
    )


def _memory_mb(brokers: Brokers) -> list[float]:
    return [brokers.running[number].memory_bytes() / MB for number in sorted(brokers.running)]


def _memory_row(what: str, found: list[float]) -> Row:
    return Row({"": what, **{f"broker {number}": megabytes for number, megabytes in enumerate(found)}})
