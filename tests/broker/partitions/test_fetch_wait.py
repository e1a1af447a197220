"""Fetches: how long they wait, how much they get, what they are refused, and bytes that are cold or damaged."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from penstock.broker.log_rates import BURST
from penstock.broker.partitions import fetch_wait as fetching
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from penstock.protocol.schemas.topics import DeleteTopicsRequest, DeleteTopicState
from penstock.storage.files.memory import Damage
from penstock.storage.log import file_range
from tests.broker.harness import (
    FOLDER,
    BrokenFiles,
    CountingFiles,
    GatedFiles,
    Node,
    batch,
    fetch_request,
    fetched,
    in_loop,
    records_of,
    running,
    turns,
    until,
    values_of,
)

FOR_EVER_MS = 600_000


def long_poll(node: Node, topic: str = "orders") -> bool:
    """Whether somebody waits for this topic."""
    return bool(node.partition(topic).fetch_waiters)


def fetch_all(
    topic: str, offsets: dict[int, int], *, max_bytes: int, partition_max_bytes: int = 1 << 20, max_wait_ms: int = 0
) -> FetchRequest:
    """Several partitions, in this order, from these offsets."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for index, offset in offsets.items()
    ]
    return FetchRequest(
        max_bytes=max_bytes,
        min_bytes=1,
        max_wait_ms=max_wait_ms,
        topics=[FetchTopic(topic=topic, partitions=partitions)],
    )


def by_partition(response: FetchResponse) -> dict[int, PartitionData]:
    return {data.partition_index: data for topic in response.responses for data in topic.partitions}


# Waiting


@in_loop
async def test_a_fetch_with_enough_to_read_is_answered_at_once() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        data = await client.fetch("orders", max_wait_ms=FOR_EVER_MS)
        assert values_of(records_of(data)) == [b"a"]
        assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (1, 1, 0)


@in_loop
async def test_a_fetch_of_nothing_is_answered_with_no_bytes_when_its_time_is_up() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        for max_wait_ms in (0, 1, 30):
            data = await client.fetch("orders", max_wait_ms=max_wait_ms)
            assert data.error_code == ErrorCode.NONE
            assert data.records is not None
            assert len(data.records) == 0
        assert not long_poll(node)


@in_loop
async def test_a_waiting_fetch_wakes_up_when_records_are_committed_and_not_before() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        reader, writer = await node.connect(), await node.connect()
        await writer.create_topic("orders")
        waiting = asyncio.create_task(reader.fetch("orders", max_wait_ms=FOR_EVER_MS))
        await until(lambda: long_poll(node))
        files.gate.clear()
        await writer.produce("orders", batch(b"a"), acks=1)
        await until(lambda: files.waiting)
        await turns()
        assert not waiting.done()
        files.gate.set()
        assert values_of(records_of(await waiting)) == [b"a"]


@in_loop
async def test_a_fetch_waits_for_as_many_bytes_as_it_asks_for() -> None:
    async with running() as node:
        reader, writer = await node.connect(), await node.connect()
        await writer.create_topic("orders")
        waiting = asyncio.create_task(reader.fetch("orders", min_bytes=2_000, max_wait_ms=FOR_EVER_MS))
        await until(lambda: long_poll(node))
        await writer.produce("orders", batch(bytes(1_000)))
        await until(lambda: long_poll(node))
        assert not waiting.done()
        assert node.pinned() == 0
        await writer.produce("orders", batch(bytes(1_000)))
        assert len(records_of(await waiting)) == 2


@in_loop
async def test_bytes_of_all_partitions_count_towards_what_a_fetch_waits_for() -> None:
    async with running() as node:
        reader, writer = await node.connect(), await node.connect()
        await writer.create_topic("orders", 2)
        request = fetch_all("orders", {0: 0, 1: 0}, max_bytes=1 << 20, max_wait_ms=FOR_EVER_MS)
        request.min_bytes = 2_000
        waiting = asyncio.create_task(reader.ask(request, 12))
        await until(lambda: long_poll(node))
        for index in (0, 1):
            assert not waiting.done()
            await writer.produce("orders", batch(bytes(1_000)), partition=index)
        found = by_partition(await waiting)
        assert [len(records_of(found[index])) for index in (0, 1)] == [1, 1]


@in_loop
async def test_an_error_is_told_at_once_though_the_other_partitions_have_nothing() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        request = fetch_all("orders", {0: 0, 7: 0}, max_bytes=1000, max_wait_ms=FOR_EVER_MS)
        found = by_partition(await client.ask(request, 12))
        assert found[0].error_code == ErrorCode.NONE
        assert found[7].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_a_fetch_that_waits_at_a_topic_is_told_when_the_topic_is_deleted() -> None:
    async with running() as node:
        reader, admin = await node.connect(), await node.connect()
        await admin.create_topic("orders")
        waiting = asyncio.create_task(reader.fetch("orders", max_wait_ms=FOR_EVER_MS))
        await until(lambda: long_poll(node))
        await admin.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]), 6)
        assert (await waiting).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_a_fetch_that_is_woken_and_runs_out_of_time_in_one_turn_is_answered_once() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        waiting = asyncio.create_task(client.fetch("orders", max_wait_ms=FOR_EVER_MS))
        await until(lambda: long_poll(node))
        [fetch] = node.partition("orders").fetch_waiters
        fetch.more_to_read(0)
        node.broker.services.fetch_room.deadlines.expire_all()
        assert (await waiting).error_code == ErrorCode.NONE
        await turns()
        assert (await client.fetch("orders")).error_code == ErrorCode.NONE


@in_loop
async def test_a_thousand_readers_wake_up_to_one_record() -> None:
    async with running() as node:
        writer = await node.connect()
        await writer.create_topic("orders")
        readers = [await node.connect() for _ in range(10)]
        for reader in readers:
            reader.send_together(*[(fetch_request("orders", max_wait_ms=FOR_EVER_MS), 12)] * 100)
        await until(lambda: len(node.partition("orders").fetch_waiters) == 1000)
        await writer.produce("orders", batch(b"a"))
        for reader in readers:
            for _ in range(100):
                assert values_of(records_of(fetched(await reader.reply()))) == [b"a"]
        assert not long_poll(node)
        assert node.pinned() == 0


@in_loop
async def test_a_reader_that_goes_while_it_waits_leaves_no_file_open() -> None:
    async with running() as node:
        reader, writer = await node.connect(), await node.connect()
        await writer.create_topic("orders")
        await writer.produce("orders", batch(b"a"))
        # There is something to read, but not enough: it is looked at, and let go of.
        reader.send(fetch_request("orders", min_bytes=100_000, max_wait_ms=FOR_EVER_MS), 12)
        await until(lambda: long_poll(node))
        assert node.pinned() == 0
        reader.abort()
        await until(lambda: len(node.broker.listener.connections) == 1)
        await writer.produce("orders", batch(bytes(200_000)))
        await until(lambda: not long_poll(node))
        assert node.pinned() == 0


# How much


@in_loop
async def test_a_fetch_gets_whole_batches_up_to_its_limit() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        size = len(batch(bytes(1_000)))
        for _ in range(5):
            await client.produce("orders", batch(bytes(1_000)))
        for limit, expected in [(3 * size, 3), (3 * size - 1, 2), (size, 1), (1 << 20, 5)]:
            assert len(records_of(await client.fetch("orders", max_bytes=limit))) == expected
            assert len(records_of(await client.fetch("orders", partition_max_bytes=limit))) == expected


@pytest.mark.parametrize("limit", [1, 0, -1])
def test_the_first_batch_comes_however_small_the_limits_are_and_no_second_one(limit: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            await client.create_topic("orders", 3)
            for index in (1, 2):
                for _ in range(2):
                    await client.produce("orders", batch(bytes(1_000)), partition=index)
            for request in (
                fetch_all("orders", {0: 0, 1: 0, 2: 0}, max_bytes=limit),
                fetch_all("orders", {0: 0, 1: 0, 2: 0}, max_bytes=1 << 20, partition_max_bytes=limit),
            ):
                found = by_partition(await client.ask(request, 12))
                assert [len(records_of(found[index])) for index in (0, 1, 2)] == [0, 1, 0]

    run()


@in_loop
async def test_what_a_fetch_may_have_in_all_is_split_over_its_partitions_in_their_order() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 3)
        size = len(batch(bytes(1_000)))
        for index in range(3):
            for _ in range(3):
                await client.produce("orders", batch(bytes(1_000)), partition=index)
        found = by_partition(await client.ask(fetch_all("orders", {2: 0, 0: 0, 1: 0}, max_bytes=4 * size + 10), 12))
        assert [len(records_of(found[index])) for index in (2, 0, 1)] == [3, 1, 0]


@in_loop
async def test_the_broker_has_a_limit_of_its_own() -> None:
    async with running({"fetch.max.bytes": "2048"}) as node:
        client = await node.connect()
        await client.create_topic("orders")
        for _ in range(5):
            await client.produce("orders", batch(bytes(900)))
        assert len(records_of(await client.fetch("orders", max_bytes=1 << 30))) == 2


@in_loop
async def test_a_fetch_from_inside_a_batch_gets_the_whole_batch() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a", b"b", b"c"))
        assert [record.offset for record in records_of(await client.fetch("orders", 2))] == [0, 1, 2]


# Where


@in_loop
async def test_offsets_outside_the_log_are_out_of_range() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        for value in (b"a", b"b", b"c"):
            await client.produce("orders", batch(value))
        node.partition("orders").delete_before(1)
        for offset in (-1, 0, 4, 1 << 60):
            data = await client.fetch("orders", offset, max_wait_ms=FOR_EVER_MS)
            assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (data.high_watermark, data.log_start_offset) == (3, 1)
        assert (await client.fetch("orders", 3)).error_code == ErrorCode.NONE
        assert values_of(records_of(await client.fetch("orders", 1))) == [b"b", b"c"]


@in_loop
async def test_a_client_with_another_idea_of_the_leader_is_told() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        await node.crash()
        client = await node.connect()
        assert node.partition("orders").leader.leader_epoch == 1
        old = await client.fetch("orders", leader_epoch=0, max_wait_ms=FOR_EVER_MS)
        assert old.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (old.current_leader.leader_id, old.current_leader.leader_epoch) == (0, 1)
        new = await client.fetch("orders", leader_epoch=2, max_wait_ms=FOR_EVER_MS)
        assert new.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert values_of(records_of(await client.fetch("orders", leader_epoch=1))) == [b"a"]


@in_loop
async def test_a_reader_whose_records_are_of_another_history_is_told_where_the_histories_part() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        for value in (b"a", b"b"):
            await client.produce("orders", batch(value))
        await node.crash()
        client = await node.connect()
        await client.produce("orders", batch(b"c"))
        # It has read up to offset 5 in epoch 0, which ended at 2.
        data = await client.fetch("orders", 3, last_fetched_epoch=0, max_wait_ms=FOR_EVER_MS)
        assert data.error_code == ErrorCode.NONE
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 2)
        assert data.records is not None
        assert len(data.records) == 0
        same = await client.fetch("orders", 2, last_fetched_epoch=0)
        assert (same.diverging_epoch.epoch, values_of(records_of(same))) == (-1, [b"c"])
        assert values_of(records_of(await client.fetch("orders", 2, last_fetched_epoch=1))) == [b"c"]
        unheard = await client.fetch("orders", 3, last_fetched_epoch=7)
        assert (unheard.diverging_epoch.epoch, unheard.diverging_epoch.end_offset) == (1, 3)


# Files


@in_loop
async def test_large_ranges_are_sent_from_the_file_and_small_ones_through_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    sendfile = os.sendfile

    def spy(out: int, source: int, position: int, count: int) -> int:
        sent.append(count)
        return sendfile(out, source, position, count)

    monkeypatch.setattr(os, "sendfile", spy)
    async with running(folder=str(tmp_path)) as node:
        client = await node.connect()
        await client.create_topic("orders", 2)
        small, large = os.urandom(10_000), os.urandom(300_000)
        await client.produce("orders", batch(small), partition=0)
        await client.produce("orders", batch(large), partition=1)
        assert values_of(records_of(await client.fetch("orders", partition=0))) == [small]
        assert sent == []
        assert values_of(records_of(await client.fetch("orders", partition=1))) == [large]
        assert sum(sent) >= 300_000
        assert node.pinned() == 0


@in_loop
async def test_a_file_that_is_shorter_than_it_should_be_closes_the_connection(tmp_path: Path) -> None:
    async with running(folder=str(tmp_path)) as node:
        client, other = await node.connect(), await node.connect()
        await client.create_topic("orders")
        await client.create_topic("payments")
        await client.produce("payments", batch(b"a"))
        for size in (300_000, 1_000):
            await client.produce("orders", batch(bytes(size)))
        path = node.partition("orders").log.segments[0].path
        os.truncate(path, 200_000)
        for offset, max_bytes in ((0, 1), (1, 1_000_000)):
            victim = await node.connect()
            victim.send(fetch_request("orders", offset, partition_max_bytes=max_bytes), 12)
            await victim.closed()
            assert await other.values("payments") == [b"a"]
            assert node.pinned() == 0


@in_loop
async def test_bytes_from_before_the_start_are_checked_in_a_thread_before_they_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed: list[threading.Thread] = []
    warm = file_range.FileRange.warm

    def spy(self: file_range.FileRange) -> None:
        warmed.append(threading.current_thread())
        warm(self)

    monkeypatch.setattr(file_range.FileRange, "warm", spy)
    async with running(folder=str(tmp_path)) as node:
        client = await node.connect()
        await client.create_topic("orders")
        value = os.urandom(100_000)
        await client.produce("orders", batch(value))
        assert await client.values("orders") == [value]
        assert warmed == []
        await node.restart()
        client = await node.connect()
        assert await client.values("orders") == [value]
        assert len(warmed) == 1
        assert warmed[0] is not threading.main_thread()
        assert await client.values("orders") == [value]
        assert len(warmed) == 1, "what was checked once is not checked again"
        assert node.pinned() == 0


@in_loop
async def test_others_are_served_while_cold_bytes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    warm = file_range.FileRange.warm

    def slow(self: file_range.FileRange) -> None:
        gate.wait()
        warm(self)

    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"cold"))
        await node.restart()
        monkeypatch.setattr(file_range.FileRange, "warm", slow)
        reader, leaver, other = await node.connect(), await node.connect(), await node.connect()
        reader.send(fetch_request("orders"), 12)
        leaver.send(fetch_request("orders"), 12)
        await until(lambda: node.pinned() == 2)
        await other.produce("orders", batch(b"new"))
        assert values_of(records_of(await other.fetch("orders", 1))) == [b"new"]
        leaver.abort()
        await until(lambda: len(node.broker.listener.connections) == 2)
        gate.set()
        assert values_of(records_of(fetched(await reader.reply()))) == [b"cold"]
        await until(lambda: node.pinned() == 0)


@pytest.mark.parametrize("position", [70, 200])
def test_a_bit_that_changed_on_disk_is_told_as_a_storage_error_and_never_served(position: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            await client.create_topic("orders", 2)
            for index in (0, 1):
                for _ in range(2):
                    await client.produce("orders", batch(bytes(100)), partition=index)
            await node.stop()
            node.memory.flip_bit(f"{FOLDER}/logs/orders-0/00000000000000000000.log", position, 3)
            await node.start()
            client = await node.connect()
            for offset in (0, 1):
                data = await client.fetch("orders", offset, max_wait_ms=FOR_EVER_MS)
                if data.error_code != ErrorCode.NONE:
                    assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                    assert data.records is not None
                    assert len(data.records) == 0
                else:
                    assert [record.value for record in records_of(data)] == [bytes(100)]
            assert (await client.fetch("orders", 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert await client.values("orders", partition=1) == [bytes(100)] * 2
            assert node.pinned() == 0

    run()


@in_loop
async def test_a_changed_bit_that_a_cold_read_finds_is_a_storage_error_of_that_partition_alone() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 2)
        for index in (0, 1):
            await client.produce("orders", batch(bytes(100)), partition=index)
            # With this the next start has no need to look at the records.
            node.partition("orders", index).save_producers()
        await node.stop()
        node.memory.flip_bit(f"{FOLDER}/logs/orders-0/00000000000000000000.log", 100, 3)
        await node.start()
        client = await node.connect()
        assert not node.broker.services.partitions.failed
        found = by_partition(await client.ask(fetch_all("orders", {0: 0, 1: 0}, max_bytes=1 << 20), 12))
        assert found[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert found[0].records is not None
        assert len(found[0].records) == 0
        assert values_of(records_of(found[1])) == [bytes(100)]
        assert node.pinned() == 0


@in_loop
async def test_a_reader_that_never_gives_up_writes_a_few_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching.log, "_clock", lambda: 0.0)
    files = BrokenFiles()
    async with running(files=files) as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        await node.close_files()
        files.broken = ".log"
        for _ in range(3 * BURST):
            assert (await client.fetch("orders")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len([record for record in caplog.records if record.message == "a read failed"]) == BURST


@in_loop
async def test_a_file_that_cannot_be_opened_is_a_storage_error() -> None:
    files = BrokenFiles()
    async with running(files=files) as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        await node.close_files()
        files.broken = ".log"
        assert (await client.fetch("orders", max_wait_ms=FOR_EVER_MS)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        files.broken = ""
        assert await client.values("orders") == [b"a"]


@in_loop
async def test_a_fetch_whose_time_is_up_when_its_reader_is_gone_leaves_no_file_open() -> None:
    async with running() as node:
        reader, writer = await node.connect(), await node.connect()
        await writer.create_topic("orders")
        await writer.produce("orders", batch(b"a"))
        reader.send(fetch_request("orders", min_bytes=100_000, max_wait_ms=100), 12)
        await until(lambda: long_poll(node))
        reader.abort()
        await until(lambda: len(node.broker.listener.connections) == 1)
        await until(lambda: not long_poll(node))
        assert node.pinned() == 0


@in_loop
async def test_a_fetch_of_warm_bytes_reads_no_more_than_it_sends(tmp_path: Path) -> None:
    files = CountingFiles()
    async with running(files=files, folder=str(tmp_path)) as node:
        client = await node.connect()
        await client.create_topic("orders")
        for _ in range(50):
            await client.produce("orders", batch(bytes(10_000)), acks=1)
        await until(lambda: node.partition("orders").high_watermark == 50)
        files.reads.clear()
        data = await client.fetch("orders", 30, partition_max_bytes=10_100)
        assert len(records_of(data)) == 1
        assert sum(files.reads) < 40_000


@in_loop
async def test_after_a_power_loss_readers_see_what_was_acknowledged_to_all() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        for number in range(5):
            await client.produce("orders", batch(b"%d" % number))
        await node.crash(Damage.LOSE_UNSYNCED)
        assert await (await node.connect()).values("orders") == [b"0", b"1", b"2", b"3", b"4"]
