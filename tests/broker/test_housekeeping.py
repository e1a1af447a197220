"""The sweep over all partitions, by a clock that the test moves."""

import logging

import pytest

from penstock.protocol.error_codes import ErrorCode
from tests.broker.harness import BrokenFiles, FakeClock, Node, batch, in_loop, running, until

DAY_MS = 24 * 3_600_000
SMALL_SEGMENTS = {"internal.segment.bytes": "200", "retention.ms": "60000"}


async def fill(node: Node, topic: str, count: int = 5, configs: dict[str, str] | None = None) -> None:
    client = await node.connect()
    await client.create_topic(topic, configs={**SMALL_SEGMENTS, **(configs or {})})
    for _ in range(count):
        answer = await client.produce(topic, batch(bytes(60), timestamp=node.broker.now_ms()))
        assert answer.error_code == ErrorCode.NONE


@in_loop
async def test_segments_go_when_they_are_older_than_the_retention() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        await fill(node, "orders")
        log = node.partition("orders").log
        clock.advance(59_000)
        assert await node.broker.housekeeping.sweep() == 0
        clock.advance(2_000)
        assert await node.broker.housekeeping.sweep() == 5
        assert (log.start_offset, log.end_offset) == (5, 5)


@in_loop
async def test_segments_go_when_the_log_is_larger_than_the_retention() -> None:
    async with running(clock=FakeClock()) as node:
        await fill(node, "orders", configs={"retention.ms": "-1", "retention.bytes": "300"})
        assert await node.broker.housekeeping.sweep() == 2
        assert node.partition("orders").log.start_offset == 2


@in_loop
async def test_an_idle_segment_is_closed_when_it_is_old_enough() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        await fill(node, "orders", 1, {"retention.ms": "-1", "segment.ms": "1000"})
        log = node.partition("orders").log
        clock.advance(1_000)
        assert await node.broker.housekeeping.sweep() == 0
        assert len(log.segments) == 2


@in_loop
async def test_silent_producers_are_forgotten() -> None:
    clock = FakeClock()
    async with running({"producer.id.expiration.ms": "1000"}, clock=clock) as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a", producer=(7, 0, 0)))
        await node.broker.housekeeping.sweep()
        assert len(node.partition("orders").producers) == 1
        clock.advance(1_001)
        await node.broker.housekeeping.sweep()
        assert len(node.partition("orders").producers) == 0


@in_loop
async def test_a_clock_that_jumps_by_more_than_a_day_deletes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        await fill(node, "orders")
        await node.broker.housekeeping.sweep()
        clock.wall_ms += 400 * DAY_MS
        with caplog.at_level(logging.WARNING, "penstock"):
            assert await node.broker.housekeeping.sweep() == 0
        assert "the clock has jumped" in caplog.text
        assert node.partition("orders").log.start_offset == 0
        clock.wall_ms -= 400 * DAY_MS
        clock.advance(61_000)
        assert await node.broker.housekeeping.sweep() == 5


@in_loop
async def test_a_partition_whose_retention_fails_does_not_keep_the_others_from_theirs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, files = FakeClock(), BrokenFiles()
    async with running(clock=clock, files=files) as node:
        await fill(node, "first")
        await fill(node, "second")
        clock.advance(61_000)
        files.broken = "/first-0/log-start"
        assert await node.broker.housekeeping.sweep() == 5
        assert "retention failed" in caplog.text
        files.broken = ""
        assert await node.broker.housekeeping.sweep() == 5
        assert node.partition("first").log.start_offset == node.partition("second").log.start_offset == 5


@in_loop
async def test_the_sweep_comes_by_itself_from_time_to_time() -> None:
    clock = FakeClock()
    async with running({"log.retention.check.interval.ms": "5"}, clock=clock) as node:
        await fill(node, "orders")
        clock.advance(61_000)
        await until(lambda: node.partition("orders").log.start_offset == 5)
        assert await (await node.connect()).values("orders", 5) == []
