"""The sweep over all partitions, by a clock that the test moves."""

import logging

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.harness import BrokenFiles, FakeClock, Node, batch, in_loop, running, until
from tests.broker.members import commit, with_groups

DAY_MS = 24 * 3_600_000
SMALL_SEGMENTS = {"internal.segment.bytes": "200", "retention.ms": "60000"}
HELD = {"penstock.retention.hold.group": "archive"}


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


@in_loop
async def test_retention_by_time_waits_for_the_group_that_the_topic_names() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        await fill(node, "orders", configs=HELD)
        client = await with_groups(node, "archive")
        log = node.partition("orders").log
        clock.advance(61_000)
        assert await node.broker.housekeeping.sweep() == 0
        assert await commit(client, "archive", {("orders", 0): 3}) == {ErrorCode.NONE}
        assert await node.broker.housekeeping.sweep() == 3
        assert log.start_offset == 3
        assert await commit(client, "archive", {("orders", 0): 5}) == {ErrorCode.NONE}
        assert await node.broker.housekeeping.sweep() == 2
        assert log.start_offset == 5


@in_loop
async def test_retention_by_size_waits_for_the_group_that_the_topic_names() -> None:
    async with running(clock=FakeClock()) as node:
        await fill(node, "orders", configs={**HELD, "retention.ms": "-1", "retention.bytes": "300"})
        client = await with_groups(node, "archive")
        assert await node.broker.housekeeping.sweep() == 0
        await commit(client, "archive", {("orders", 0): 1})
        assert await node.broker.housekeeping.sweep() == 1
        await commit(client, "archive", {("orders", 0): 5})
        assert await node.broker.housekeeping.sweep() == 1


@in_loop
async def test_retention_deletes_nothing_while_it_does_not_know_how_far_the_group_is() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        await fill(node, "orders", configs=HELD)
        clock.advance(61_000)
        # There are no groups at all yet.
        assert node.broker.groups.leader_of("archive") is None
        assert await node.broker.housekeeping.sweep() == 0
        await commit(await with_groups(node, "archive"), "archive", {("orders", 0): 5})
        # The coordinator is another broker's, or still loads.
        shards, node.broker.groups._shards = node.broker.groups._shards, {}
        assert await node.broker.housekeeping.sweep() == 0
        node.broker.groups._shards = shards
        assert await node.broker.housekeeping.sweep() == 5


@in_loop
async def test_a_commit_for_a_deleted_topic_of_the_same_name_lets_nothing_go() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        await fill(node, "orders", configs=HELD)
        client = await with_groups(node, "archive")
        await commit(client, "archive", {("orders", 0): 5})
        shards, node.broker.groups._shards = node.broker.groups._shards, {}
        await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=1000), 6)
        await fill(node, "orders", configs=HELD)
        # As if the coordinator had not been told of it yet.
        node.broker.groups._shards = shards
        clock.advance(61_000)
        assert node.broker.groups.committed_offset("archive", "orders", 0) is not None
        assert await node.broker.housekeeping.sweep() == 0


@in_loop
async def test_somebody_who_deletes_records_need_not_wait_for_the_group() -> None:
    async with running(clock=FakeClock()) as node:
        await fill(node, "orders", configs=HELD)
        client = await node.connect()
        partition = DeleteRecordsPartition(partition_index=0, offset=4)
        topic = DeleteRecordsTopic(name="orders", partitions=[partition])
        await client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
        assert node.partition("orders").log.start_offset == 4
