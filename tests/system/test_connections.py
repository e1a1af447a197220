"""A thousand connections, some of which misbehave, and one that has nothing to do."""

import asyncio
import contextlib
import resource
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from penstock.protocol.schemas.metadata import MetadataRequest
from tests.broker.harness import FETCH_VERSION, PRODUCE_VERSION, Client, batch, fetch_request, produce_request
from tests.system.clients import create_topic
from tests.system.load import Mute, Worker, request_bytes
from tests.system.processes import BrokerProcess, Patience
from tests.system.producing import now_ms
from tests.system.proxy import Proxy

MIB = 1024 * 1024
CONNECTIONS = 1000
MUTE = 100
MAX_MEMORY_BYTES = 256 * MIB
MAX_CPU_RATIO = 1.2
REQUESTS_EACH = 6
ROUNDS = 2
ATTEMPTS = 3
"""A machine that is busy with other things needs more of them to tell noise from cost."""

WIDE_PARTITIONS = 1000
LARGE_PARTITION_BYTES = 16 * MIB
MAX_IDLE_REQUESTS_A_SECOND = 3


@pytest.fixture(autouse=True)
def _many_files() -> Iterator[None]:
    """This process needs as many descriptors as the broker."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_thousand_connections_of_which_a_hundred_never_read(tmp_path: Path) -> None:
    # A shell gives its programs a thousand descriptors or so: the broker has to ask for more.
    with BrokerProcess(tmp_path / "data", open_files=512) as broker:
        create_topic(broker.own_address, "work", 8)
        create_topic(broker.own_address, "wide", WIDE_PARTITIONS)
        create_topic(broker.own_address, "large")
        without, with_mute = asyncio.run(measure(broker))
        peak = broker.memory_bytes("VmHWM")
        ratio = statistics.median(with_mute) / statistics.median(without)
        print(
            f"\nCPU of a request: {statistics.median(without) * 1e6:.1f} µs alone, "
            f"{statistics.median(with_mute) * 1e6:.1f} µs beside {MUTE} connections that never read ({ratio:.2f} ×, "
            f"{len(without)} rounds each); memory at most {peak / MIB:.0f} MiB"
        )
        assert peak <= MAX_MEMORY_BYTES
        assert ratio <= MAX_CPU_RATIO
        assert broker.stop() == 0
        assert broker.problems() == []


async def measure(broker: BrokerProcess) -> tuple[list[float], list[float]]:
    """Broker CPU of a request, without and with the mute connections, before and after them."""
    await fill(broker, "large")
    without: list[float] = []
    with_mute: list[float] = []
    async with working_connections(broker) as workers:
        # The first one is not counted: everything is done for the first time in it.
        await cpu_of_a_request(broker, workers)
        for _ in range(ATTEMPTS):
            without += [await cpu_of_a_request(broker, workers) for _ in range(ROUNDS)]
            async with mute_connections(broker):
                with_mute += [await cpu_of_a_request(broker, workers) for _ in range(2 * ROUNDS)]
            without += [await cpu_of_a_request(broker, workers) for _ in range(ROUNDS)]
            if statistics.median(with_mute) <= MAX_CPU_RATIO * statistics.median(without):
                break
    return without, with_mute


@asynccontextmanager
async def working_connections(broker: BrokerProcess) -> AsyncIterator[list[Worker]]:
    workers: list[Worker] = []
    try:
        for _ in range(CONNECTIONS - MUTE):
            workers.append(await Worker.open(broker.own_address))
        yield workers
    finally:
        for worker in workers:
            worker.close()
        # They are closed in the next turn of the loop.
        await asyncio.sleep(0)


async def fill(broker: BrokerProcess, topic: str) -> None:
    client = await Client.open(broker.own_address)
    records = batch(bytes(512 * 1024), timestamp=now_ms())
    for _ in range(LARGE_PARTITION_BYTES // len(records) + 1):
        assert (await client.produce(topic, records)).error_code == 0
    client.close()


async def cpu_of_a_request(broker: BrokerProcess, workers: list[Worker]) -> float:
    records = batch(bytes(1000), timestamp=now_ms())
    before = broker.cpu_seconds()
    async with asyncio.TaskGroup() as group:
        for number, worker in enumerate(workers):
            produce = request_bytes(produce_request("work", records, partition=number % 8, acks=1), PRODUCE_VERSION)
            fetch = request_bytes(fetch_request("work", partition=number % 8, partition_max_bytes=4096), FETCH_VERSION)
            group.create_task(worker.ask([produce, fetch] * (REQUESTS_EACH // 2)))
    return (broker.cpu_seconds() - before) / (len(workers) * REQUESTS_EACH)


@asynccontextmanager
async def mute_connections(broker: BrokerProcess) -> AsyncIterator[None]:
    """A hundred of them, each with all the requests on their way that the broker and the network take."""
    fetch = request_bytes(fetch_request("large", partition_max_bytes=1 << 30), FETCH_VERSION)
    everything = request_bytes(MetadataRequest(topics=None), 12)
    # The replies to the first are sent from files, those to the second are made in memory.
    mute = [Mute(broker.own_address, everything if number % 2 == 0 else fetch) for number in range(MUTE)]
    tasks = [asyncio.create_task(each.run()) for each in mute]
    try:
        await until_stuck(broker, mute)
        yield
        assert not any(task.done() for task in tasks), "the broker gave up too early"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until_stuck(broker: BrokerProcess, mute: list[Mute]) -> None:
    """Nothing more goes out, and the broker has done with what it got."""
    patience, unchanged, before = Patience(), 0, (0, 0.0)
    while unchanged < 10 and patience.lasts("connections to get stuck"):
        await asyncio.sleep(0.02)
        now = sum(each.sent_bytes for each in mute), broker.cpu_seconds()
        is_same = now[0] == before[0] and now[1] - before[1] < 0.002 and all(each.sent_bytes for each in mute)
        unchanged = unchanged + 1 if is_same else 0
        before = now


def test_an_idle_long_polling_consumer_costs_at_most_three_requests_a_second(tmp_path: Path) -> None:
    with (
        Proxy() as proxy,
        BrokerProcess(tmp_path / "data", "-X", f"advertised.listeners=PLAINTEXT://127.0.0.1:{proxy.port}") as broker,
    ):
        proxy.connect_to(broker.port)
        create_topic(broker.own_address, "quiet")
        consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{proxy.port}", "group.id": "idle"})
        consumer.assign([TopicPartition("quiet", 0, OFFSET_END)])
        with contextlib.closing(consumer):
            patience = Patience()
            while proxy.requests["Fetch"] < 2 and patience.lasts("the first fetches"):
                assert consumer.poll(0.05) is None
            before, began = proxy.requests.copy(), time.monotonic()
            while proxy.requests["Fetch"] - before["Fetch"] < 8 and patience.lasts("fetches"):
                assert consumer.poll(0.05) is None
            seconds = time.monotonic() - began
            rates = {name: round(count / seconds, 2) for name, count in (proxy.requests - before).items()}
        print(f"\nrequests a second of an idle consumer: {rates}")
        # There are no groups yet, and librdkafka goes on asking for the coordinator of its own until it is told one.
        rates.pop("FindCoordinator", None)
        assert sum(rates.values()) <= MAX_IDLE_REQUESTS_A_SECOND
