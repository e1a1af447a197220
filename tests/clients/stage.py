"""Brokers as processes of their own, the clients that tests ask for, and our own eyes to see what they did."""

import asyncio
import json
import os
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from penstock.client.admin.brokers import describe_cluster
from penstock.client.admin.topics import NewTopic, create_topics
from penstock.client.cluster.cluster import Cluster, Target, Terms
from penstock.client.errors import broker_error, unwrap
from penstock.client.metadata import TopicPartition
from penstock.client.plain.fetch import fetch
from penstock.protocol.batch import BatchHeader
from penstock.protocol.records import NewRecord, Record, iterate
from penstock.protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tools.clients.client import PARTITION, SECONDS, Client, RefusedError, Session
from tools.clients.processes import OutsideError, last_lines
from tools.clients.records import with_offset, without_offset

T = TypeVar("T")

ROOT = Path(__file__).parent.parent.parent
SERVE = "from penstock.cli.main import main; main()"
TOLD_BYTES = 80


class Stored(NamedTuple):
    """A batch as the broker has it, and what is in it."""

    header: BatchHeader
    records: Sequence[Record]


class Drivers:
    """Clients that stay open from one test to the next, and from one stage to the other. What awaits is run by `run`,
    in one loop."""

    def __enter__(self) -> Self:
        self._runner = asyncio.Runner()
        self._sessions: dict[str, tuple[Session, AsyncExitStack]] = {}
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._runner.run(self._close_sessions())
        finally:
            self._runner.close()

    async def _close_sessions(self) -> None:
        for _, stack in self._sessions.values():
            await stack.aclose()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)

    async def drive(self, client: Client, action: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """Let a client do something. One that fails is closed, so that the next test opens another."""
        if client.name not in self._sessions:
            stack = AsyncExitStack()
            self._sessions[client.name] = await stack.enter_async_context(client.open()), stack
        session, stack = self._sessions[client.name]
        try:
            return await action(session)
        except RefusedError:
            raise
        except (OutsideError, TimeoutError, asyncio.CancelledError):
            del self._sessions[client.name]
            await stack.aclose()
            raise

    def version(self, client: Client) -> str:
        return self._sessions[client.name][0].version


class Stage:
    """`with Stage(drivers) as stage:` has a broker at `stage.bootstrap`; of several brokers it is one that is not the
    controller."""

    def __init__(self, drivers: Drivers, brokers: int = 1) -> None:
        self.run, self.drive, self.version = drivers.run, drivers.drive, drivers.version
        self._brokers = brokers
        self._topics = 0
        self._made: dict[Callable[[Stage], Any], Any] = {}

    def __enter__(self) -> Self:
        self._stack = AsyncExitStack()
        self.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._stack.aclose())

    async def _open(self) -> None:
        try:
            addresses, self._metrics, self._log = await self._stack.enter_async_context(_serving(self._brokers))
            self.bootstrap = await other_than_controller(addresses)
            self.cluster = await self._stack.enter_async_context(Cluster(self.bootstrap))
        except BaseException:
            await self._stack.aclose()
            raise

    def once(self, make: "Callable[[Stage], Coroutine[Any, Any, T]]") -> T:
        """What a function makes of this stage, for all tests."""
        if make not in self._made:
            self._made[make] = self.run(make(self))
        made: T = self._made[make]
        return made

    async def new_topic(self, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """A topic whose records may be as old as they like."""
        self._topics += 1
        name = f"topic-{self._topics}"
        topic = NewTopic(name=name, partitions=partitions, configs={"retention.ms": "-1", **(configs or {})})
        unwrap(await create_topics(self.cluster, [topic]))
        return name

    async def append(self, topic: str, batch: bytes | bytearray, partition: int = PARTITION) -> None:
        """Produce a batch just as it is. The leader of a new topic may hear of it last, and is then asked again."""

        def request(target: Target) -> ProduceRequest:
            data = PartitionProduceData(index=target.partition, records=batch)
            to = TopicProduceData(name=target.topic, topic_id=target.topic_id, partition_data=[data])
            return ProduceRequest(acks=-1, timeout_ms=SECONDS * 1000, topic_data=[to])

        def read(response: ProduceResponse, _: Target) -> None:
            [answer] = response.responses[0].partition_responses
            if answer.error_code:
                raise broker_error(answer.error_code, topic)

        terms = Terms(repeatable=False, hold_ms=SECONDS * 1000)
        await self.cluster.request_to_leader(TopicPartition(topic, partition), request, read, terms=terms)

    async def stored(self, topic: str, count: int) -> list[Stored]:
        """The batches of a topic, read with our own client as soon as they hold so many records (with acks=0 nobody
        knows when that is); all that there are, if they hold more."""
        batches: list[Stored] = []
        offset = 0
        async with asyncio.timeout(SECONDS):
            while True:
                fetched = await fetch(self.cluster, topic, PARTITION, offset)
                batches += [Stored(header, list(iterate(view))) for header, view in fetched.batches]
                offset = fetched.next_offset
                if offset >= count and offset == fetched.high_watermark:
                    return batches

    async def fetched_bytes(self, topic: str) -> int:
        """How many bytes of records brokers have handed to readers of a topic."""

        def page(url: str) -> str:
            with urllib.request.urlopen(url, timeout=SECONDS) as response:
                return str(response.read(), "utf-8")

        line = f'penstock_topic_fetched_bytes_total{{topic="{topic}"}} '
        told = [await asyncio.to_thread(page, url) for url in self._metrics]
        # A broker that has nothing of the topic has no such line.
        return sum(int(each.partition(line)[2].partition("\n")[0] or 0) for each in told)

    def logged(self, topic: str) -> list[str]:
        """The broker's log lines about a partition of a topic, and all warnings and errors."""
        # The last line may not be whole yet.
        whole = self._log.read_text().rpartition("\n")[0]
        lines = [(line, json.loads(line)) for line in whole.splitlines()]
        return [
            line
            for line, facts in lines
            if facts.get("partition", "").rpartition("-")[0] == topic or facts["level"] in {"warning", "error"}
        ]


def assert_same(got: Sequence[Record], expected: Sequence[Record]) -> None:
    """Like `==`, in words that are short even if the records are not."""
    for one, other in zip(got, expected, strict=False):
        for field, mine, its in zip(Record._fields, one, other, strict=True):
            assert mine == its, f"{field} at offset {other.offset} is {_short(mine)} and not {_short(its)}"
    assert len(got) == len(expected), f"{len(got)} records and not {len(expected)}; the common ones are the same"


def numbered(records: Sequence[NewRecord], first_offset: int = 0) -> list[Record]:
    """New records as they are read back if they are the only ones from that offset on."""
    return [with_offset(record, offset) for offset, record in enumerate(records, first_offset)]


def told_by(client: Client, records: Sequence[Record]) -> list[Record]:
    """What a client tells of records that it read."""
    told = client.reads([without_offset(record) for record in records])
    return [with_offset(new, record.offset) for new, record in zip(told, records, strict=True)]


def _short(value: object) -> str:
    told = repr(value)
    return told if len(told) <= TOLD_BYTES else f"{told[:TOLD_BYTES]}… ({len(told)} characters)"


async def other_than_controller(addresses: Sequence[str]) -> str:
    """The address of a broker that is not the controller, unless there is only one."""
    async with Cluster(addresses[0]) as cluster:
        told = await describe_cluster(cluster)
    assert len(told.brokers) == len(addresses), told
    others = [broker for broker in told.brokers if broker.id != told.controller_id] or told.brokers
    return f"{others[-1].host}:{others[-1].port}"


@asynccontextmanager
async def _serving(brokers: int) -> AsyncIterator[tuple[list[str], list[str], Path]]:
    """The addresses of brokers in processes of their own, which in the end stop well and have logged no error, and
    where their metrics and their log are."""
    with tempfile.TemporaryDirectory(prefix="penstock-clients-") as folder, (Path(folder) / "log").open("w+b") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SERVE, "serve", "--processes", str(brokers)),
            *("--data-dir", str(Path(folder) / "data"), "--listen", "127.0.0.1:0", "--log-format", "json"),
            # kafkajs reads only in groups, each of which would wait for more members.
            *("-X", "group.initial.rebalance.delay.ms=0"),
            *("-X", "log.cleaner.backoff.ms=20"),
            *("-X", "penstock.metrics.listen=127.0.0.1:0"),
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")},
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(SECONDS):
                addresses = metrics = ""
                while not metrics:
                    line = (await process.stdout.readline()).decode()
                    if not line:
                        log.seek(0)
                        raise OutsideError(f"the broker did not start:\n{last_lines(log.read())}")
                    # It says: Connect any Kafka client to 127.0.0.1:9092,127.0.0.1:9093; data is in …
                    addresses = addresses or line.partition("client to ")[2].partition(";")[0]
                    # And then: Metrics for Prometheus are at http://127.0.0.1:9404/metrics http://…
                    metrics = line.partition("Prometheus are at ")[2].rstrip(".\n")
            yield addresses.split(","), metrics.split(), Path(log.name)
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
        log.seek(0)
        errors = [line for line in log.read().decode().splitlines() if json.loads(line)["level"] == "error"]
        assert not errors, errors
        assert process.returncode == 0
