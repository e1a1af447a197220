"""Brokers that are told to stop, and brokers that are killed, while clients send."""

import asyncio
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker.harness import FETCH_VERSION, Client, batch, fetch_request
from tests.system.clients import create_topic
from tests.system.load import Mute, request_bytes
from tests.system.loads import (
    PARTITIONS,
    LibrdkafkaLoad,
    Load,
    RawLoad,
    check_nothing_is_lost,
    wait_for_acknowledgements,
)
from tests.system.processes import BrokerProcess, Patience, run_to_its_end
from tests.system.producing import now_ms

OURS = "ours"
THEIRS = "theirs"
# Of fetches, the replies to which no network keeps for a client that does not read them.
ENOUGH_REQUESTS_BYTES = 10_000


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
        counts = [load.count for load in loads]
        print(f"\nacknowledged {counts}; stopped in {seconds:.2f} s, started in {again.seconds_to_start:.2f} s: {told}")
        assert (told["was_clean"], told["scanned_bytes"], told["cut_bytes"]) == (True, 0, 0)
        for load in loads:
            check_nothing_is_lost(again.own_address, load)
        assert again.stop() == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kill_under_load_loses_nothing_acknowledged(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    with BrokerProcess(tmp_path / "data") as broker, sending(broker) as loads:
        wait_for_acknowledgements(loads, rng.randint(1, 3000))
        broker.kill()
    with BrokerProcess(tmp_path / "data") as again:
        print(f"\nseed {seed}: acknowledged {[load.count for load in loads]}, {again.started}")
        assert not again.started["was_clean"]
        assert again.started["scanned_bytes"] > 0
        for load in loads:
            check_nothing_is_lost(again.own_address, load, f"seed {seed}")
        assert again.stop() == 0
    # What was recovered is as good as what was never in doubt.
    with BrokerProcess(tmp_path / "data") as once_more:
        assert (once_more.started["was_clean"], once_more.started["scanned_bytes"]) == (True, 0)
        for load in loads:
            check_nothing_is_lost(once_more.own_address, load, f"seed {seed}")


def test_ctrl_c_stops_in_order(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.send_signal(signal.SIGINT)
        assert broker.wait() == 0
        messages = [line["message"] for line in broker.lines()]
        assert messages == ["became controller", "started", "stopping", "stopped"]
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
    loads: list[Load] = [RawLoad(broker.own_address, OURS), LibrdkafkaLoad(broker.own_address, THEIRS)]
    try:
        yield loads
    finally:
        broker.kill()
        for load in loads:
            load.give_up()
