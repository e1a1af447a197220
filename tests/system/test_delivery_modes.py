"""Each delivery mode of the producer, with its connection cut and its machine switched off at every step: what is lost
and what is there twice is what the mode's name allows."""

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.client.cluster import retries as retrying
from penstock.client.errors import ClientError
from penstock.client.message import RecordMetadata
from penstock.client.producer.producer import Producer
from tests.client.cutting import Cut, Cutter, cut_off
from tests.system.clients import create_topic
from tests.system.processes import BrokerProcess
from tests.system.producing import read_all
from tests.system.proxy import Faults, Proxy
from tests.waiting import in_loop

PARTITIONS = 2
MESSAGES = [b"%d" % number for number in range(24)]
# Each message is a batch, and a batch of each partition a request: a dozen requests, five of them in flight.
SETTINGS: dict[str, Any] = {"linger_ms": 0, "batch_size": 1, "max_request_size": 590}
STEPS = range(14)


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "BACKOFF_MS", 1)


async def send_all(
    cutter: Cutter, delivery: Any, *, is_switched_off: bool
) -> dict[bytes, RecordMetadata | ClientError]:
    """What the producer is told about each message; what it is not told before its machine is switched off is left
    out."""
    producer = Producer(cutter.address, delivery=delivery, **SETTINGS)
    futures = {value: producer.send("orders", value, partition=int(value) % PARTITIONS) for value in MESSAGES}
    if is_switched_off:
        while not cutter.has_cut and not all(future.done() for future in futures.values()):
            await asyncio.sleep(0)
        # Whatever is still on its way back arrives; then it is gone.
        await cutter.hang_up()
        await producer.close(timeout_ms=0)
        return {value: future.result() for value, future in futures.items() if future.exception() is None}
    told_all: dict[bytes, RecordMetadata | ClientError] = {}
    for value, future in futures.items():
        try:
            told_all[value] = await future
        except ClientError as error:
            told_all[value] = error
    await producer.close()
    return told_all


async def read(cutter: Cutter) -> list[list[bytes | None]]:
    client = await cutter.connect()
    return [await client.values("orders", partition=partition) for partition in range(PARTITIONS)]


def counts(logs: list[list[bytes | None]]) -> Counter[bytes | None]:
    return Counter(value for log in logs for value in log)


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("step", STEPS)
@in_loop
async def test_at_least_once_a_cut_connection_loses_nothing_and_repeats_nothing(step: int, cut: Cut) -> None:
    async with cut_off() as (_, cutter):
        await (await cutter.connect()).create_topic("orders", PARTITIONS)
        cutter.step, cutter.cut = step, cut
        told = await send_all(cutter, "at_least_once", is_switched_off=False)

        logs = await read(cutter)
        assert cutter.has_cut
        assert logs == [
            [value for value in MESSAGES if int(value) % PARTITIONS == index] for index in range(PARTITIONS)
        ]
        for value, where in told.items():
            assert isinstance(where, RecordMetadata)
            assert logs[where.partition][where.offset] == value


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("step", STEPS)
@in_loop
async def test_at_least_once_a_producer_that_is_switched_off_repeats_only_what_it_was_not_told(
    step: int, cut: Cut
) -> None:
    async with cut_off() as (_, cutter):
        await (await cutter.connect()).create_topic("orders", PARTITIONS)
        cutter.step, cutter.cut, cutter.for_good = step, cut, True
        told = await send_all(cutter, "at_least_once", is_switched_off=True)
        assert len(told) < len(MESSAGES)

        # The machine is back, with a new producer that sends what the old one did not know to be sent.
        cutter.switch_on()
        async with Producer(cutter.address, delivery="at_least_once", **SETTINGS) as producer:
            again = [value for value in MESSAGES if value not in told]
            results = [producer.send("orders", value, partition=int(value) % PARTITIONS) for value in again]
            await producer.flush()
            assert all(result.exception() is None for result in results)

        logs = await read(cutter)
        found = counts(logs)
        assert set(found) == set(MESSAGES), "nothing is lost"
        for value, where in told.items():
            assert isinstance(where, RecordMetadata)
            assert found[value] == 1
            assert logs[where.partition][where.offset] == value
        assert max(found.values()) <= 2


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_switched_off", [False, True], ids=["cut", "switched off"])
@in_loop
async def test_at_most_once_nothing_is_ever_there_twice(step: int, cut: Cut, is_switched_off: bool) -> None:
    async with cut_off() as (_, cutter):
        await (await cutter.connect()).create_topic("orders", PARTITIONS)
        cutter.step, cutter.cut, cutter.for_good = step, cut, is_switched_off
        await send_all(cutter, "at_most_once", is_switched_off=is_switched_off)

        logs = await read(cutter)
        assert all(count == 1 for count in counts(logs).values())
        for log in logs:
            assert log == sorted(log, key=lambda value: int(value or b"-1")), "what arrives is in order"


@in_loop
async def test_at_most_once_loses_what_a_cut_takes_with_it() -> None:
    async with cut_off() as (_, cutter):
        await (await cutter.connect()).create_topic("orders", PARTITIONS)
        cutter.step, cutter.cut = 3, Cut.LOST_REQUEST
        told = await send_all(cutter, "at_most_once", is_switched_off=False)

        assert cutter.requests[3] == "Produce"
        assert not any(isinstance(each, ClientError) for each in told.values()), "nobody is told"
        assert len(counts(await read(cutter))) < len(MESSAGES)


PROGRAM = """
import asyncio, sys
from penstock.client.producer.producer import Producer

async def main(address, first):
    async with Producer(address, delivery="at_least_once", linger_ms=0) as producer:
        number = first
        while True:
            futures = [producer.send("orders", b"%d" % (number + more), partition=0) for more in range(20)]
            for more, future in enumerate(futures):
                where = await future
                print(number + more, where.offset, flush=True)
            number += 20

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.parametrize("kill_after", [1, 25, 190])
def test_a_producer_that_is_killed_has_lost_nothing_that_it_was_told(kill_after: int, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        create_topic(broker.own_address, "orders", 1)
        told: dict[int, int] = {}
        first = 0
        for _ in range(3):
            address = f"127.0.0.1:{broker.port}"
            with subprocess.Popen(
                [sys.executable, "-c", PROGRAM, address, str(first)], stdout=subprocess.PIPE
            ) as killed:
                assert killed.stdout is not None
                for _ in range(kill_after):
                    number, offset = map(int, killed.stdout.readline().split())
                    told[number] = offset
                killed.kill()
                # What it had written before it died counts as well.
                for line in killed.stdout.read().splitlines(keepends=True):
                    if line.endswith(b"\n"):
                        number, offset = map(int, line.split())
                        told[number] = offset
            first = max(told) + 1
        [log] = asyncio.run(read_all(broker.own_address, "orders", 1))
        assert broker.stop() == 0
    found = Counter(log)
    assert all(log[offset] == b"%d" % number for number, offset in told.items())
    assert sorted(told) == list(range(max(told) + 1)), "nothing that came before is missing"
    # What was on its way when a producer was killed may be there again, sent by the next one.
    assert max(found.values()) <= 3


@pytest.mark.parametrize("seed", [1, 2])
def test_a_producer_survives_a_network_that_delays_loses_and_repeats(seed: int, tmp_path: Path) -> None:
    expected = [[b"%d of %d" % (number, partition) for number in range(1_500)] for partition in range(4)]
    with Proxy(seed=seed) as proxy:
        advertised = f"advertised.listeners=PLAINTEXT://127.0.0.1:{proxy.port}"
        with BrokerProcess(tmp_path / "data", "-X", advertised) as broker:
            proxy.connect_to(broker.port)
            create_topic(broker.own_address, "orders", 4)

            async def send() -> list[list[RecordMetadata]]:
                async with Producer(
                    f"127.0.0.1:{proxy.port}", linger_ms=1, batch_size=1, max_request_size=800
                ) as producer:
                    await producer.partitions_for("orders")
                    proxy.faults = Faults(cut=0.04, delay_ms=4, late_ms=15)
                    futures = [
                        [producer.send("orders", value, partition=partition) for value in values]
                        for partition, values in enumerate(expected)
                    ]
                    return [[await future for future in each] for each in futures]

            told = asyncio.run(send())
            found = asyncio.run(read_all(broker.own_address, "orders", 4))
            print(f"\nseed {seed}: {proxy.requests['Produce']} requests, cuts {dict(proxy.cuts)}")
            assert broker.stop() == 0
    assert found == expected, f"seed {seed}"
    assert [[where.offset for where in each] for each in told] == [list(range(1_500))] * 4, f"seed {seed}"
    assert proxy.most_in_flight == 5
    assert proxy.cuts.total() >= 10
