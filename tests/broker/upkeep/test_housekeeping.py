"""The sweep over all partitions, by a clock that the test moves, and the guard against one that jumps."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.broker.upkeep.housekeeping import ClockGuard
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from penstock.storage.log.retention import DAY_MS
from tests.broker.copies import TOPIC, Copies, copying
from tests.broker.harness import BrokenFiles, FakeClock, Node, batch, in_loop, running, until
from tests.broker.members import commit, with_groups

NOW = 100 * DAY_MS
SMALL_SEGMENTS = {"internal.segment.bytes": "200", "retention.ms": "60000"}
HELD = {"penstock.retention.hold.group": "archive"}


async def fill(node: Node, topic: str, count: int = 5, configs: dict[str, str] | None = None) -> None:
    client = await node.connect()
    await client.create_topic(topic, configs={**SMALL_SEGMENTS, **(configs or {})})
    for _ in range(count):
        answer = await client.produce(topic, batch(bytes(60), timestamp=node.broker.services.now_ms()))
        assert answer.error_code == ErrorCode.NONE


@in_loop
async def test_segments_go_when_they_are_older_than_the_retention() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        await fill(node, "orders")
        log = node.partition("orders").log
        clock.advance(59_000)
        assert await node.broker.upkeep.housekeeping.sweep() == 0
        clock.advance(2_000)
        assert await node.broker.upkeep.housekeeping.sweep() == 5
        assert (log.start_offset, log.end_offset) == (5, 5)


@in_loop
async def test_segments_go_when_the_log_is_larger_than_the_retention() -> None:
    async with running(clock=FakeClock()) as node:
        await fill(node, "orders", configs={"retention.ms": "-1", "retention.bytes": "300"})
        assert await node.broker.upkeep.housekeeping.sweep() == 2
        assert node.partition("orders").log.start_offset == 2


@in_loop
async def test_an_idle_segment_is_closed_when_it_is_old_enough() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        await fill(node, "orders", 1, {"retention.ms": "-1", "segment.ms": "1000"})
        log = node.partition("orders").log
        clock.advance(1_000)
        assert await node.broker.upkeep.housekeeping.sweep() == 0
        assert len(log.segments) == 2


@in_loop
async def test_silent_producers_are_forgotten() -> None:
    clock = FakeClock()
    async with running({"producer.id.expiration.ms": "1000"}, clock=clock) as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a", producer=(7, 0, 0)))
        await node.broker.upkeep.housekeeping.sweep()
        assert len(node.partition("orders").producers) == 1
        clock.advance(1_001)
        await node.broker.upkeep.housekeeping.sweep()
        assert len(node.partition("orders").producers) == 0


@in_loop
async def test_a_clock_that_jumps_by_more_than_a_day_deletes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        await fill(node, "orders")
        await node.broker.upkeep.housekeeping.sweep()
        clock.wall_ms += 400 * DAY_MS
        with caplog.at_level(logging.WARNING, "penstock"):
            assert await node.broker.upkeep.housekeeping.sweep() == 0
        assert "the clock has jumped" in caplog.text
        assert node.partition("orders").log.start_offset == 0
        clock.wall_ms -= 400 * DAY_MS
        clock.advance(61_000)
        assert await node.broker.upkeep.housekeeping.sweep() == 5


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
        assert await node.broker.upkeep.housekeeping.sweep() == 5
        assert "retention failed" in caplog.text
        files.broken = ""
        assert await node.broker.upkeep.housekeeping.sweep() == 5
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
        assert await node.broker.upkeep.housekeeping.sweep() == 0
        assert await commit(client, "archive", {("orders", 0): 3}) == {ErrorCode.NONE}
        assert await node.broker.upkeep.housekeeping.sweep() == 3
        assert log.start_offset == 3
        assert await commit(client, "archive", {("orders", 0): 5}) == {ErrorCode.NONE}
        assert await node.broker.upkeep.housekeeping.sweep() == 2
        assert log.start_offset == 5


@in_loop
async def test_retention_by_size_waits_for_the_group_that_the_topic_names() -> None:
    async with running(clock=FakeClock()) as node:
        await fill(node, "orders", configs={**HELD, "retention.ms": "-1", "retention.bytes": "300"})
        client = await with_groups(node, "archive")
        assert await node.broker.upkeep.housekeeping.sweep() == 0
        await commit(client, "archive", {("orders", 0): 1})
        assert await node.broker.upkeep.housekeeping.sweep() == 1
        await commit(client, "archive", {("orders", 0): 5})
        assert await node.broker.upkeep.housekeeping.sweep() == 1


@in_loop
async def test_retention_deletes_nothing_while_it_does_not_know_how_far_the_group_is() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        await fill(node, "orders", configs=HELD)
        clock.advance(61_000)
        # There are no groups at all yet.
        assert node.broker.services.groups.leader_of("archive") is None
        assert await node.broker.upkeep.housekeeping.sweep() == 0
        await commit(await with_groups(node, "archive"), "archive", {("orders", 0): 5})
        # The coordinator is another broker's, or still loads.
        shards, node.broker.services.groups._shards = node.broker.services.groups._shards, {}
        assert await node.broker.upkeep.housekeeping.sweep() == 0
        node.broker.services.groups._shards = shards
        assert await node.broker.upkeep.housekeeping.sweep() == 5


@in_loop
async def test_a_commit_for_a_deleted_topic_of_the_same_name_lets_nothing_go() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        await fill(node, "orders", configs=HELD)
        client = await with_groups(node, "archive")
        await commit(client, "archive", {("orders", 0): 5})
        shards, node.broker.services.groups._shards = node.broker.services.groups._shards, {}
        await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=1000), 6)
        await fill(node, "orders", configs=HELD)
        # As if the coordinator had not been told of it yet.
        node.broker.services.groups._shards = shards
        clock.advance(61_000)
        assert node.broker.services.groups.committed_offset("archive", "orders", 0) is not None
        assert await node.broker.upkeep.housekeeping.sweep() == 0


@in_loop
async def test_somebody_who_deletes_records_need_not_wait_for_the_group() -> None:
    async with running(clock=FakeClock()) as node:
        await fill(node, "orders", configs=HELD)
        client = await node.connect()
        partition = DeleteRecordsPartition(partition_index=0, offset=4)
        topic = DeleteRecordsTopic(name="orders", partitions=[partition])
        await client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
        assert node.partition("orders").log.start_offset == 4


# With replicas


@asynccontextmanager
async def copied(count: int = 5, *, session_seconds: float = 6.0, **configs: str) -> AsyncIterator[tuple[Copies, Any]]:
    """Records in segments of their own, which three replicas have, and the clock of all brokers."""
    clock = FakeClock()
    brokers = {"offsets.topic.num.partitions": "9"}
    async with copying(configs=brokers, clock=clock, session_seconds=session_seconds) as copies:
        await copies.create(configs=SMALL_SEGMENTS | {key.replace("_", "."): value for key, value in configs.items()})
        client = await copies.client()
        for number in range(count):
            data = batch(bytes(60), timestamp=clock.now_ms(), producer=(5, 0, number))
            assert (await client.produce(TOPIC, data)).error_code == ErrorCode.NONE
        await until(lambda: {replica.high_watermark for replica in copies.replicas()} == {count})
        yield copies, clock


async def sweep(copies: Copies, *numbers: int) -> int:
    return sum([await copies.nodes[number].broker.upkeep.housekeeping.sweep() for number in numbers])


def starts(copies: Copies) -> set[int]:
    return {replica.log.start_offset for replica in copies.replicas()}


@in_loop
async def test_what_the_leader_deletes_by_time_its_followers_delete_and_they_delete_nothing_else() -> None:
    async with copied() as (copies, clock):
        clock.advance(61_000)
        assert await sweep(copies, *copies.followers()) == 0
        assert starts(copies) == {0}
        assert await sweep(copies, copies.leader()) == 5
        await until(lambda: starts(copies) == {5})
        assert {replica.log.size for replica in copies.replicas()} == {0}


@in_loop
async def test_what_the_leader_deletes_by_size_its_followers_delete() -> None:
    async with copied(retention_ms="-1", retention_bytes="300") as (copies, _):
        assert await sweep(copies, *copies.followers()) == 0
        assert await sweep(copies, copies.leader()) == 2
        await until(lambda: starts(copies) == {2})
        assert {replica.log.segments[0].base_offset for replica in copies.replicas()} == {2}
        assert len({replica.log.size for replica in copies.replicas()}) == 1


@in_loop
async def test_no_replica_deletes_what_a_group_needs_that_another_broker_coordinates() -> None:
    async with copied(penstock_retention_hold_group="archive") as (copies, clock):
        client = await with_groups(copies.nodes[0], "archive")
        groups = copies.nodes[0].broker.services.groups
        coordinator = groups.leader_of("archive")
        assert coordinator is not None
        # The partition's leader is to be another broker than the group's.
        if coordinator == copies.leader():
            await copies.nodes[coordinator].kill()
            await copies.elect_another()
            await copies.start(coordinator)
            await copies.until_equal()
            coordinator = copies.nodes[copies.leader()].broker.services.groups.leader_of("archive")
        assert coordinator not in (copies.leader(), None)
        clock.advance(61_000)
        assert await sweep(copies, 0, 1, 2) == 0
        client = await with_groups(copies.nodes[coordinator], "archive")
        assert await commit(client, "archive", {(TOPIC, 0): 3}) == {ErrorCode.NONE}
        assert await sweep(copies, *copies.followers()) == 0
        assert await sweep(copies, copies.leader()) == 3
        await until(lambda: starts(copies) == {3})
        assert await sweep(copies, 0, 1, 2) == 0


@in_loop
async def test_a_new_leader_goes_on_with_retention() -> None:
    async with copied(session_seconds=0.5) as (copies, clock):
        await copies.nodes[copies.leader()].kill()
        await copies.elect_another()
        clock.advance(61_000)
        assert await sweep(copies, copies.leader()) == 5
        await until(lambda: starts(copies) == {5})


@in_loop
async def test_followers_close_idle_segments_and_forget_silent_producers_as_their_leader_does() -> None:
    async with copied(retention_ms="-1", segment_ms="1000") as (copies, clock):
        assert [len(replica.producers) for replica in copies.replicas()] == [1, 1, 1]
        assert [replica.log.segments[-1].size > 0 for replica in copies.replicas()] == [True] * 3
        clock.advance(1_000)
        await sweep(copies, 0, 1, 2)
        assert [replica.log.segments[-1].size for replica in copies.replicas()] == [0, 0, 0]
        clock.advance(DAY_MS // 2)
        await sweep(copies, 0, 1, 2)
        clock.advance(DAY_MS // 2)
        await sweep(copies, 0, 1, 2)
        assert [len(replica.producers) for replica in copies.replicas()] == [0, 0, 0]


class TestClockGuard:
    def test_a_clock_that_runs_like_the_other_is_believed(self) -> None:
        guard = ClockGuard()
        assert all(guard.allows(NOW + hour * 3_600_000, hour * 3_600_000) for hour in range(0, 2000, 5))

    @pytest.mark.parametrize("jump", [DAY_MS + 1, 365 * DAY_MS, -DAY_MS - 1])
    def test_sweeps_wait_when_the_clock_jumps_by_more_than_a_day(self, jump: int) -> None:
        guard = ClockGuard()
        assert guard.allows(NOW, 0)
        assert not guard.allows(NOW + 60_000 + jump, 60_000)
        assert not guard.allows(NOW + 120_000 + jump, 120_000)

    @pytest.mark.parametrize("jump", [DAY_MS, 3_600_000, -DAY_MS])
    def test_a_smaller_jump_is_believed(self, jump: int) -> None:
        guard = ClockGuard()
        assert guard.allows(NOW, 0)
        assert guard.allows(NOW + 60_000 + jump, 60_000)

    def test_a_machine_that_was_asleep_has_not_jumped(self) -> None:
        guard = ClockGuard()
        assert guard.allows(NOW, 0)
        assert guard.allows(NOW + 30 * DAY_MS, 30 * DAY_MS)

    def test_sweeps_go_on_at_once_when_it_has_jumped_back(self) -> None:
        guard = ClockGuard()
        assert guard.allows(NOW, 0)
        assert not guard.allows(NOW + 400 * DAY_MS, 60_000)
        assert guard.allows(NOW + 120_000, 120_000)

    def test_a_new_time_that_stands_for_a_day_is_believed(self) -> None:
        guard = ClockGuard()
        jumped = NOW + 400 * DAY_MS
        assert guard.allows(NOW, 0)
        assert not guard.allows(jumped, 1000)
        assert not guard.allows(jumped + DAY_MS - 1, 1000 + DAY_MS - 1)
        assert guard.allows(jumped + DAY_MS, 1000 + DAY_MS)
        assert guard.allows(jumped + 2 * DAY_MS, 1000 + 2 * DAY_MS)

    def test_small_steps_may_add_up_over_the_years(self) -> None:
        guard = ClockGuard()
        assert all(guard.allows(NOW + n * 61_000, n * 60_000) for n in range(5000))
