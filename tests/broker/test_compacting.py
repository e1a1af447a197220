"""Compaction beside a running broker: which log is next, what a round does, and what becomes of one that fails."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from penstock.broker import compacting as compacting_module
from penstock.broker.compacting import Compacting
from penstock.broker.config.typed import BrokerConfig
from penstock.broker.helper.process import HelperProcess
from penstock.broker.helper.task import Task
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import NewRecord, Record, build
from penstock.protocol.schemas.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from penstock.protocol.schemas.topics import DeleteTopicsRequest
from penstock.storage.cleaning import CleanedSegment, CleaningDone, CleaningJob, clean
from penstock.storage.files import Files
from penstock.storage.memory_files import MemoryFiles
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
    return await node.broker.compacting.compact_next()


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
        compacting = node.broker.compacting
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
        helper = node.broker.helper
        assert isinstance(helper, HelperProcess)
        assert helper.pid is None
        assert await compact(node)
        assert helper.pid is not None
        assert node.partition("orders").log.size < before / 2
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
        await until(lambda: node.broker.compacting.rounds)
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
        assert node.broker.compacting.rounds == 0


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
        assert 0 <= node.broker.compacting.dirtiest_ratio <= 1


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
        while node.broker.compacting.rounds == 0:
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
        await node.broker.housekeeping.sweep()
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
        assert node.broker.compacting.rounds > 1
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
        compacting = node.broker.compacting
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
            rounding = asyncio.create_task(node.broker.compacting.compact_next())
            helper = node.broker.helper
            assert isinstance(helper, HelperProcess)
            await until(lambda: helper.pid)
            await delete(client, "orders")
            if is_recreated:
                await with_topic(node)
                await many_updates(client, rounds=1)
            assert await rounding
            assert node.broker.compacting.failures == 0
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
        compacting, log = node.broker.compacting, node.partition("orders").log
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
        compacting, helper = node.broker.compacting, node.broker.helper
        assert isinstance(helper, HelperProcess)
        rounding = asyncio.create_task(compacting.compact_next())
        await until(lambda: helper.pid)
        assert helper.pid is not None
        os.kill(helper.pid, signal.SIGKILL)
        assert await rounding
        assert (compacting.failures, compacting.helper_restarts) == (1, 1)
        node.broker.config = node.broker.config.with_dynamic(
            cluster={"log.cleaner.io.max.bytes.per.second": "1000000000"}
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
        helper, log = node.broker.helper, node.partition("orders").log
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
        assert node.broker.compacting.failures == 1
        assert "compaction failed, and is tried again later" in caplog.text
        files.is_broken = False
        clock.advance(1_000)
        assert await compact(node)
        assert node.broker.compacting.rounds == 1
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
        monkeypatch.setattr(node.broker, "disk_bytes", lambda: (100, 1_000_000))
        assert await compact(node)
        [line] = [vars(record) for record in caplog.records if record.levelno == logging.ERROR]
        assert "100 are free" in line["error"]
        assert node.broker.compacting.failures == 1


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
