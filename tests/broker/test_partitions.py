"""The partitions of a broker as the image of the cluster has them, and their folders."""

import errno
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.broker.partitions import PROBE_EVERY
from penstock.machines.cluster import partition_record
from penstock.machines.cluster_records import TopicCreated, TopicDeleted
from penstock.protocol.batch import split
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.harness import (
    FOLDER,
    Client,
    CountingFiles,
    Node,
    batch,
    in_loop,
    produce_request,
    produced,
    running,
    turns,
    until,
)

LOGS = f"{FOLDER}/logs"


async def delete(client: Client, topic: str) -> None:
    response = await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)]), 6)
    assert response.responses[0].error_code == ErrorCode.NONE


def folders(node: Node) -> list[str]:
    return [name for name in node.files.list(LOGS) if "-" in name and name != "recovery-points"]


@in_loop
async def test_a_partition_is_found_by_name_and_by_id() -> None:
    async with running() as node:
        client = await node.connect()
        created = await client.create_topic("orders", 2)
        partitions = node.broker.partitions
        partition = node.partition("orders", 1)
        assert (partition.topic, partition.index, partition.name) == ("orders", 1, "orders-1")
        assert partitions.find_by_id(created.topic_id, 1) is partition
        assert partitions.find("ignored", created.topic_id, 1, by_id=True) is partition
        assert partitions.find("orders", bytes(16), 1, by_id=False) is partition
        assert len(partitions) == 2


@in_loop
async def test_what_is_not_there_is_told_by_the_code_that_kafka_gives() -> None:
    async with running() as node:
        created = await (await node.connect()).create_topic("orders", 2)
        partitions = node.broker.partitions
        for topic, index in [("orderz", 0), ("orders", 2), ("orders", -1)]:
            assert partitions.get(topic, index) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert partitions.find_by_id(b"x" * 16, 0) == ErrorCode.UNKNOWN_TOPIC_ID
        assert partitions.find_by_id(created.topic_id, 2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_a_partition_that_another_broker_leads_is_not_ours() -> None:
    async with running() as node:
        client = await node.connect()
        created = await client.create_topic("orders")
        image = node.broker.image
        [partition] = image.topics["orders"].partitions
        await delete(client, "orders")
        # As if the cluster had given it to broker 5.
        image.apply(TopicCreated(created.topic_id, "orders", {}))
        image.apply(partition_record(created.topic_id, replace(partition, leader=5, replicas=(5,), isr=(5,))))
        node.broker.partitions.image_changed({"orders"})
        assert node.broker.partitions.get("orders", 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_loop
async def test_an_empty_partition_has_no_folder() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 100)
        assert folders(node) == []
        await client.produce("orders", batch(b"a"), partition=42)
        assert folders(node) == ["orders-42"]


@in_loop
async def test_a_deleted_topic_takes_its_folders_with_it() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 2)
        await client.create_topic("payments")
        for topic, partition in [("orders", 0), ("orders", 1), ("payments", 0)]:
            await client.produce(topic, batch(b"a"), partition=partition)
        await delete(client, "orders")
        # Their names are free at once, and the files go when a thread has the time.
        await until(lambda: folders(node) == ["payments-0"])
        assert node.broker.partitions.get("orders", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await client.values("payments") == [b"a"]
        assert len(node.broker.partitions) == 1


@in_loop
async def test_a_topic_that_is_created_again_begins_empty() -> None:
    async with running() as node:
        client = await node.connect()
        first = await client.create_topic("orders")
        await client.produce("orders", batch(b"old"))
        await delete(client, "orders")
        second = await client.create_topic("orders")
        assert first.topic_id != second.topic_id
        assert await client.values("orders") == []
        answer = await client.produce("orders", batch(b"new"))
        assert answer.base_offset == 0
        await node.restart()
        assert await (await node.connect()).values("orders") == [b"new"]


@in_loop
async def test_a_stale_folder_of_the_same_name_does_not_bring_its_records_back() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"old"))
        await node.stop()
        stale = node.memory.copy()
        await node.start()
        client = await node.connect()
        await delete(client, "orders")
        await client.create_topic("orders")
        await node.stop()
        # As if the folder had come back from a backup, or its deletion had been lost in a crash.
        node.files = stale
        await node.start()
        client = await node.connect()
        assert await client.values("orders") == []
        assert (await client.produce("orders", batch(b"new"))).base_offset == 0
        assert await client.values("orders") == [b"new"]
        assert [name for name in folders(node) if name.endswith("-stray")] == ["orders-0.0-stray"]


@in_loop
async def test_a_partition_that_cannot_be_opened_stays_away_and_the_others_serve(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 2)
        for index in (0, 1):
            await client.produce("orders", batch(b"a"), partition=index)
        await node.stop()
        node.memory.flip_bit(f"{LOGS}/orders-0/identity", 20, 3)
        with caplog.at_level(logging.ERROR, "penstock"):
            await node.start()
        assert "partition is offline" in caplog.text
        assert list(node.broker.partitions.failed) == [("orders", 0)]
        client = await node.connect()
        refused = await client.produce("orders", batch(b"b"))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.fetch("orders")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await client.values("orders", partition=1) == [b"a"]
        await delete(client, "orders")
        await until(lambda: folders(node) == [])
        assert not node.broker.partitions.failed


@in_loop
async def test_files_that_cannot_be_deleted_do_not_keep_a_topic_from_being_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"old"))
        node.memory.fail("rename", 2, OSError(errno.EIO, "broken"))
        with caplog.at_level(logging.ERROR, "penstock"):
            await delete(client, "orders")
        assert "files of a deleted partition are left" in caplog.text
        assert folders(node) == ["orders-0"]
        await client.create_topic("orders")
        assert await client.values("orders") == []
        assert (await client.produce("orders", batch(b"new"))).base_offset == 0
        assert folders(node) == ["orders-0", "orders-0.0-stray"]


@in_loop
async def test_when_the_disk_has_failed_every_partition_says_so_and_the_unknown_are_unknown() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 2)
        node.broker.partitions.disk_failed("broken")
        assert len(node.broker.partitions) == 0
        assert node.broker.partitions.failed == {("orders", 0): "broken", ("orders", 1): "broken"}
        assert node.broker.partitions.get("orders", 1) == ErrorCode.KAFKA_STORAGE_ERROR
        assert node.broker.partitions.get("orders", 2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_new_partitions_of_a_topic_are_opened_and_the_old_ones_stay_as_they_are() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        old = node.partition("orders")
        await client.ask(
            CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="orders", count=3, assignments=None)]), 3
        )
        assert node.partition("orders") is old
        assert (await client.produce("orders", batch(b"a"), partition=2)).error_code == ErrorCode.NONE


@in_loop
async def test_small_batches_that_came_together_are_one_write(tmp_path: Path) -> None:
    files = CountingFiles()
    async with running(files=files, folder=str(tmp_path)) as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"first"))
        files.writes.clear()
        client.send_together(*[(produce_request("orders", batch(b"x" * 100), acks=1), 12)] * 20)
        offsets = [produced(await client.reply()).base_offset for _ in range(20)]
        assert offsets == list(range(1, 21))
        assert 20 * len(batch(b"x" * 100)) in files.writes


@in_loop
async def test_batches_of_one_turn_for_many_partitions_are_written_at_its_end() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 3)
        client.send_together(*[(produce_request("orders", batch(b"x"), partition=index), 12) for index in (0, 1, 2, 1)])
        answers = [produced(await client.reply()) for _ in range(4)]
        assert [answer.base_offset for answer in answers] == [0, 0, 0, 1]


@in_loop
async def test_a_batch_that_was_staged_when_its_topic_went_is_refused_and_written_nowhere() -> None:
    async with running() as node:
        client = await node.connect()
        created = await client.create_topic("orders")
        partition = node.partition("orders")
        outcomes: list[ErrorCode] = []

        class Waiter:
            def appended(self, base_offset: int, log_start: int) -> None:
                raise AssertionError("it was not appended")

            def refused(self, code: ErrorCode, message: str) -> None:
                outcomes.append(code)

        [(header, view)] = split(batch(b"late"))
        partition.append(header, view, wait_for_all=False, waiter=Waiter(), now_ms=0)
        node.broker.image.apply(TopicDeleted(created.topic_id))
        node.broker.partitions.image_changed({"orders"})
        await turns()
        assert folders(node) == []
        assert outcomes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


class Unheard:
    """Whoever produced, and does not listen."""

    def appended(self, base_offset: int, log_start: int) -> None: ...

    def refused(self, code: ErrorCode, message: str) -> None:
        raise AssertionError(message)


def bring(node: Node, records: bytearray) -> None:
    """As a handler does with a batch."""
    [(header, view)] = split(records)
    node.partition("orders").append(header, view, wait_for_all=False, waiter=Unheard(), now_ms=0)


def read(node: Node) -> None:
    """As a connection does that has read a request with a batch."""
    node.broker.cork.hold()
    bring(node, batch(b"x"))
    node.broker.cork.release()


def end(node: Node) -> int:
    return node.partition("orders").log.end_offset


@in_loop
async def test_records_of_connections_that_come_together_share_a_write(tmp_path: Path) -> None:
    files = CountingFiles()
    async with running(files=files, folder=str(tmp_path)) as node:
        await (await node.connect()).create_topic("orders")
        for round in range(3):
            files.writes.clear()
            for _ in range(5):
                read(node)
            assert end(node) == 5 * round
            await turns()
            assert end(node) == 5 * round + 5
            assert max(files.writes) == 5 * len(batch(b"x"))


@in_loop
async def test_records_of_a_connection_that_comes_alone_are_written_at_once() -> None:
    async with running() as node:
        await (await node.connect()).create_topic("orders")
        read(node)
        await until(lambda: end(node) == 1)
        for number in range(2, 50):
            read(node)
            assert end(node) == number


@in_loop
async def test_now_and_then_it_is_looked_whether_connections_come_together_again() -> None:
    async with running() as node:
        await (await node.connect()).create_topic("orders")
        read(node)
        await until(lambda: end(node) == 1)
        while True:
            before = end(node)
            read(node)
            if end(node) == before:
                break
            assert before <= PROBE_EVERY
        for _ in range(3):
            read(node)
        assert end(node) == before
        await until(lambda: end(node) == before + 4)
        read(node)
        assert end(node) == before + 4, "they did come together, so the next one waits for others again"
        await until(lambda: end(node) == before + 5)


@in_loop
async def test_records_that_no_connection_brought_are_written_at_the_end_of_the_turn() -> None:
    async with running() as node:
        await (await node.connect()).create_topic("orders")
        read(node)
        await until(lambda: end(node) == 1)
        bring(node, batch(b"of a coordinator"))
        assert end(node) == 1
        await until(lambda: end(node) == 2)
