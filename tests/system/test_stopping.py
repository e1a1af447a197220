"""Brokers that are told to stop, and brokers that are killed, while clients send."""

import asyncio
import itertools
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.broker.harness import FETCH_VERSION, Client, batch, fetch_request
from tests.system.clients import create_topic
from tests.system.load import Mute, request_bytes
from tests.system.processes import BrokerProcess, Patience, run_to_its_end
from tests.system.producing import IdempotentProducer, now_ms, read_all

OURS = "ours"
THEIRS = "theirs"
PARTITIONS = 2
# Of fetches, the replies to which no network keeps for a client that does not read them.
ENOUGH_REQUESTS_BYTES = 10_000
# Partition, offset and value of a message.
Place = tuple[int, int, bytes]


class Load(Protocol):
    """A client that sends `0`, `1`, `2` and so on to each partition until its broker is gone."""

    topic: str

    def acknowledged(self) -> list[Place]: ...

    def finish(self) -> None: ...


def test_sigterm_under_load_loses_nothing_acknowledged_and_needs_no_recovery_scan(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with sending(broker) as loads:
            wait_for_acknowledgements(loads, 2000)
            began = time.monotonic()
            assert broker.stop() == 0
            seconds = time.monotonic() - began
        assert broker.problems() == []
        assert [line["message"] for line in broker.lines()[-1:]] == ["stopped"]
    with BrokerProcess(tmp_path / "data") as again:
        told = again.started
        counts = [len(load.acknowledged()) for load in loads]
        print(f"\nacknowledged {counts}; stopped in {seconds:.2f} s, started in {again.seconds_to_start:.2f} s: {told}")
        assert (told["was_clean"], told["scanned_bytes"], told["cut_bytes"]) == (True, 0, 0)
        check_nothing_is_lost(again, loads)
        assert again.stop() == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kill_under_load_loses_nothing_acknowledged(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    with BrokerProcess(tmp_path / "data") as broker, sending(broker) as loads:
        wait_for_acknowledgements(loads, rng.randint(1, 3000))
        broker.kill()
    with BrokerProcess(tmp_path / "data") as again:
        print(f"\nseed {seed}: acknowledged {[len(load.acknowledged()) for load in loads]}, {again.started}")
        assert not again.started["was_clean"]
        assert again.started["scanned_bytes"] > 0
        check_nothing_is_lost(again, loads, f"seed {seed}")
        assert again.stop() == 0
    # What was recovered is as good as what was never in doubt.
    with BrokerProcess(tmp_path / "data") as once_more:
        assert (once_more.started["was_clean"], once_more.started["scanned_bytes"]) == (True, 0)
        check_nothing_is_lost(once_more, loads, f"seed {seed}")


def test_ctrl_c_stops_in_order(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.send_signal(signal.SIGINT)
        assert broker.wait() == 0
        assert [line["message"] for line in broker.lines()] == ["started", "stopping", "stopped"]
    with BrokerProcess(tmp_path / "data") as again:
        assert again.started["was_clean"]


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_the_process_at_once(second: signal.Signals, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        create_topic(broker.own_address, OURS, PARTITIONS)

        async def stop_while_a_client_does_not_read() -> int:
            # The broker waits for a while for a client that has not got all its replies yet.
            client = await Client.open(broker.own_address)
            await client.produce(OURS, batch(bytes(1_000_000), timestamp=now_ms()))
            mute = Mute(broker.own_address, request_bytes(fetch_request(OURS), FETCH_VERSION))
            task = asyncio.create_task(mute.run())
            patience = Patience()
            while mute.sent_bytes < ENOUGH_REQUESTS_BYTES and patience.lasts("the broker to have much to answer"):
                await asyncio.sleep(0.001)
            broker.send_signal(signal.SIGTERM)
            while not broker.lines("stopping") and patience.lasts("the broker to begin to stop"):
                await asyncio.sleep(0.001)
            broker.send_signal(second)
            code = await asyncio.to_thread(broker.wait)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            client.close()
            return code

        assert asyncio.run(stop_while_a_client_does_not_read()) == 128 + second
        assert broker.lines("stopped") == []
    with BrokerProcess(tmp_path / "data") as again:
        assert not again.started["was_clean"]


def test_two_processes_on_one_data_folder_are_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        second = run_to_its_end(tmp_path / "data")
        assert second.returncode == 1
        assert "in use by another process" in second.stderr
        assert "Traceback" not in second.stderr
        create_topic(broker.own_address, OURS)
        assert broker.stop() == 0
        assert broker.problems() == []


@contextmanager
def sending(broker: BrokerProcess) -> Iterator[list[Load]]:
    """Two clients that send as fast as they can; at the end of the block the broker is gone."""
    for topic in (OURS, THEIRS):
        create_topic(broker.own_address, topic, PARTITIONS)
    loads: list[Load] = [RawLoad(broker.own_address), LibrdkafkaLoad(broker.own_address)]
    try:
        yield loads
    finally:
        broker.kill()
        for load in loads:
            load.finish()


def wait_for_acknowledgements(loads: list[Load], count: int) -> None:
    patience = Patience()
    while min(len(load.acknowledged()) for load in loads) < count and patience.lasts("acknowledgements"):
        time.sleep(0.001)


def check_nothing_is_lost(broker: BrokerProcess, loads: list[Load], hint: str = "") -> None:
    for load in loads:
        found = asyncio.run(read_all(broker.own_address, load.topic, PARTITIONS))
        for partition, values in enumerate(found):
            in_order = [b"%d" % number for number in range(len(values))]
            assert values == in_order, f"{load.topic}-{partition} {hint}: duplicates, gaps, or out of order"
        acknowledged = load.acknowledged()
        assert acknowledged
        for partition, offset, value in acknowledged:
            assert found[partition][offset : offset + 1] == [value], f"{load.topic}-{partition}@{offset} {hint}"


class RawLoad:
    topic = OURS

    def __init__(self, address: tuple[str, int]) -> None:
        self._producer = IdempotentProducer(address, self.topic, stops_when_refused=True)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guard(self._run), name="raw-load", daemon=True)
        self._thread.start()

    def acknowledged(self) -> list[Place]:
        return [
            (sent.partition, sent.base_offset + i, value)
            for sent in self._producer.acknowledged[:]
            for i, value in enumerate(sent.values)
        ]

    def finish(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        batches = (
            (partition, tuple(b"%d" % (first + i) for i in range(3)))
            for first in itertools.count(0, 3)
            for partition in range(PARTITIONS)
        )
        asyncio.run(self._producer.send(batches))

    def _guard(self, run: Callable[[], None]) -> Callable[[], None]:
        def guarded() -> None:
            try:
                run()
            except BaseException as failure:
                self._failure = failure

        return guarded


class LibrdkafkaLoad:
    topic = THEIRS

    def __init__(self, address: tuple[str, int]) -> None:
        self._acknowledged: list[Place] = []
        self._is_over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": "{}:{}".format(*address),
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 20,
                "queue.buffering.max.messages": 5000,
                # That its broker goes away is what this is about.
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name="librdkafka-load", daemon=True)
        self._thread.start()

    def acknowledged(self) -> list[Place]:
        return self._acknowledged[:]

    def finish(self) -> None:
        self._is_over.set()
        self._thread.join(10)
        assert not self._thread.is_alive()
        self._producer.purge()
        self._producer.flush(10)

    def _run(self) -> None:
        for number in itertools.count():
            for partition in range(PARTITIONS):
                while not self._is_over.is_set():
                    try:
                        self._producer.produce(
                            self.topic, b"%d" % number, partition=partition, on_delivery=self._delivered
                        )
                        break
                    except (BufferError, KafkaException):
                        self._producer.poll(0.01)
            self._producer.poll(0)
            if self._is_over.is_set():
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._acknowledged.append((message.partition() or 0, message.offset() or 0, message.value() or b""))
