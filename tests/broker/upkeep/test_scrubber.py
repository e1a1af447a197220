"""The scrubber beside a running broker: by itself, at its rate, and out of the way when the broker stops."""

import logging
import threading

import pytest

from penstock.broker.upkeep import scrubber as scrubbing_module
from penstock.protocol.error_codes import ErrorCode
from penstock.storage.files.memory import MemoryFiles
from tests.broker.harness import FakeClock, Node, batch, in_loop, running, until

ONE = len(batch(bytes(60)))
OFF = {"penstock.scrub.bytes.per.second": "0"}


async def fill(node: Node, topic: str, count: int = 5) -> None:
    """Closed segments of one batch each, and an active one."""
    client = await node.connect()
    await client.create_topic(topic, configs={"internal.segment.bytes": "200"})
    for _ in range(count):
        assert (await client.produce(topic, batch(bytes(60)))).error_code == ErrorCode.NONE


@in_loop
async def test_a_round_goes_over_the_closed_segments_of_all_partitions() -> None:
    async with running(OFF, clock=FakeClock()) as node:
        await fill(node, "orders")
        await fill(node, "payments", 3)
        scrubbing = node.broker.upkeep.scrubbing
        sizes = []
        while (size := await scrubbing.scrub()) is not None:
            sizes.append(size)
        assert sizes == [ONE] * 6
        assert (scrubbing.bytes_scrubbed, scrubbing.rounds, scrubbing.corrupt_batches) == (6 * ONE, 1, 0)


@in_loop
async def test_it_runs_by_itself_and_names_what_it_finds_in_every_round(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scrubbing_module, "SHORTEST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(scrubbing_module, "IDLE_SECONDS", 0.001)
    async with running({"penstock.scrub.bytes.per.second": "100000000"}, clock=FakeClock()) as node:
        await fill(node, "orders")
        node.memory.flip_bit(node.partition("orders").log.segments[1].path, ONE - 1, 0)
        with caplog.at_level(logging.ERROR, "penstock"):
            await until(lambda: node.broker.upkeep.scrubbing.corrupt_batches >= 2)
        facts = vars(caplog.records[0])
        assert (facts["partition"], facts["offset"], facts["position"]) == ("orders-0", 1, 0)
        assert facts["file"] == node.partition("orders").log.segments[1].path


@in_loop
async def test_it_is_switched_off_and_on_while_the_broker_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrubbing_module, "IDLE_SECONDS", 0.001)
    async with running(OFF, clock=FakeClock()) as node:
        await fill(node, "orders")
        assert node.broker.upkeep.scrubbing.bytes_scrubbed == 0
        node.broker._set_config(node.broker.config.with_dynamic(cluster={"penstock.scrub.bytes.per.second": "1000000"}))
        await until(lambda: node.broker.upkeep.scrubbing.rounds)


class SlowFiles(MemoryFiles):
    """On which a check of a segment takes as long as the test likes."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.checking = 0

    def drop_cached(self, fd: int, position: int, size: int) -> None:
        self.checking += 1
        self.gate.wait()

    def is_cached(self, fd: int, position: int, size: int) -> bool:
        return threading.current_thread() is threading.main_thread()


@in_loop
async def test_a_stop_waits_for_the_slice_under_way_and_leaves_nothing_open() -> None:
    files = SlowFiles()
    async with running(OFF, files=files, clock=FakeClock()) as node:
        await fill(node, "orders")
        node.broker._set_config(node.broker.config.with_dynamic(cluster={"penstock.scrub.bytes.per.second": "1000000"}))
        await node.broker.upkeep.scrubbing.close()
        node.broker.upkeep.scrubbing.start()
        await until(lambda: files.checking)
        node.broker.services.loop.call_later(0.01, files.gate.set)
        await node.stop()
        assert files.open_descriptors == 0
