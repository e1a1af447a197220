"""Each fault of a disk or of a clock, and how it ends: for who produces, who reads, and who starts the broker again."""

import asyncio
import errno
import logging

import pytest

from penstock.broker.upkeep import housekeeping as housekeeping_module
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.protocol.schemas.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from penstock.storage.data_directory import CLEAN_SHUTDOWN_FILE, DataDirectory
from penstock.storage.errors import DirectoryRefusedError
from penstock.storage.files.memory import Damage, MemoryFiles
from tests.broker.harness import (
    FOLDER,
    NOW_MS,
    Client,
    FakeClock,
    GatedFiles,
    Node,
    batch,
    fetch_request,
    fetched,
    in_loop,
    produce_request,
    produced,
    running,
    until,
)
from tests.broker.members import commit, committed, with_groups

DAY_MS = 24 * 3_600_000
LOGS = f"{FOLDER}/logs"
SMALL_SEGMENTS = {"internal.segment.bytes": "200", "retention.ms": "-1"}
"""One record of 60 bytes in each."""
ONE = len(batch(bytes(60)))


async def fill(client: Client, topic: str, count: int = 5, *, now_ms: int = NOW_MS, **configs: str) -> None:
    """A topic with as many closed segments as records, but for the last."""
    given = {name.replace("_", "."): value for name, value in configs.items()}
    await client.create_topic(topic, configs={**SMALL_SEGMENTS, **given})
    await append(client, topic, count, now_ms=now_ms)


async def append(client: Client, topic: str, count: int, *, now_ms: int = NOW_MS) -> None:
    for _ in range(count):
        answer = await client.produce(topic, batch(bytes(60), timestamp=now_ms))
        assert answer.error_code == ErrorCode.NONE, answer


async def delete_records(client: Client, topic: str, offset: int) -> tuple[ErrorCode, int]:
    """The outcome, and where the log begins now."""
    asked = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    response = await client.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=1000), 2)
    [result] = response.topics[0].partitions
    return ErrorCode(result.error_code), result.low_watermark


async def delete_topic(client: Client, topic: str) -> ErrorCode:
    response = await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=1000), 6)
    return ErrorCode(response.responses[0].error_code)


async def start_of(client: Client, topic: str) -> int:
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-2)])
    response = await client.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 7)
    [found] = response.topics[0].partitions
    assert found.error_code == ErrorCode.NONE
    offset: int = found.offset
    return offset


def segment_path(node: Node, topic: str, base_offset: int = 0) -> str:
    return f"{LOGS}/{topic}-0/{base_offset:020}.log"


# When records become visible


@in_loop
async def test_an_acks_1_record_becomes_visible_with_no_acks_all_traffic() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        producer, reader = await node.connect(), await node.connect()
        await producer.create_topic("orders")
        files.gate.clear()
        reader.send(fetch_request("orders", 0, max_wait_ms=10_000), 12)
        assert (await producer.produce("orders", batch(b"a"), acks=1)).base_offset == 0
        await until(lambda: files.waiting)
        assert node.partition("orders").high_watermark == 0, "answered, and not flushed"
        files.gate.set()
        assert fetched(await reader.reply()).high_watermark == 1
        assert await reader.values("orders") == [b"a"]


# A sync that fails


@in_loop
async def test_a_failed_fsync_takes_the_folder_offline_and_nothing_is_acknowledged_after_it() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client, waiting, reader = await node.connect(), await node.connect(), await node.connect()
        for topic, flush in (("orders", "ack"), ("payments", "ack"), ("metrics", "os")):
            await client.create_topic(topic, configs={"penstock.flush": flush})
            await append(client, topic, 1)
        await until(lambda: not node.broker.directory.flusher.has_work)
        files.gate.clear()
        waiting.send(produce_request("orders", batch(b"lost")), 12)
        reader.send(fetch_request("payments", 1, max_wait_ms=30_000), 12)
        await until(lambda: files.waiting)
        # Written while the sync is under way: a later one would have made them durable.
        waiting.send(produce_request("payments", batch(b"never synced")), 12)
        await until(lambda: node.partition("payments").log.end_offset == 2)
        syncs = files.steps
        files.failing = OSError(errno.EIO, "input/output error")
        files.gate.set()
        for _ in range(2):
            answer = produced(await waiting.reply())
            assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
            assert answer.error_message is not None
            assert "input/output error" in answer.error_message
        files.failing = None
        await node.broker.failed.wait()
        assert fetched(await reader.reply()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        for topic in ("orders", "payments", "metrics"):
            for acks in (1, -1):
                refused = await client.produce(topic, batch(b"late"), acks=acks)
                assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await client.fetch(topic)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert files.steps == syncs + 1, "the one sync that failed, and nothing was written or synced after it"
        assert "the disk of /data has failed" in (node.broker.failure or "")
        await node.stop()
        assert files.stat(f"{LOGS}/{CLEAN_SHUTDOWN_FILE}") is None


@in_loop
async def test_after_a_failed_fsync_the_next_process_serves_nothing_that_a_power_loss_then_takes_away() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await node.connect()
        for topic in ("orders", "payments"):
            await client.create_topic(topic)
            assert (await client.produce(topic, batch(b"acknowledged"))).error_code == ErrorCode.NONE
        files.failing = OSError(errno.EIO, "input/output error")
        assert (await client.produce("orders", batch(b"in doubt"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        files.failing = None
        # The process alone starts again: Linux shows it bytes that never reached the disk.
        await node.restart()
        assert not node.broker.directory.was_clean
        client = await node.connect()
        served = {topic: await client.values(topic) for topic in ("orders", "payments")}
        assert served["payments"] == [b"acknowledged"]
        assert served["orders"] == [b"acknowledged", b"in doubt"]
        assert (await client.produce("orders", batch(b"after"))).error_code == ErrorCode.NONE
        await node.crash(Damage.LOSE_UNSYNCED)
        client = await node.connect()
        assert await client.values("orders") == [*served["orders"], b"after"]
        assert await client.values("payments") == served["payments"]


@in_loop
async def test_a_fsync_that_fails_while_a_log_is_recovered_keeps_the_broker_from_starting() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await append(client, "orders", 1)
        left = node.memory.copy()
        await node.stop()
        node.files = left
        left.fail("sync", 1, OSError(errno.EIO, "input/output error"))
        with pytest.raises(OSError, match="could not be synced"):
            await node.start()
        await node.start()
        assert await (await node.connect()).values("orders") == [bytes(60)]


# A full disk


@pytest.fixture
def full_disk_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping_module, "FULL_DISK_SECONDS", 0.01)


def fill_disk(node: Node, free_bytes: int) -> None:
    """Somebody else takes all but this much."""
    node.memory.capacity = (1 << 40) - node.memory.free_bytes(LOGS) + free_bytes
    node.broker.services.disk.check()


@in_loop
async def test_below_the_reserve_records_are_refused_and_reading_and_deleting_go_on() -> None:
    clock = FakeClock()
    async with running({"penstock.disk.reserve.bytes": "100000"}, clock=clock) as node:
        client = await node.connect()
        await fill(client, "orders")
        await fill(client, "old", retention_ms="60000")
        await fill(client, "unloved")
        await with_groups(node)
        fill_disk(node, 99_999)
        for acks in (1, -1):
            refused = await client.produce("orders", batch(b"x", producer=(7, 0, 0)), acks=acks)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert ErrorCode(refused.error_code).retriable
            assert refused.error_message is not None
            for words in ("No space left", "penstock.disk.reserve.bytes", "Delete records or topics", "retention"):
                assert words in refused.error_message
        assert node.partition("orders").may_append() is not None
        assert node.partition("orders").log.end_offset == 5
        # The broker's own topics may use the reserve.
        assert await commit(client, "g", {("orders", 0): 3}) == {ErrorCode.NONE}
        assert await committed(client, "g") == {("orders", 0): 3}
        assert await client.values("orders") == [bytes(60)] * 5
        assert await delete_records(client, "orders", 3) == (ErrorCode.NONE, 3)
        assert await delete_topic(client, "unloved") == ErrorCode.NONE
        clock.advance(61_000)
        assert await node.broker.upkeep.housekeeping.sweep() == 5
        assert await start_of(client, "old") == 5
        assert not node.broker.failed.is_set()
        # What went has made room, and nobody has to tell the broker.
        node.memory.capacity = None
        await until(lambda: not node.broker.services.disk.is_low)
        again = await client.produce("orders", batch(b"x", producer=(7, 0, 0)))
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 5)


@pytest.mark.usefixtures("full_disk_seconds")
@in_loop
async def test_a_full_disk_has_retention_come_early() -> None:
    clock = FakeClock()
    configs = {"penstock.disk.reserve.bytes": "100000", "log.retention.check.interval.ms": "1000000"}
    async with running(configs, clock=clock) as node:
        client = await node.connect()
        await fill(client, "orders", retention_ms="60000")
        await fill(client, "younger", retention_ms="120000")
        clock.advance(61_000)
        fill_disk(node, 50_000)
        await until(lambda: node.partition("orders").log.start_offset == 5)
        # And again, as long as it is full.
        clock.advance(120_000)
        await until(lambda: node.partition("younger").log.start_offset == 5)


@in_loop
async def test_a_disk_that_fills_up_in_the_middle_of_an_append_keeps_what_is_whole() -> None:
    async with running({"penstock.disk.reserve.bytes": "0"}, clock=FakeClock()) as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a", producer=(7, 0, 0)))
        node.memory.capacity = (1 << 40) - node.memory.free_bytes(LOGS) + 300
        refused = await client.produce("orders", batch(bytes(500), producer=(7, 0, 1)))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert refused.error_message is not None
        assert "No space left on device" in refused.error_message
        partition = node.partition("orders")
        assert partition.log.failure is None
        assert partition.log.size == len(batch(b"a"))
        assert await client.values("orders") == [b"a"]
        # Nothing is tried again before the next look, which finds that there is room for something smaller.
        await until(lambda: not node.broker.services.disk.is_low)
        assert (await client.produce("orders", batch(b"b", producer=(7, 0, 1)))).base_offset == 1
        await node.crash(Damage.LOSE_UNSYNCED)
        assert await (await node.connect()).values("orders") == [b"a", b"b"]


@in_loop
async def test_checkpoints_that_find_no_room_take_nothing_offline_and_nothing_acknowledged_is_lost() -> None:
    clock, files = FakeClock(), NoRoomForSmallFiles()
    async with running({"penstock.disk.reserve.bytes": "0"}, clock=clock, files=files) as node:
        client = await node.connect()
        await fill(client, "orders", 2)
        files.is_full = True
        sent = 2
        for _ in range(5):
            # Recovery points and producer snapshots are due, and cannot be saved.
            clock.advance(2_000)
            answer = await client.produce("orders", batch(bytes(60), producer=(7, 0, sent - 2)))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, sent)
            sent += 1
        assert files.refused
        assert not node.broker.failed.is_set()
        await node.crash(Damage.LOSE_UNSYNCED)
        client = await node.connect()
        assert len(await client.values("orders")) == sent
        duplicate = await client.produce("orders", batch(bytes(60), producer=(7, 0, 4)))
        assert duplicate.base_offset == sent - 1


@in_loop
async def test_a_stop_on_a_full_disk_leaves_no_clean_marker_and_loses_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = NoRoomForSmallFiles()
    async with running({"penstock.disk.reserve.bytes": "0"}, files=files) as node:
        client = await node.connect()
        await fill(client, "orders", 2)
        files.is_full = True
        await append(client, "orders", 1)
        await node.stop()
        assert "no room for the clean-shutdown marker" in caplog.text
        assert files.open_descriptors == 0
        files.is_full = False
        await node.start()
        assert not node.broker.directory.was_clean
        assert len(await (await node.connect()).values("orders")) == 3


@in_loop
async def test_an_election_that_finds_no_room_is_held_and_saved_later() -> None:
    async with running({"penstock.disk.reserve.bytes": "0"}) as node:
        client = await node.connect()
        await fill(client, "orders", 2)
        left = NoRoomForSmallFiles.like(node.memory)
        await node.stop()
        node.files = left
        left.is_full = True
        await node.start()
        await until(lambda: f"{LOGS}/orders-0/leader-epochs.tmp" in left.refused)
        client = await node.connect()
        epoch = node.partition("orders").leader.leader_epoch
        await append(client, "orders", 1)
        left.is_full = False
        await append(client, "orders", 1)
        await until(lambda: node.partition("orders").log.epochs.is_saved)
        await node.crash(Damage.LOSE_UNSYNCED)
        log = node.partition("orders").log
        assert log.epochs.at(2) == epoch
        assert len(await (await node.connect()).values("orders")) == 4


class NoRoomForSmallFiles(MemoryFiles):
    """A disk with room for what is appended to segments, and for nothing new while it is full."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False
        self.refused: list[str] = []

    @classmethod
    def like(cls, files: MemoryFiles) -> "NoRoomForSmallFiles":
        made, twin = cls(), files.copy()
        made._root, made._journal, made.steps = twin._root, twin._journal, twin.steps
        return made

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        if self.is_full and create and not path.endswith(".log"):
            self.refused.append(path)
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return super().open(path, write=write, create=create)


@in_loop
async def test_on_a_disk_that_is_full_to_the_last_byte_records_and_topics_can_be_deleted() -> None:
    async with running(clock=FakeClock()) as node:
        client = await node.connect()
        await fill(client, "orders")
        await fill(client, "unloved")
        fill_disk(node, 0)
        assert await delete_records(client, "orders", 4) == (ErrorCode.NONE, 4)
        assert await delete_topic(client, "unloved") == ErrorCode.NONE
        await until(lambda: not [name for name in node.files.list(LOGS) if name.startswith("unloved")])
        await node.crash(Damage.LOSE_UNSYNCED)
        assert await start_of(await node.connect(), "orders") == 4


# A flipped bit


@in_loop
async def test_a_flipped_bit_is_refused_never_served_and_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as node:
        client = await node.connect()
        await fill(client, "orders")
        await fill(client, "payments")
        await node.stop()
        node.memory.flip_bit(segment_path(node, "orders", 2), ONE - 1, 5)
        await node.start()
        client = await node.connect()
        assert len((await client.fetch("orders", 0)).records or b"") == ONE
        damaged = await client.fetch("orders", 2)
        assert (damaged.error_code, damaged.records) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
        [line] = [record for record in caplog.records if record.message == "a read failed"]
        facts = vars(line)
        assert facts["partition"] == "orders-0"
        assert (facts["file"], facts["offset"], facts["position"]) == (segment_path(node, "orders", 2), 2, 0)
        assert "checksum" in facts["error"].lower() or "crc" in facts["error"].lower()
        # What is sound, before it and behind it, and what is new, goes on.
        assert len((await client.fetch("orders", 3)).records or b"") == ONE
        await append(client, "orders", 1)
        assert await client.values("payments") == [bytes(60)] * 5


@in_loop
async def test_what_lies_around_a_flipped_bit_in_the_same_file_can_be_read() -> None:
    async with running(clock=FakeClock()) as node:
        client = await node.connect()
        await fill(client, "orders", 7, internal_segment_bytes=str(6 * ONE))
        await node.stop()
        node.memory.flip_bit(segment_path(node, "orders"), 4 * ONE - 1, 5)
        await node.start()
        client = await node.connect()
        assert len((await client.fetch("orders", 0)).records or b"") == 3 * ONE
        assert (await client.fetch("orders", 3)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len((await client.fetch("orders", 4)).records or b"") == 2 * ONE


class EvictedFiles(MemoryFiles):
    """A disk of which nothing is in memory while it is cold."""

    is_cold = False

    def is_cached(self, fd: int, position: int, size: int) -> bool:
        return not self.is_cold


@in_loop
async def test_a_bit_that_flips_while_the_broker_runs_is_found_when_the_bytes_come_from_the_disk() -> None:
    files = EvictedFiles()
    async with running(files=files) as node:
        client = await node.connect()
        await fill(client, "orders")
        files.flip_bit(segment_path(node, "orders", 2), ONE - 1, 5)
        files.is_cold = True
        assert (await client.fetch("orders", 2)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        files.is_cold = False
        assert (await client.fetch("orders", 2)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len((await client.fetch("orders", 1)).records or b"") == ONE


@in_loop
async def test_the_scrubber_finds_a_flipped_bit_that_nobody_reads(caplog: pytest.LogCaptureFixture) -> None:
    async with running({"penstock.scrub.bytes.per.second": "0"}) as node:
        client = await node.connect()
        await fill(client, "orders")
        node.memory.flip_bit(segment_path(node, "orders", 2), ONE - 1, 5)
        scrubbing = node.broker.upkeep.scrubbing
        assert scrubbing.bytes_scrubbed == 0
        while await scrubbing.scrub() is not None:
            pass
        assert (scrubbing.rounds, scrubbing.bytes_scrubbed, scrubbing.corrupt_batches) == (1, 4 * ONE, 1)
        [line] = [record for record in caplog.records if "damaged on the disk" in record.message]
        facts = vars(line)
        assert facts["partition"] == "orders-0"
        assert (facts["file"], facts["offset"], facts["position"]) == (segment_path(node, "orders", 2), 2, 0)
        # It would have been served: this process wrote it, and took it for sound.
        assert (await client.fetch("orders", 2)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len((await client.fetch("orders", 3)).records or b"") == ONE


@in_loop
async def test_a_damaged_segment_without_an_index_does_not_stop_retention() -> None:
    clock = FakeClock()
    async with running(clock=clock, files=MemoryFiles(now_ms=lambda: clock.wall_ms)) as node:
        client = await node.connect()
        await fill(client, "orders", retention_ms="60000")
        await node.stop()
        node.memory.flip_bit(segment_path(node, "orders"), 16, 5)
        for name in node.memory.list(f"{LOGS}/orders-0"):
            if name.endswith("index"):
                node.memory.unlink(f"{LOGS}/orders-0/{name}")
        await node.start()
        clock.advance(61_000)
        assert await node.broker.upkeep.housekeeping.sweep() == 5
        assert await start_of(await node.connect(), "orders") == 5


# Two processes


@in_loop
async def test_a_second_process_on_the_folder_is_refused_and_the_first_undisturbed() -> None:
    async with running() as node:
        client = await node.connect()
        await fill(client, "orders")
        with pytest.raises(DirectoryRefusedError, match="in use by another process; stop it, or choose another"):
            DataDirectory(LOGS, node.files)
        await append(client, "orders", 1)
        assert len(await client.values("orders")) == 6


# The clock


@pytest.mark.parametrize("days", [-400, -2, 2, 400])
def test_a_clock_that_jumps_deletes_nothing(days: int, caplog: pytest.LogCaptureFixture) -> None:
    @in_loop
    async def run() -> None:
        clock = FakeClock()
        async with running(clock=clock) as node:
            client = await node.connect()
            await fill(client, "orders", retention_ms="60000")
            await node.broker.upkeep.housekeeping.sweep()
            clock.wall_ms += days * DAY_MS
            with caplog.at_level(logging.WARNING, "penstock"):
                assert await node.broker.upkeep.housekeeping.sweep() == 0
            assert "the clock has jumped" in caplog.text
            assert await start_of(client, "orders") == 0
            # Records are taken all the same, with whatever time they have.
            assert (await client.produce("orders", batch(b"x", timestamp=clock.wall_ms))).base_offset == 5
            assert len(await client.values("orders")) == 6

    run()


@in_loop
async def test_a_clock_that_stands_by_its_new_time_for_a_day_is_believed() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        client = await node.connect()
        await fill(client, "orders", retention_ms="60000")
        await node.broker.upkeep.housekeeping.sweep()
        clock.wall_ms += 400 * DAY_MS
        assert await node.broker.upkeep.housekeeping.sweep() == 0
        clock.advance(DAY_MS)
        assert await node.broker.upkeep.housekeeping.sweep() == 5


# History


@in_loop
async def test_an_idle_partition_is_emptied_by_time() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        client = await node.connect()
        await fill(client, "orders", 1, retention_ms="60000", internal_segment_bytes="100000")
        clock.advance(60_000)
        assert await node.broker.upkeep.housekeeping.sweep() == 0
        clock.advance(1)
        assert await node.broker.upkeep.housekeeping.sweep() == 1
        assert await start_of(client, "orders") == 1
        assert await client.values("orders", 1) == []
        await until(lambda: not [name for name in node.files.list(f"{LOGS}/orders-0") if name.endswith(".log")])
        await append(client, "orders", 1, now_ms=clock.wall_ms)
        assert await client.values("orders", 1) == [bytes(60)]


@in_loop
async def test_by_size_a_partition_is_a_ring_buffer() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        client = await node.connect()
        await client.create_topic("orders", configs={**SMALL_SEGMENTS, "retention.bytes": str(3 * ONE)})
        for number in range(1, 20):
            await append(client, "orders", 1)
            await node.broker.upkeep.housekeeping.sweep()
            log = node.partition("orders").log
            assert (log.start_offset, log.size) == (max(0, number - 3), min(number, 3) * ONE)
            assert len(await client.values("orders", log.start_offset)) == min(number, 3)


@in_loop
async def test_segment_ms_closes_a_segment_that_nobody_appends_to() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        client = await node.connect()
        await fill(client, "orders", 2, segment_ms="60000", internal_segment_bytes="100000")
        log = node.partition("orders").log
        clock.advance(59_999)
        await node.broker.upkeep.housekeeping.sweep()
        assert len(log.segments) == 1
        clock.advance(1)
        await node.broker.upkeep.housekeeping.sweep()
        assert [segment.base_offset for segment in log.segments] == [0, 2]
        assert len(await client.values("orders")) == 2


@pytest.mark.parametrize("damage", [None, *Damage])
def test_a_start_that_was_told_never_goes_back_whatever_crashes(damage: Damage | None) -> None:
    @in_loop
    async def run() -> None:
        clock = FakeClock()
        async with running(clock=clock) as node:
            client = await node.connect()
            await fill(client, "orders", 6, retention_ms="60000")
            told = 0
            for offset in (1, 3):
                assert await delete_records(client, "orders", offset) == (ErrorCode.NONE, offset)
                told = offset
                await node.crash(damage)
                client = await node.connect()
                assert await start_of(client, "orders") == told
                assert await client.values("orders", told) == [bytes(60)] * (6 - told)
                assert (await client.fetch("orders", told - 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            clock.advance(61_000)
            assert await node.broker.upkeep.housekeeping.sweep() == 3
            assert await start_of(client, "orders") == 6
            await node.crash(damage)
            client = await node.connect()
            assert await start_of(client, "orders") == 6
            await append(client, "orders", 1, now_ms=clock.wall_ms)
            assert await client.values("orders", 6) == [bytes(60)]

    run()


@in_loop
async def test_records_that_were_deleted_are_gone_for_readers_who_wait() -> None:
    async with running(clock=FakeClock()) as node:
        client, reader = await node.connect(), await node.connect()
        await fill(client, "orders", 3)
        assert await delete_records(client, "orders", -1) == (ErrorCode.NONE, 3)
        assert (await client.fetch("orders", 0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        waiting = asyncio.create_task(reader.fetch("orders", 3, max_wait_ms=10_000))
        await append(client, "orders", 1)
        assert len((await waiting).records or b"") == ONE


@in_loop
async def test_a_disk_that_takes_no_write_and_lets_nothing_be_cut_ends_the_broker() -> None:
    async with running() as node:
        client = await node.connect()
        await fill(client, "orders", 1)
        node.memory.fail("pwritev", 1, OSError(errno.EIO, "broken"), after_bytes=10)
        node.memory.fail("truncate", 1, OSError(errno.EIO, "broken too"))
        refused = await client.produce("orders", batch(b"x"), acks=1)
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await until(node.broker.failed.is_set)
        assert node.broker.failure is not None
        assert "could not be cut back" in node.broker.failure
        assert (await client.produce("orders", batch(b"x"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await node.stop()
        await node.start()
        assert await (await node.connect()).values("orders") == [bytes(60)]
