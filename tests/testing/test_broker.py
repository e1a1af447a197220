"""The broker object with real clients, from start to end, and what is left then."""

import asyncio
import gc
import multiprocessing
import os
import select
import socket
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer

from penstock.broker.config.values import ConfigError
from penstock.testing import Broker
from tests.broker.harness import Client, batch, fetch_request, fetched, in_loop, turns
from tests.testing.clients import PATIENCE_SECONDS, consume, others, produce, producer, watermarks


def test_confluent_kafka_produces_and_consumes() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        assert produce(broker.bootstrap, "orders", b"a", b"b") == [0, 1]
        assert consume(broker.bootstrap, "orders", 2) == [b"a", b"b"]


def test_kafka_python_produces_and_consumes() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        assert producer.send("orders", b"a").get(30).offset == 0
        producer.close()
        consumer = KafkaConsumer(
            "orders", bootstrap_servers=broker.bootstrap, group_id="g", auto_offset_reset="earliest"
        )
        assert next(consumer).value == b"a"
        consumer.close()


@in_loop
async def test_aiokafka_produces_and_consumes_in_a_loop_of_its_own() -> None:
    async with Broker() as broker:
        broker.create_topic("orders")
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            assert (await producer.send_and_wait("orders", b"a")).offset == 0
        async with AIOKafkaConsumer(
            "orders", bootstrap_servers=broker.bootstrap, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            assert (await consumer.getone()).value == b"a"


@in_loop
async def test_a_client_that_blocks_the_loop_of_the_test_gets_its_answers() -> None:
    async with Broker() as broker:
        broker.create_topic("orders")
        assert produce(broker.bootstrap, "orders", b"a") == [0]


@pytest.mark.parametrize("storage", ["folder", "memory"])
def test_large_fetches_come_whole_from_files_and_from_memory(storage: Literal["folder", "memory"]) -> None:
    values = [bytes([number]) * 300_000 for number in range(5)]
    with Broker(storage=storage) as broker:
        broker.create_topic("orders")
        produce(broker.bootstrap, "orders", *values)
        assert consume(broker.bootstrap, "orders", 5) == values


# Settings


def test_settings_are_dotted_names_in_a_dict_and_keywords_alike() -> None:
    with Broker({"num.partitions": 3}, auto_create_topics_enable=False, message_max_bytes=2000) as broker:
        config = broker._production().config
        assert config.integer("num.partitions") == 3
        assert config.boolean("auto.create.topics.enable") is False
        assert config.integer("message.max.bytes") == 2000


def test_configs_of_a_topic_are_dotted_names_in_a_dict_and_keywords_alike() -> None:
    with Broker() as broker:
        configs = {"cleanup.policy": ["compact", "delete"], "preallocate": False}
        assert broker.create_topic("orders", 3, configs, retention_ms=1000) == "orders"
        topic = broker._production().services.image.topics["orders"]
        assert len(topic.partitions) == 3
        assert topic.configs == {"cleanup.policy": "compact,delete", "preallocate": "false", "retention.ms": "1000"}


def test_a_wrong_setting_is_refused_with_what_was_probably_meant() -> None:
    with pytest.raises(ConfigError, match=r"did you mean num\.partitions"):
        Broker(num_partition=3).start()


def test_a_topic_that_is_there_already_is_refused() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        with pytest.raises(ValueError, match="already exists"):
            broker.create_topic("orders")


def test_a_broker_for_tests_is_open_to_this_machine_alone() -> None:
    with pytest.raises(ValueError, match="on this machine alone"):
        Broker(listeners="PLAINTEXT://0.0.0.0:0").start()


def test_an_unknown_storage_is_refused() -> None:
    with pytest.raises(ValueError, match='"folder" or "memory"'):
        Broker(storage="tape")  # type: ignore[arg-type]


# Stopping and starting


@pytest.mark.parametrize("storage", ["folder", "memory"])
def test_a_restart_keeps_data_port_and_committed_offsets(storage: Literal["folder", "memory"]) -> None:
    with Broker(storage=storage) as broker:
        broker.create_topic("orders")
        produce(broker.bootstrap, "orders", b"a", b"b")
        assert consume(broker.bootstrap, "orders", 1, "g") == [b"a"]
        before = broker.bootstrap
        broker.restart()
        assert broker.bootstrap == before
        assert broker._production().directory.was_clean
        assert consume(broker.bootstrap, "orders", 1, "g") == [b"b"]


@pytest.mark.parametrize("storage", ["folder", "memory"])
def test_acknowledged_records_survive_being_killed(storage: Literal["folder", "memory"]) -> None:
    with Broker(storage=storage) as broker:
        broker.create_topic("orders")
        produce(broker.bootstrap, "orders", b"a", b"b")
        broker.kill()
        assert not broker.is_running
        broker.start()
        assert not broker._production().directory.was_clean
        assert watermarks(broker.bootstrap, "orders") == (0, 2)
        assert produce(broker.bootstrap, "orders", b"c") == [2]
        assert consume(broker.bootstrap, "orders", 3) == [b"a", b"b", b"c"]


def test_nobody_else_gets_the_port_of_a_broker_that_is_down() -> None:
    with Broker() as broker:
        _, port = broker.address
        broker.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        if sys.platform == "linux":
            with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
                stranger.bind(("127.0.0.1", port))
        broker.start()
        assert broker.address == ("127.0.0.1", port)


def test_what_needs_a_running_broker_says_so() -> None:
    broker = Broker()
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.bootstrap
    with pytest.raises(RuntimeError, match="not running"):
        broker.clock.advance("1 s")
    with pytest.raises(RuntimeError, match="not running"):
        broker.faults.fail_disk()
    with broker:
        broker.stop()
        with pytest.raises(RuntimeError, match="start it again"):
            broker.create_topic("orders")


def test_starting_and_stopping_twice_does_nothing() -> None:
    with Broker() as broker:
        broker.start()
        broker.stop()
        broker.stop()
        broker.kill()
        assert not broker.is_running
    broker.close()


def test_reset_brings_a_broker_back_to_the_present_with_its_data() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        broker.clock.advance("1 h")
        broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", count=None)
        broker.kill()
        broker.reset()
        assert broker.clock.lead_ms == 0
        assert produce(broker.bootstrap, "orders", b"a") == [0]


def test_a_broker_that_was_closed_starts_anew_and_empty() -> None:
    broker = Broker()
    for _ in range(2):
        with broker:
            broker.create_topic("orders")
            assert produce(broker.bootstrap, "orders", b"a") == [0]


def test_brokers_beside_each_other_are_strangers() -> None:
    with Broker() as one, Broker(storage="memory") as two:
        assert one.bootstrap != two.bootstrap
        one.create_topic("orders")
        two.create_topic("orders")
        produce(one.bootstrap, "orders", b"one")
        assert (watermarks(one.bootstrap, "orders"), watermarks(two.bootstrap, "orders")) == ((0, 1), (0, 0))


# What is left


def _open_files() -> list[str]:
    """Files and sockets of this process by their names. Pipes are counted without their numbers: a thread that an
    earlier test has left may replace its own at any time, but one more pipe is one that was left."""
    gc.collect()
    folder = Path("/proc/self/fd")
    names = [str(os.readlink(path)) for path in folder.iterdir() if path.exists()] if folder.exists() else []
    return sorted("pipe" if name.startswith("pipe:") else name for name in names)


def _left(threads: list[threading.Thread], files: list[str]) -> tuple[set[threading.Thread], Counter[str]]:
    """What is there now and was not before. What earlier tests have left to the collector may go meanwhile."""
    return set(others()) - set(threads), Counter(_open_files()) - Counter(files)


@pytest.mark.parametrize("storage", ["folder", "memory"])
@pytest.mark.parametrize("end", ["close", "kill"])
def test_nothing_is_left_after_close(
    storage: Literal["folder", "memory"], end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    threads, files = others(), _open_files()
    with Broker(storage=storage) as broker:
        assert len(list(tmp_path.iterdir())) == (storage == "folder")
        broker.create_topic("orders", 3)
        produce(broker.bootstrap, "orders", b"a" * 100_000)
        consume(broker.bootstrap, "orders", 1)
        idle = socket.create_connection(broker.address)
        if end == "kill":
            broker.kill()
    idle.close()
    assert _left(threads, files) == (set(), Counter())
    assert not list(tmp_path.iterdir())
    assert not multiprocessing.active_children()


@in_loop
async def test_a_broker_that_is_killed_answers_nobody_and_lets_go_of_what_it_would_have_sent() -> None:
    files = _open_files()
    async with Broker() as broker:
        broker.create_topic("orders")
        client = await Client.open(broker.address)
        await client.produce("orders", batch(bytes(200_000)))
        fault = broker.faults.delay_replies("1 h", "Fetch")
        client.send(fetch_request("orders", 0), 12)
        while not fault.struck:
            await asyncio.sleep(0.001)
        broker.kill()
        assert await client.closed() == b""
        client.close()
        broker.faults.clear()
        broker.start()
        client = await Client.open(broker.address)
        assert fetched(await client.ask(fetch_request("orders", 0), 12)).high_watermark == 1
        client.close()
    await turns()
    assert not Counter(_open_files()) - Counter(files)


@in_loop
async def test_nothing_is_left_of_a_broker_in_a_test_with_a_loop() -> None:
    threads, files = others(), _open_files()
    async with Broker() as broker:
        broker.create_topic("orders")
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            await producer.send_and_wait("orders", b"a")
    await turns()
    assert _left(threads, files) == (set(), Counter())


def test_a_broker_that_cannot_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    threads, files = others(), _open_files()

    async def enter() -> None:
        async with Broker(num_partitions=0):
            pass

    for attempt in (Broker(num_partitions=0).start, lambda: asyncio.run(enter())):
        with pytest.raises(ConfigError):
            attempt()
    assert _left(threads, files) == (set(), Counter())
    assert not list(tmp_path.iterdir())


def test_an_error_in_the_block_is_the_one_that_is_raised() -> None:
    threads = others()

    def fail(**settings: Any) -> None:
        with Broker(**settings):
            raise LookupError("of the test")

    with pytest.raises(LookupError):
        fail()
    assert set(others()) <= set(threads)


@pytest.mark.parametrize("by_engine", [True, False], ids=["engine", "asyncio"])
def test_two_loaded_brokers_in_one_process_fail_no_send(by_engine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not by_engine:
        monkeypatch.delattr(select, "epoll")
    failures: list[str] = []
    count = 400

    def load(bootstrap: str, letter: bytes) -> None:
        # No retries: a request that the other broker's bytes have spoilt is to be seen.
        sender = producer(bootstrap, linger_ms=0, batch_num_messages=1, acks=1, retries=0)
        for _ in range(count):
            sender.produce(
                "orders", letter * 32_768, on_delivery=lambda error, _: failures.append(str(error)) if error else None
            )
            sender.poll(0)
        failures.extend(["a send has no end"] * sender.flush(PATIENCE_SECONDS))

    with Broker(storage="memory") as first, Broker(storage="memory") as second:
        brokers = {b"A": first, b"B": second}
        threads = []
        for letter, broker in brokers.items():
            broker.create_topic("orders")
            threads.append(threading.Thread(target=load, args=(broker.bootstrap, letter)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        for letter, broker in brokers.items():
            assert set(consume(broker.bootstrap, "orders", count)) == {letter * 32_768}
