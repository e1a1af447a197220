"""ListOffsets and OffsetForLeaderEpoch over the wire."""

import threading
from typing import Any

import pytest

from penstock.broker.handlers import offsets as handlers_offsets
from penstock.protocol.batch import stamp_crc
from penstock.protocol.compression import MAX_DECOMPRESSED_BYTES, Codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import iterate
from penstock.protocol.schemas.offsets import (
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.harness import FOLDER, NOW_MS, Client, GatedFiles, batch, in_loop, running

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)


async def offsets(
    client: Client, timestamp: int, *, topic: str = "orders", partition: int = 0, version: int = 11, epoch: int = -1
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    response = await client.ask(request, version)
    [found] = response.topics[0].partitions
    assert isinstance(found, ListOffsetsPartitionResponse)
    return found


async def place(client: Client, timestamp: int, **options: Any) -> tuple[int, int]:
    """Offset and timestamp."""
    found = await offsets(client, timestamp, **options)
    assert found.error_code == ErrorCode.NONE
    return found.offset, found.timestamp


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_tells_the_beginning_the_end_and_a_time(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            await client.create_topic("orders")
            for number in range(4):
                await client.produce("orders", batch(b"a", timestamp=NOW_MS + number))
            node.partition("orders").delete_before(1)
            assert await place(client, LATEST, version=version) == (4, -1)
            assert await place(client, EARLIEST, version=version) == (1, -1)
            assert await place(client, NOW_MS + 2, version=version) == (2, NOW_MS + 2)
            found = await offsets(client, NOW_MS + 2, version=version)
            assert found.leader_epoch == (0 if version >= 4 else -1)

    run()


@in_loop
async def test_an_empty_log_begins_and_ends_at_0_and_has_no_times() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        assert await place(client, LATEST) == (0, -1)
        assert await place(client, EARLIEST) == (0, -1)
        assert await place(client, MAX_TIMESTAMP) == (-1, -1)
        assert await place(client, NOW_MS) == (-1, -1)


@in_loop
async def test_the_largest_timestamp_is_found_wherever_it_lies() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        for times in ([5, 7], [9, 30, 20], [8]):
            data = batch(*[b"v"] * len(times), timestamps=[NOW_MS + time for time in times])
            await client.produce("orders", data)
        assert await place(client, MAX_TIMESTAMP) == (3, NOW_MS + 30)


@in_loop
async def test_there_is_no_second_tier() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        assert await place(client, EARLIEST_LOCAL) == (0, -1)
        assert await place(client, LATEST_TIERED) == (-1, -1)
        assert await place(client, PENDING_UPLOAD) == (-1, -1)


@pytest.mark.parametrize("codec", Codec)
def test_a_time_finds_the_very_record_inside_a_batch(codec: Codec) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            await client.create_topic("orders")
            for first in (0, 1000):
                times = [NOW_MS + first + 10 * number for number in range(100)]
                await client.produce("orders", batch(*[b"v" * 20] * 100, timestamps=times, codec=codec))
            for wanted, expected in [(0, 0), (10, 1), (11, 2), (990, 99), (991, 100), (1500, 150), (1990, 199)]:
                assert await place(client, NOW_MS + wanted) == (expected, NOW_MS + 10 * expected)
            assert await place(client, NOW_MS + 1991) == (-1, -1)
            assert await place(client, 0) == (0, NOW_MS)

    run()


@in_loop
async def test_records_before_the_beginning_are_not_found_by_their_time() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a", b"b", b"c", timestamps=[NOW_MS, NOW_MS + 1, NOW_MS + 2]))
        node.partition("orders").delete_before(1)
        assert await place(client, NOW_MS) == (1, NOW_MS + 1)


@in_loop
async def test_only_committed_records_count() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        files.gate.clear()
        await client.produce("orders", batch(b"b", timestamp=NOW_MS + 5), acks=1)
        assert await place(client, LATEST) == (1, -1)
        assert await place(client, NOW_MS + 5) == (-1, -1)


@in_loop
async def test_unknown_partitions_and_epochs_are_refused() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        await node.crash()
        client = await node.connect()
        for options, expected in [
            ({"topic": "orderz"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ({"partition": 3}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ({"epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
            ({"epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
            ({"epoch": 1}, ErrorCode.NONE),
        ]:
            found = await offsets(client, LATEST, **options)  # type: ignore[arg-type]
            assert found.error_code == expected
            assert found.offset == (-1 if expected else 1)


@in_loop
async def test_a_damaged_batch_is_a_storage_error() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(bytes(100)))
        await node.stop()
        node.memory.flip_bit(f"{FOLDER}/logs/orders-0/00000000000000000000.log", 100, 1)
        await node.start()
        found = await offsets(await node.connect(), NOW_MS)
        assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR


@in_loop
async def test_a_batch_whose_records_are_nonsense_is_told_without_harm_to_other_partitions() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 2)
        nonsense = batch(b"a" * 50)
        nonsense[61:] = b"\xff" * (len(nonsense) - 61)
        stamp_crc(nonsense)
        # The broker does not look inside a batch that it is given.
        assert (await client.produce("orders", nonsense)).error_code == ErrorCode.NONE
        assert (await client.produce("orders", batch(b"sound"), partition=1)).error_code == ErrorCode.NONE
        assert (await offsets(client, NOW_MS)).error_code == ErrorCode.CORRUPT_MESSAGE
        assert await place(client, NOW_MS, partition=1) == (0, NOW_MS)


# OffsetForLeaderEpoch


async def epoch_end(
    client: Client, epoch: int, *, topic: str = "orders", partition: int = 0, current: int = -1, version: int = 4
) -> EpochEndOffset:
    asked = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])
    response = await client.ask(request, version)
    [found] = response.topics[0].partitions
    assert isinstance(found, EpochEndOffset)
    return found


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_epoch_ends_where_the_next_one_begins_and_the_last_at_the_end_of_the_log(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            await client.create_topic("orders")
            for _ in range(2):
                await client.produce("orders", batch(b"a"))
                await client.produce("orders", batch(b"b"))
                await node.crash()
                client = await node.connect()
            await client.produce("orders", batch(b"c"))
            for epoch, expected in [(0, (0, 2)), (1, (1, 4)), (2, (2, 5)), (9, (2, 5))]:
                found = await epoch_end(client, epoch, version=version)
                assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.NONE, *expected)

    run()


@in_loop
async def test_an_epoch_is_asked_for_at_the_leader_by_who_knows_it() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        for options, expected in [
            ({"topic": "orderz"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ({"partition": 3}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ({"current": 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
            ({"current": 0}, ErrorCode.NONE),
        ]:
            assert (await epoch_end(client, 0, **options)).error_code == expected  # type: ignore[arg-type]


def partition_at(timestamp: int, partition: int = 0) -> ListOffsetsPartition:
    return ListOffsetsPartition(partition_index=partition, timestamp=timestamp)


@in_loop
async def test_a_partition_that_is_named_twice_is_refused_once() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 2)
        topics = [
            ListOffsetsTopic(name="orders", partitions=[partition_at(LATEST), partition_at(EARLIEST)]),
            ListOffsetsTopic(name="orders", partitions=[partition_at(LATEST, 1), partition_at(0)]),
        ]
        [topic] = (await client.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 11)).topics
        codes = {found.partition_index: found.error_code for found in topic.partitions}
        assert len(topic.partitions) == 2
        assert codes == {0: ErrorCode.INVALID_REQUEST, 1: ErrorCode.NONE}


@in_loop
async def test_an_epoch_that_is_asked_for_twice_is_told_once() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        asked = OffsetForLeaderPartition(partition=0, leader_epoch=0, current_leader_epoch=-1)
        topics = [OffsetForLeaderTopic(topic="orders", partitions=[asked, asked])] * 2
        [topic] = (await client.ask(OffsetForLeaderEpochRequest(topics=topics), 4)).topics
        assert len(topic.partitions) == 1


@in_loop
async def test_records_are_looked_at_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_by: list[bool] = []

    def watched(*args: Any, **options: Any) -> Any:
        looked_by.append(threading.current_thread() is threading.main_thread())
        return iterate(*args, **options)

    monkeypatch.setattr(handlers_offsets, "iterate", watched)
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a", b"b", timestamps=[NOW_MS, NOW_MS + 5], codec=Codec.ZSTD))
        assert await place(client, NOW_MS + 1) == (1, NOW_MS + 5)
        assert await place(client, MAX_TIMESTAMP) == (1, NOW_MS + 5)
        assert looked_by == [False, False]
        assert node.pinned() == 0


@in_loop
async def test_a_batch_that_becomes_too_large_is_corrupt() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        bomb = batch(bytes(MAX_DECOMPRESSED_BYTES + 1), codec=Codec.ZSTD)
        assert len(bomb) < 50_000
        await client.produce("orders", bomb)
        assert (await offsets(client, NOW_MS)).error_code == ErrorCode.CORRUPT_MESSAGE
        assert node.pinned() == 0
