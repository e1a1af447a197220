"""DescribeLogDirs over the wire."""

import os
from pathlib import Path

import pytest

from penstock.machines.cluster_records import PartitionImage, PartitionsChanged
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import NewRecord, build
from penstock.protocol.schemas.log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from tests.broker.harness import FOLDER, NOW_MS, Client, batch, in_loop, running, until


async def describe(
    client: Client, topics: dict[str, list[int]] | None = None, version: int = 4
) -> tuple[DescribeLogDirsResult, dict[tuple[str, int], int]]:
    """The only folder, and the sizes of the partitions in it."""
    asked = None
    if topics is not None:
        asked = [DescribableLogDirTopic(topic=topic, partitions=indexes) for topic, indexes in topics.items()]
    response = await client.ask(DescribeLogDirsRequest(topics=asked), version)
    assert response.error_code == ErrorCode.NONE
    [result] = response.results
    assert isinstance(result, DescribeLogDirsResult)
    sizes = {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }
    return result, sizes


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_version_tells_the_bytes_of_every_partition(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            await client.create_topic("orders", 2)
            data = batch(bytes(1000))
            await client.produce("orders", bytes(data), partition=1)
            result, sizes = await describe(client, version=version)
            assert (result.error_code, result.log_dir) == (ErrorCode.NONE, FOLDER)
            assert sizes == {("orders", 0): 0, ("orders", 1): len(data)}

    run()


@pytest.mark.parametrize("version", [1, 2, 4])
def test_clean_and_dirty_bytes_of_compacted_topics_are_told_to_those_who_ask(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running({"log.cleaner.backoff.ms": "1000000"}) as node:
            client = await node.connect()
            for name, policy in (("orders", "compact"), ("logs", "delete")):
                await client.create_topic(name, configs={"cleanup.policy": policy, "internal.segment.bytes": "200"})
            data = build([NewRecord(bytes(60), key=b"k", timestamp=NOW_MS)])
            for _ in range(3):
                await client.produce("orders", bytes(data))
            log = node.partition("orders").log
            await until(lambda: log.recovery_point >= 2)

            async def told(**asked: bool) -> dict[str, tuple[int, int]]:
                response = await client.ask(DescribeLogDirsRequest(topics=None, **asked), version)
                partitions = {topic.name: topic.partitions[0] for topic in response.results[0].topics}
                return {name: (each.clean_bytes, each.dirty_bytes) for name, each in partitions.items()}

            expected = (0, 2 * len(data)) if version >= 2 else (-1, -1)
            assert await told(compaction=True) == {"orders": expected, "logs": (-1, -1)}
            assert await told() == {"orders": (-1, -1), "logs": (-1, -1)}

    run()


@in_loop
async def test_only_what_is_asked_for_and_exists_is_told() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 3)
        await client.create_topic("payments")
        _, sizes = await describe(client, {"orders": [0, 2, 9], "unknown": [0]})
        assert set(sizes) == {("orders", 0), ("orders", 2)}
        assert (await describe(client, {}))[1] == {}


@in_loop
async def test_the_room_on_the_disk_is_told_from_version_4_on(tmp_path: Path) -> None:
    async with running(folder=str(tmp_path)) as node:
        client = await node.connect()
        result, _ = await describe(client)
        assert 0 < result.usable_bytes <= result.total_bytes
        status = os.statvfs(tmp_path)
        assert result.total_bytes == status.f_blocks * status.f_frsize
        assert result.log_dir == str(tmp_path)
        older = (await describe(client, version=3))[0]
        assert (older.usable_bytes, older.total_bytes) == (-1, -1)


@in_loop
async def test_a_partition_that_is_named_twice_is_told_once() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 2)
        asked = [DescribableLogDirTopic(topic="orders", partitions=[1, 0, 1, 7]) for _ in range(3)]
        [result] = (await client.ask(DescribeLogDirsRequest(topics=asked), 4)).results
        [topic] = result.topics
        assert [partition.partition_index for partition in topic.partitions] == [1, 0]


@in_loop
async def test_a_log_that_is_not_led_here_is_told_too() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        topic = node.broker.services.image.topics["orders"]
        new = PartitionImage(0, (0,), (0,), (), -1, 1, 1)
        change = node.broker.services.image.apply_all([PartitionsChanged(topic.topic_id, (new,))])
        await node.broker._image_changed(change)
        for topics in (None, [DescribableLogDirTopic(topic="orders", partitions=[0])]):
            [result] = (await client.ask(DescribeLogDirsRequest(topics=topics), 4)).results
            assert [(found.name, len(found.partitions)) for found in result.topics] == [("orders", 1)]


@in_loop
async def test_a_log_that_is_offline_is_not_among_those_that_lie_there() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 2)
        node.partition("orders").log.fail(OSError("input/output error"))
        assert (await describe(client))[1].keys() == {("orders", 1)}


@in_loop
async def test_a_disk_that_does_not_answer_is_told_as_an_error_of_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> tuple[int, int]:
        raise OSError("input/output error")

    async with running() as node:
        client = await node.connect()
        monkeypatch.setattr(node.broker.services.disk, "measure", fail, raising=True)
        result, _ = await describe(client)
        assert (result.error_code, result.usable_bytes) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
