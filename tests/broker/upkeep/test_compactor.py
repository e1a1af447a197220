"""Compaction beside a running broker: which log is next, what a round does, and what becomes of one that fails."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from penstock.broker.config.typed import BrokerConfig
from penstock.broker.helper.process import HelperProcess
from penstock.broker.helper.task import Task
from penstock.broker.partitions.partition import Partition
from penstock.broker.upkeep import compactor as compacting_module
from penstock.broker.upkeep.compactor import Compacting
from penstock.protocol.batch import split
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import NewRecord, Record, build, iterate
from penstock.protocol.schemas.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from penstock.protocol.schemas.topics import DeleteTopicsRequest
from penstock.storage.compaction.clean import CleanedSegment, CleaningDone, CleaningJob, clean
from penstock.storage.files import Files
from penstock.storage.files.memory import MemoryFiles
from tests.broker.copies import Copies, contents, copying
from tests.broker.harness import Client, FakeClock, Node, in_loop, records_of, running, until

COMPACTED = {"cleanup.policy": "compact", "internal.segment.bytes": "1000", "min.cleanable.dirty.ratio": "0.01"}
BY_HAND = {"log.cleaner.backoff.ms": "1000000"}


async def with_topic(node: Node, name: str = "orders", **configs: str) -> Client:
    client = await node.connect()
    await client.create_topic(
        name, configs=COMPACTED | {key.replace("_", "."): value for key, value in configs.items()}
    )
    return client


async def update(
    client: Client, name: str, values: dict[bytes, bytes | None] | list[tuple[bytes, bytes | None]], now_ms: int
) -> None:
    """A batch for each, so that there are many segments."""
    for key, value in dict(values).items() if isinstance(values, dict) else values:
        data = build([NewRecord(value, key=key, timestamp=now_ms)])
        answer = await client.produce(name, data)
        assert answer.error_code == ErrorCode.NONE, answer


async def many_updates(client: Client, name: str = "orders", rounds: int = 20, keys: int = 5, now_ms: int = 0) -> None:
    await update(client, name, [(b"k%d" % key, b"%d" % turn) for turn in range(rounds) for key in range(keys)], now_ms)


async def all_records(client: Client, name: str = "orders") -> list[Record]:
    found: list[Record] = []
    offset = 0
    while records := [record for record in records_of(await client.fetch(name, offset)) if record.offset >= offset]:
        found += [record for record in records if record.key is not None and record.key.startswith(b"k")]
        offset = records[-1].offset + 1
    return found


def latest(records: list[Record]) -> dict[bytes | None, bytes | None]:
    assert [record.offset for record in records] == sorted({record.offset for record in records})
    return {record.key: record.value for record in records}


async def settle(node: Node, name: str = "orders") -> None:
    """Until everything but the active segment may be compacted."""
    log = node.partition(name).log
    await until(lambda: log.recovery_point >= log.segments[-1].base_offset)


async def compact(node: Node) -> bool:
    """A round that the test asks for; false if nothing was due."""
    return await node.broker.upkeep.compacting.compact_next()


def leftovers(files: Files, folder: str) -> list[str]:
    return [name for name in files.list(folder) if ".cleaned" in name or ".swap" in name]


@in_loop
async def test_a_round_leaves_the_latest_value_of_each_key(caplog: pytest.LogCaptureFixture) -> None:
    async with running(BY_HAND) as node:
        client = await with_topic(node)
        await many_updates(client)
        await settle(node)
        log, before = node.partition("orders").log, node.partition("orders").log.size
        with caplog.at_level(logging.INFO, "penstock"):
            assert await compact(node)
        assert log.size < before / 2
        assert latest(await all_records(client)) == {b"k%d" % key: b"19" for key in range(5)}
        [line] = [vars(record) for record in caplog.records if record.message == "compacted"]
        assert line["partition"] == "orders-0"
        assert line["after_bytes"] < line["before_bytes"] / 2
        assert line["mb_per_cpu_second"] > 0
        compacting = node.broker.upkeep.compacting
        assert (compacting.rounds, compacting.failures) == (1, 0)
        assert compacting.records_dropped > 50
        assert compacting.bytes_read >= line["before_bytes"]
        assert compacting.bytes_written > 0
        assert compacting.seconds_since_last_round is not None
        assert not await compact(node)
        assert leftovers(node.files, log.directory) == []


@in_loop
async def test_in_a_folder_it_is_the_helper_process_that_does_it(tmp_path: Path) -> None:
    async with running(BY_HAND, folder=str(tmp_path)) as node:
        client = await with_topic(node)
        await many_updates(client)
        await settle(node)
        before = node.partition("orders").log.size
        helper = node.broker.upkeep.helper
        assert isinstance(helper, HelperProcess)
        assert helper.pid is None
        assert await compact(node)
        assert helper.pid is not None
        assert node.partition("orders").log.size < before / 2
        # What it has written is for the owner alone, like the rest.
        assert not [path for path in tmp_path.rglob("*") if path.stat().st_mode & 0o077]
        assert latest(await all_records(client)) == {b"k%d" % key: b"19" for key in range(5)}
        await node.restart()
        client = await node.connect()
        assert latest(await all_records(client)) == {b"k%d" % key: b"19" for key in range(5)}
        assert not await compact(node)


@in_loop
async def test_it_comes_by_itself() -> None:
    async with running({"log.cleaner.backoff.ms": "5"}) as node:
        client = await with_topic(node)
        await many_updates(client)
        await until(lambda: node.broker.upkeep.compacting.rounds)
        assert latest(await all_records(client)) == {b"k%d" % key: b"19" for key in range(5)}


@in_loop
async def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    boolean = BrokerConfig.boolean

    def look(self: BrokerConfig, name: str) -> bool:
        nonlocal looks
        looks += name == "log.cleaner.enable"
        return boolean(self, name)

    async with running({"log.cleaner.backoff.ms": "1", "log.cleaner.enable": "false"}) as node:
        client = await with_topic(node)
        await many_updates(client)
        await settle(node)
        monkeypatch.setattr(BrokerConfig, "boolean", look)
        await until(lambda: looks > 2)
        assert node.broker.upkeep.compacting.rounds == 0


@in_loop
async def test_the_dirtiest_log_comes_first_and_others_are_left_alone() -> None:
    async with running(BY_HAND) as node:
        client = await with_topic(node, "some")
        await with_topic(node, "more")
        await with_topic(node, "clean", min_cleanable_dirty_ratio="0.99")
        await with_topic(node, "plain", cleanup_policy="delete")
        for name in ("some", "more", "clean", "plain"):
            await many_updates(client, name, rounds=20)
            await settle(node, name)
        assert await compact(node)
        for name, rounds in (("some", 30), ("more", 60), ("clean", 20), ("plain", 30)):
            await many_updates(client, name, rounds=rounds)
            await settle(node, name)
        sizes = {name: node.partition(name).log.size for name in ("some", "more", "clean", "plain")}

        def smaller() -> set[str]:
            return {name for name, size in sizes.items() if node.partition(name).log.size < size}

        while await compact(node):
            pass
        assert smaller() >= {"some", "more"}
        assert "plain" not in smaller()
        assert 0 <= node.broker.upkeep.compacting.dirtiest_ratio <= 1


@in_loop
async def test_tombstones_go_when_they_have_been_clean_for_long_enough() -> None:
    clock = FakeClock()
    async with running(BY_HAND, clock=clock) as node:
        client = await with_topic(node, delete_retention_ms="60000")
        await many_updates(client, now_ms=clock.now_ms())
        await update(client, "orders", [(b"k1", None)], clock.now_ms())
        await update(client, "orders", [(b"k9", b"x" * 800), (b"k9", b"y" * 800)], clock.now_ms())
        await settle(node)
        assert await compact(node)
        assert latest(await all_records(client))[b"k1"] is None
        assert not await compact(node)
        clock.advance(61_000)
        assert await compact(node)
        assert b"k1" not in latest(await all_records(client))


@in_loop
async def test_an_idle_log_is_compacted_when_its_records_are_older_than_they_may_be() -> None:
    clock = FakeClock()
    async with running(BY_HAND, clock=clock) as node:
        client = await with_topic(node, max_compaction_lag_ms="60000", min_cleanable_dirty_ratio="1.0")
        await update(client, "orders", [(b"k1", b"1"), (b"k1", b"2"), (b"k2", b"1")], clock.now_ms())
        log = node.partition("orders").log
        assert not await compact(node)
        clock.advance(61_000)
        # The active segment is closed for it, and has to be flushed as a closed one first.
        while node.broker.upkeep.compacting.rounds == 0:
            await compact(node)
            await asyncio.sleep(0.01)
        assert [(record.key, record.value) for record in await all_records(client)] == [(b"k1", b"2"), (b"k2", b"1")]
        assert log.end_offset == 3


@in_loop
async def test_with_compact_and_delete_old_segments_go_too() -> None:
    clock = FakeClock()
    async with running(BY_HAND, clock=clock) as node:
        client = await with_topic(node, cleanup_policy="compact,delete", retention_ms="60000")
        await with_topic(node, "kept", retention_ms="60000")
        for name in ("orders", "kept"):
            await many_updates(client, name, now_ms=clock.now_ms())
            await settle(node, name)
        while await compact(node):
            pass
        clock.advance(61_000)
        await node.broker.upkeep.housekeeping.sweep()
        assert node.partition("orders").log.start_offset == 100
        assert node.partition("kept").log.start_offset == 0
        assert latest(await all_records(client, "kept")) == {b"k%d" % key: b"19" for key in range(5)}


@in_loop
async def test_keys_beyond_the_buffer_take_several_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting_module, "BYTES_PER_KEY", 100_000)
    async with running(BY_HAND | {"log.cleaner.dedupe.buffer.size": "2000000"}) as node:
        client = await with_topic(node)
        await many_updates(client, keys=50, rounds=4)
        await settle(node)
        while await compact(node):
            pass
        assert node.broker.upkeep.compacting.rounds > 1
        assert latest(await all_records(client)) == {b"k%d" % key: b"3" for key in range(50)}


# What goes wrong


class Interrupted:
    """The task of compaction, with a word of the test's own before each result."""

    def __init__(self, before: Callable[[int], None]) -> None:
        self.before = before
        self.task: Task[CleaningJob, CleanedSegment | CleaningDone] = Task(
            "clean", CleaningJob, (CleanedSegment, CleaningDone), self.run
        )

    def run(
        self, files: Files, job: Any, *, should_stop: Callable[[], bool]
    ) -> Iterator[CleanedSegment | CleaningDone]:
        number = 0
        for number, result in enumerate(clean(files, job, should_stop=should_stop)):
            self.before(number)
            yield result
        self.before(number + 1)


Interrupt: TypeAlias = Callable[[Callable[[int], None]], None]


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Interrupt:
    return lambda before: monkeypatch.setattr(compacting_module, "CLEAN", Interrupted(before).task)


def fail(number: int) -> None:
    if number == 1:
        raise ValueError("something is odd")


@in_loop
async def test_a_log_whose_round_fails_is_left_alone_for_a_while_each_time_longer(
    interrupt: Interrupt, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    async with running(BY_HAND, clock=clock) as node:
        client = await with_topic(node)
        await with_topic(node, "others")
        await many_updates(client)
        await settle(node)
        interrupt(fail)
        assert await compact(node)
        [line] = [vars(record) for record in caplog.records if record.levelno == logging.ERROR]
        assert "something is odd" in line["error"]
        assert (line["partition"], line["rest_seconds"]) == ("orders-0", 1.0)
        compacting = node.broker.upkeep.compacting
        assert (compacting.rounds, compacting.failures) == (0, 1)
        assert leftovers(node.files, node.partition("orders").log.directory) == []
        # It is left alone for a while, and others have their turn.
        assert not await compact(node)
        await many_updates(client, "others")
        await settle(node, "others")
        interrupt(lambda number: None)
        assert await compact(node)
        assert not await compact(node)
        clock.advance(1_000)
        interrupt(fail)
        assert await compact(node)
        clock.advance(1_000)
        assert not await compact(node)
        clock.advance(1_000)
        interrupt(lambda number: None)
        assert await compact(node)
        assert (compacting.rounds, compacting.failures) == (2, 2)
        assert latest(await all_records(client)) == {b"k%d" % key: b"19" for key in range(5)}


async def delete(client: Client, name: str) -> None:
    response = await client.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5)
    assert response.responses[0].error_code == ErrorCode.NONE


async def alter(client: Client, name: str, config: str, value: str) -> None:
    change = IncrementalAlterConfigsRequestAlterableConfig(name=config, config_operation=0, value=value)
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(resource_type=2, resource_name=name, configs=[change])
    response = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert response.responses[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("is_recreated", [False, True])
def test_a_topic_that_is_deleted_meanwhile_ends_its_round(
    is_recreated: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @in_loop
    async def run() -> None:
        # So slow that nothing comes before the topic is gone.
        configs = BY_HAND | {"log.cleaner.io.max.bytes.per.second": "10"}
        async with running(configs, folder=str(tmp_path)) as node:
            client = await with_topic(node)
            await many_updates(client)
            await settle(node)
            rounding = asyncio.create_task(node.broker.upkeep.compacting.compact_next())
            helper = node.broker.upkeep.helper
            assert isinstance(helper, HelperProcess)
            await until(lambda: helper.pid)
            await delete(client, "orders")
            if is_recreated:
                await with_topic(node)
                await many_updates(client, rounds=1)
            assert await rounding
            assert node.broker.upkeep.compacting.failures == 0
            assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
            if is_recreated:
                assert leftovers(node.files, node.partition("orders").log.directory) == []
                assert len(await all_records(client)) == 5

    run()


@in_loop
async def test_a_topic_that_is_no_longer_compacted_ends_its_round() -> None:
    async with running(BY_HAND) as node:
        client = await with_topic(node)
        await many_updates(client)
        await settle(node)
        compacting, log = node.broker.upkeep.compacting, node.partition("orders").log
        rounding = asyncio.create_task(compacting.compact_next())
        await until(lambda: compacting._round)
        await alter(client, "orders", "cleanup.policy", "delete")
        assert await rounding
        assert compacting.failures == 0
        assert leftovers(node.files, log.directory) == []
        assert latest(await all_records(client)) == {b"k%d" % key: b"19" for key in range(5)}


@in_loop
async def test_a_helper_that_is_killed_costs_its_round_and_no_more(tmp_path: Path) -> None:
    configs = BY_HAND | {"log.cleaner.io.max.bytes.per.second": "100"}
    async with running(configs, folder=str(tmp_path)) as node:
        client = await with_topic(node)
        await many_updates(client)
        await settle(node)
        compacting, helper = node.broker.upkeep.compacting, node.broker.upkeep.helper
        assert isinstance(helper, HelperProcess)
        rounding = asyncio.create_task(compacting.compact_next())
        await until(lambda: helper.pid)
        assert helper.pid is not None
        os.kill(helper.pid, signal.SIGKILL)
        assert await rounding
        assert (compacting.failures, compacting.helper_restarts) == (1, 1)
        node.broker._set_config(
            node.broker.config.with_dynamic(cluster={"log.cleaner.io.max.bytes.per.second": "1000000000"})
        )
        while compacting.rounds == 0:
            await compact(node)
            await asyncio.sleep(0.01)
        assert latest(await all_records(client)) == {b"k%d" % key: b"19" for key in range(5)}
        assert leftovers(node.files, node.partition("orders").log.directory) == []


@in_loop
async def test_a_stop_in_the_midst_of_a_round_is_quick_and_leaves_nothing(tmp_path: Path) -> None:
    configs = {"log.cleaner.backoff.ms": "1", "log.cleaner.io.max.bytes.per.second": "100"}
    async with running(configs, folder=str(tmp_path)) as node:
        client = await with_topic(node)
        await many_updates(client)
        helper, log = node.broker.upkeep.helper, node.partition("orders").log
        assert isinstance(helper, HelperProcess)
        await until(lambda: helper.pid)
        pid = helper.pid
        assert pid is not None
        await node.stop()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert leftovers(node.files, log.directory) == []


class BrokenRenames(MemoryFiles):
    """A disk on which no swap can begin."""

    is_broken = True

    def rename(self, old: str, new: str) -> None:
        if self.is_broken and new.endswith(".swap"):
            raise OSError(5, "input/output error", new)
        super().rename(old, new)


@in_loop
async def test_a_swap_that_cannot_begin_is_tried_again_in_another_round(caplog: pytest.LogCaptureFixture) -> None:
    files, clock = BrokenRenames(), FakeClock()
    async with running(BY_HAND, files=files, clock=clock) as node:
        client = await with_topic(node)
        await many_updates(client)
        await settle(node)
        assert await compact(node)
        assert node.broker.upkeep.compacting.failures == 1
        assert "compaction failed, and is tried again later" in caplog.text
        files.is_broken = False
        clock.advance(1_000)
        assert await compact(node)
        assert node.broker.upkeep.compacting.rounds == 1
        assert latest(await all_records(client)) == {b"k%d" % key: b"19" for key in range(5)}


@in_loop
async def test_a_disk_that_fails_in_a_swap_ends_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    async with running(BY_HAND) as node:
        client = await with_topic(node)
        await many_updates(client)
        await settle(node)
        node.memory.fail("sync_directory", 1, OSError(5, "input/output error"))
        assert await compact(node)
        assert node.broker.failed.is_set()
        assert node.broker.failure is not None
        assert "input/output error" in node.broker.failure


class BrokenNames(MemoryFiles):
    """A disk on which no new segment gets its name."""

    def rename(self, old: str, new: str) -> None:
        if old.endswith(".swap"):
            raise OSError(5, "input/output error", new)
        super().rename(old, new)


@in_loop
async def test_a_log_that_goes_offline_in_a_swap_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with running(BY_HAND, files=BrokenNames()) as node:
        client = await with_topic(node)
        await many_updates(client)
        await settle(node)
        assert await compact(node)
        [line] = [vars(record) for record in caplog.records if record.levelno == logging.ERROR]
        assert line["partition"] == "orders-0"
        assert "offline" in line["error"]
        assert not node.broker.failed.is_set()
        assert not await compact(node)


@in_loop
async def test_a_round_does_not_begin_where_there_is_no_room_for_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(BY_HAND) as node:
        client = await with_topic(node)
        await many_updates(client)
        await settle(node)
        monkeypatch.setattr(node.broker.services.disk, "measure", lambda: (100, 1_000_000))
        assert await compact(node)
        [line] = [vars(record) for record in caplog.records if record.levelno == logging.ERROR]
        assert "100 are free" in line["error"]
        assert node.broker.upkeep.compacting.failures == 1


@in_loop
async def test_a_bug_does_not_end_compaction(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    async def look(self: Compacting) -> None:
        nonlocal looks
        looks += 1
        raise RuntimeError("a bug")

    monkeypatch.setattr(Compacting, "_dirtiest", look)
    async with running({"log.cleaner.backoff.ms": "1"}):
        await until(lambda: looks > 2)
    assert "compaction failed" in caplog.text


# With replicas


@asynccontextmanager
async def compacted_copies() -> AsyncIterator[tuple[Copies, FakeClock]]:
    clock = FakeClock()
    async with copying(configs=BY_HAND, clock=clock, session_seconds=0.5) as copies:
        await copies.create(configs=COMPACTED | {"delete.retention.ms": "60000"})
        yield copies, clock


async def compact_all(copies: Copies, *, at_least: int) -> None:
    """Each replica by itself, once it knows that everything but its active segment is committed and flushed."""
    for replica in copies.replicas():
        await until(lambda replica=replica: _is_settled(replica, at_least))  # type: ignore[misc]
    for node in copies.running:
        while await compact(node):
            pass


def _is_settled(replica: Partition, at_least: int) -> bool:
    base = replica.log.segments[-1].base_offset
    return replica.high_watermark >= at_least and min(replica.high_watermark, replica.log.recovery_point) >= base


def records_in(replica: Partition) -> list[Record]:
    """All that a producer sent, committed or not."""
    batches = split(memoryview(contents(replica)))
    return [record for header, view in batches if not header.is_control for record in iterate(view)]


def by_key(replica: Partition) -> dict[bytes | None, bytes | None]:
    """The last value of each key that is committed, in the log of this replica; deleted ones have none."""
    found = records_in(replica)
    assert [record.offset for record in found] == sorted({record.offset for record in found})
    last = {record.key: record.value for record in found if record.offset < replica.high_watermark}
    return {key: value for key, value in last.items() if value is not None}


@in_loop
async def test_each_replica_compacts_its_own_log_and_all_of_them_agree_by_key() -> None:
    async with compacted_copies() as (copies, clock):
        client = await copies.client()
        await many_updates(client, now_ms=clock.now_ms())
        before = copies.led().log.size
        # One of them is far ahead of the others.
        ahead = copies.followers()[0]
        await until(lambda: _is_settled(copies.replica(ahead), 100))
        while await compact(copies.nodes[ahead]):
            pass
        assert copies.replica(ahead).log.size < before / 2
        assert copies.led().log.size == before
        assert all(by_key(replica) == by_key(copies.led()) for replica in copies.replicas())
        await compact_all(copies, at_least=100)
        assert max(replica.log.size for replica in copies.replicas()) < before / 2
        for replica in copies.replicas():
            assert by_key(replica) == {b"k%d" % key: b"19" for key in range(5)}
            assert replica.log.end_offset == 100


@in_loop
async def test_nothing_that_is_not_committed_is_compacted_by_any_replica() -> None:
    async with compacted_copies() as (copies, clock):
        client = await copies.client()
        await many_updates(client, now_ms=clock.now_ms())
        await until(lambda: {replica.high_watermark for replica in copies.replicas()} == {100})
        # No follower says that it has what comes now, so that none of it is committed.
        lost = copies.followers()[0]
        copies.cut(copies.leader(), [lost])
        for number in range(30):
            data = build([NewRecord(b"%d" % number, key=b"k1", timestamp=clock.now_ms())])
            assert (await client.produce("orders", data, acks=1)).error_code == ErrorCode.NONE
        near = copies.followers()[1]
        for replica in (copies.led(), copies.replica(near)):
            await until(lambda replica=replica: replica.log.recovery_point >= replica.log.segments[-1].base_offset)  # type: ignore[misc]
            assert replica.high_watermark == 100
        for number in (copies.leader(), near):
            while await compact(copies.nodes[number]):
                pass
        for replica in (copies.led(), copies.replica(near)):
            assert [record.value for record in records_in(replica) if record.offset >= 100] == [
                b"%d" % number for number in range(30)
            ]
            assert by_key(replica)[b"k1"] == b"19"


@in_loop
async def test_a_deleted_key_stays_deleted_when_another_replica_leads() -> None:
    async with compacted_copies() as (copies, clock):
        client = await copies.client()
        await many_updates(client, now_ms=clock.now_ms())
        await update(client, "orders", [(b"k1", None)], clock.now_ms())
        await update(client, "orders", [(b"k9", b"x" * 800), (b"k9", b"y" * 800)], clock.now_ms())
        # One replica drops the tombstone, one is compacted before that, and one was never compacted at all.
        first, second = copies.leader(), copies.followers()[0]
        for replica in copies.replicas():
            await until(lambda replica=replica: _is_settled(replica, 103))  # type: ignore[misc]
        for number in (first, second):
            while await compact(copies.nodes[number]):
                pass
        clock.advance(61_000)
        while await compact(copies.nodes[first]):
            pass
        assert b"k1" not in {record.key for record in await all_records(client)}
        for _ in range(2):
            assert all(b"k1" not in by_key(replica) for replica in copies.replicas())
            before = copies.leader()
            await copies.nodes[before].kill()
            await copies.elect_another()
            client = await copies.client()
            assert latest(await all_records(client)).get(b"k1") is None
            await copies.start(before)
            await until(lambda: len(copies.image().isr) == 3)


@in_loop
async def test_a_replica_that_was_away_copies_a_log_with_holes_and_agrees_by_key() -> None:
    async with compacted_copies() as (copies, clock):
        client = await copies.client()
        await many_updates(client, rounds=5, now_ms=clock.now_ms())
        away = copies.followers()[0]
        await copies.nodes[away].stop()
        await many_updates(client, rounds=20, now_ms=clock.now_ms())
        await update(client, "orders", [(b"k1", None)], clock.now_ms())
        await update(client, "orders", [(b"k9", b"x" * 800), (b"k9", b"y" * 800)], clock.now_ms())
        await compact_all(copies, at_least=128)
        # It is back before the tombstone is gone.
        await copies.start(away)
        await until(lambda: len(copies.image().isr) == 3)
        assert copies.replica(away).log.end_offset == 128
        await until(lambda: copies.replica(away).high_watermark == 128)
        assert by_key(copies.replica(away)) == by_key(copies.led())
        assert b"k1" not in by_key(copies.replica(away))
        await compact_all(copies, at_least=128)
        assert by_key(copies.replica(away)) == by_key(copies.led())
