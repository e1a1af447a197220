"""The partitions of a broker as the image of the cluster has them, and their folders."""

import errno
import logging
import math
from pathlib import Path

import msgspec
import pytest

from penstock.broker.partitions.partition import Partition
from penstock.broker.partitions.registry import Partitions
from penstock.machines.cluster_records import (
    ConfigChanged,
    PartitionImage,
    PartitionsChanged,
    PartitionsCreated,
    Record,
    TopicCreated,
    TopicDeleted,
)
from penstock.machines.elections import LEADER_EPOCH_STEP
from penstock.machines.founding import founding_entry, founding_snapshot, imported_snapshot
from penstock.metadata.export import Export, read_export
from penstock.metadata.memory import MemoryStore, SharedMetadata
from penstock.metadata.store import Founding
from penstock.protocol.batch import split
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import NewRecord, build
from penstock.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
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
    GatedFiles,
    Node,
    batch,
    fetch_request,
    fetched,
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
    return [name for name in node.files.list(LOGS) if "-" in name and not name.startswith("recovery-points")]


@in_loop
async def test_a_partition_is_found_by_name_and_by_id() -> None:
    async with running() as node:
        client = await node.connect()
        created = await client.create_topic("orders", 2)
        partitions = node.broker.services.partitions
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
        partitions = node.broker.services.partitions
        for topic, index in [("orderz", 0), ("orders", 2), ("orders", -1)]:
            assert partitions.get(topic, index) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert partitions.find_by_id(b"x" * 16, 0) == ErrorCode.UNKNOWN_TOPIC_ID
        assert partitions.find_by_id(created.topic_id, 2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_a_partition_that_another_broker_leads_is_not_ours() -> None:
    async with running() as node:
        client = await node.connect()
        created = await client.create_topic("orders")
        image = node.broker.services.image
        await delete(client, "orders")
        # As if the cluster had given it to broker 5.
        change = image.apply_all(
            [TopicCreated(created.topic_id, "orders", {}), PartitionsCreated(created.topic_id, 0, ((5,),))]
        )
        list(node.broker.services.partitions.image_changed(change))
        assert node.broker.services.partitions.get("orders", 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER


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
        assert node.broker.services.partitions.get("orders", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await client.values("payments") == [b"a"]
        assert len(node.broker.services.partitions) == 1


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
        assert "a broker has logs that it cannot open" in caplog.text
        assert list(node.broker.services.partitions.failed) == [("orders", 0)]
        client = await node.connect()
        refused = await client.produce("orders", batch(b"b"))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.fetch("orders")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await client.values("orders", partition=1) == [b"a"]
        await delete(client, "orders")
        await until(lambda: folders(node) == [])
        assert not node.broker.services.partitions.failed


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
        node.broker.services.partitions.disk_failed("broken")
        assert len(node.broker.services.partitions) == 0
        assert node.broker.services.partitions.failed == {("orders", 0): "broken", ("orders", 1): "broken"}
        assert node.broker.services.partitions.get("orders", 1) == ErrorCode.KAFKA_STORAGE_ERROR
        assert node.broker.services.partitions.get("orders", 2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


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
            @property
            def deadline(self) -> float:
                return math.inf

            def appended(self, base_offset: int, log_start: int) -> None:
                raise AssertionError("it was not appended")

            def refused(self, code: ErrorCode, message: str, base_offset: int = -1) -> None:
                outcomes.append(code)

        [(header, view)] = split(batch(b"late"))
        partition.append(header, view, wait_for_all=False, waiter=Waiter(), now_ms=0)
        change = node.broker.services.image.apply_all([TopicDeleted(created.topic_id)])
        list(node.broker.services.partitions.image_changed(change))
        await turns()
        assert folders(node) == []
        assert outcomes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


class Unheard:
    """Whoever produced, and does not listen."""

    @property
    def deadline(self) -> float:
        return math.inf

    def appended(self, base_offset: int, log_start: int) -> None: ...

    def refused(self, code: ErrorCode, message: str, base_offset: int = -1) -> None:
        raise AssertionError(message)


def bring(node: Node, records: bytearray) -> None:
    """As a handler does with a batch."""
    [(header, view)] = split(records)
    node.partition("orders").append(header, view, wait_for_all=False, waiter=Unheard(), now_ms=0)


def end(node: Node) -> int:
    return node.partition("orders").log.end_offset


@in_loop
async def test_records_of_connections_that_come_together_share_a_write(tmp_path: Path) -> None:
    files = CountingFiles()
    async with running(files=files, folder=str(tmp_path)) as node:
        await (await node.connect()).create_topic("orders")
        for round in range(3):
            files.writes.clear()
            node.broker.services.turn.hold(views_stay=False)
            for _ in range(5):
                bring(node, batch(b"x"))
            assert end(node) == 5 * round
            node.broker.services.turn.settle()
            assert end(node) == 5 * round + 5
            assert max(files.writes) == 5 * len(batch(b"x"))


@in_loop
async def test_records_that_no_connection_brought_are_written_at_the_end_of_the_turn() -> None:
    async with running() as node:
        await (await node.connect()).create_topic("orders")
        bring(node, batch(b"of a coordinator"))
        assert end(node) == 0
        await until(lambda: end(node) == 1)


@in_loop
async def test_a_partition_that_breaks_does_not_silence_the_others_of_its_turn() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("bad")
        await client.create_topic("good")

        def fault(now_ms: int) -> None:
            raise RuntimeError("a fault of ours")

        with pytest.MonkeyPatch.context() as broken:
            broken.setattr(node.partition("bad"), "write_staged", fault)
            client.send_together(
                (produce_request("bad", batch(b"a"), acks=1), 12),
                (produce_request("good", batch(b"b"), acks=1), 12),
                (produce_request("good", batch(b"c"), acks=-1), 12),
            )
            codes = [produced(await client.reply()).error_code for _ in range(3)]
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE, ErrorCode.NONE]


@in_loop
async def test_a_partition_that_breaks_when_it_is_flushed_does_not_keep_others_from_it() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("bad")
        await client.create_topic("good")

        def fault() -> None:
            raise RuntimeError("a fault of ours")

        with pytest.MonkeyPatch.context() as broken:
            broken.setattr(node.partition("bad"), "flushed", fault)
            client.send_together((produce_request("bad", batch(b"a")), 12), (produce_request("good", batch(b"b")), 12))
            codes = [produced(await client.reply()).error_code for _ in range(2)]
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]


# Following the image, partition by partition


class Producer:
    def __init__(self) -> None:
        self.outcomes: list[int | ErrorCode] = []

    @property
    def deadline(self) -> float:
        return math.inf

    def appended(self, base_offset: int, log_start: int) -> None:
        self.outcomes.append(base_offset)

    def refused(self, code: ErrorCode, message: str, base_offset: int = -1) -> None:
        self.outcomes.append(code)


def send(partition: Partition, value: bytes, *, wait_for_all: bool = False) -> Producer:
    [(header, view)] = split(batch(value))
    producer = Producer()
    partition.append(header, view, wait_for_all=wait_for_all, waiter=producer, now_ms=0)
    return producer


async def follow(node: Node, *records: Record) -> None:
    """As if the controller had decided this."""
    await node.broker._image_changed(node.broker.services.image.apply_all(records))


async def give(node: Node, topic: str, leader: int, index: int = 0) -> None:
    """Give a partition to a leader, in a new epoch; it stays a replica here."""
    image = node.broker.services.image.topics[topic]
    old = image.partitions[index]
    replicas = old.replicas if leader in (*old.replicas, -1) else (*old.replicas, leader)
    new = PartitionImage(index, replicas, (leader,), (), leader, old.leader_epoch + 1, old.partition_epoch + 1)
    await follow(node, PartitionsChanged(image.topic_id, (new,)))


@in_loop
async def test_a_partition_that_resigns_refuses_those_that_wait_and_leads_again_with_all_it_had() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        partition = node.partition("orders")
        reader = await node.connect()
        reader.send(fetch_request("orders", 1, max_wait_ms=60_000), 12)
        await until(lambda: partition.fetch_waiters)
        files.gate.clear()
        confirmed, unconfirmed = send(partition, b"b", wait_for_all=True), send(partition, b"c")
        await give(node, "orders", -1)
        assert (confirmed.outcomes, unconfirmed.outcomes) == ([ErrorCode.NOT_LEADER_OR_FOLLOWER], [2])
        assert fetched(await reader.reply()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert node.broker.services.partitions.get("orders", 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert send(partition, b"d").outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert node.broker.services.partitions.replicas() == [partition]
        files.gate.set()
        assert (await client.produce("orders", batch(b"e"))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await give(node, "orders", node.broker.node_id)
        assert node.partition("orders") is partition
        assert (await client.produce("orders", batch(b"f"))).base_offset == 3
        assert await client.values("orders") == [b"a", b"b", b"c", b"f"]
        assert partition.log.epochs.entries == ((0, 0), (2, 3))


@pytest.mark.parametrize("partitions", [[0], [0, 1]], ids=["one partition", "two partitions"])
def test_a_producer_whose_leader_resigns_learns_where_its_batch_was_written(partitions: list[int]) -> None:
    """A replica that has the batch may lead, and commit it: the producer must not take it for refused."""

    @in_loop
    async def run() -> None:
        files = GatedFiles()
        async with running(files=files) as node:
            client = await node.connect()
            await client.create_topic("orders", 2)
            for index in partitions:
                await client.produce("orders", batch(b"a"), partition=index)
            files.gate.clear()
            data = [PartitionProduceData(index=index, records=batch(b"b")) for index in partitions]
            topics = [TopicProduceData(name="orders", partition_data=data)]
            client.send(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics), 9)
            asked = [node.partition("orders", index) for index in partitions]
            await until(lambda: all(partition.has_waiters for partition in asked))
            for index in partitions:
                await give(node, "orders", -1, index)
            [topic] = (await client.reply()).responses
            told = [(one.error_code, one.base_offset) for one in topic.partition_responses]
            assert told == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)] * len(partitions)
            files.gate.set()

    run()


@in_loop
async def test_producers_are_known_to_a_partition_that_leads_again() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        first = build([NewRecord(b"a")], producer_id=7, producer_epoch=0, base_sequence=0)
        assert (await client.produce("orders", first)).base_offset == 0
        await give(node, "orders", -1)
        await give(node, "orders", node.broker.node_id)
        again = await client.produce("orders", first)
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)


@in_loop
async def test_a_new_epoch_of_the_same_leader_ends_the_waits_of_the_old_one() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        await (await node.connect()).create_topic("orders")
        partition = node.partition("orders")
        files.gate.clear()
        producer = send(partition, b"a", wait_for_all=True)
        await give(node, "orders", node.broker.node_id)
        assert producer.outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert (partition.is_led, partition.leader_epoch) == (True, 1)
        files.gate.set()


@in_loop
async def test_a_change_of_one_partition_looks_at_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as node:
        await (await node.connect()).create_topic("orders", 100)
        partitions, looked_at = node.broker.services.partitions, []
        take_part = partitions._take_part

        def counted(key: tuple[str, int], partition: Partition, image: PartitionImage, min_isr: int | None) -> None:
            looked_at.append(key)
            take_part(key, partition, image, min_isr)

        monkeypatch.setattr(partitions, "_take_part", counted)
        monkeypatch.setattr(partitions, "_settings_of", lambda topic: pytest.fail("nothing was configured"))
        await give(node, "orders", -1, index=42)
        assert looked_at == [("orders", 42)]
        assert len(partitions) == 99


@in_loop
async def test_configs_of_a_topic_and_of_all_reach_the_partitions_led_or_not() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 2)
        await client.create_topic("payments")
        await give(node, "orders", -1)
        await follow(node, ConfigChanged("topic", "orders", {"max.message.bytes": "2000"}))
        replicas = node.broker.services.partitions.replicas()
        sizes = {partition.name: partition.settings.max_message_bytes for partition in replicas}
        assert (sizes["orders-0"], sizes["orders-1"]) == (2000, 2000)
        assert sizes["payments-0"] != 2000
        await follow(node, ConfigChanged("cluster", "", {"message.max.bytes": "3000"}))
        sizes = {partition.name: partition.settings.max_message_bytes for partition in replicas}
        assert sizes == {"orders-0": 2000, "orders-1": 2000, "payments-0": 3000}


@in_loop
async def test_a_topic_deleted_and_created_again_in_one_step_begins_empty() -> None:
    async with running() as node:
        client = await node.connect()
        created = await client.create_topic("orders", 2)
        await client.produce("orders", batch(b"old"))
        old, me = node.partition("orders"), node.broker.node_id
        again = bytes(15) + b"2"
        await follow(
            node,
            TopicDeleted(created.topic_id),
            TopicCreated(again, "orders", {}),
            PartitionsCreated(again, 0, ((me,),)),
        )
        assert node.partition("orders") is not old
        assert (old.is_led, len(node.broker.services.partitions.replicas())) == (False, 1)
        assert await client.values("orders") == []
        assert (await client.produce("orders", batch(b"new"))).base_offset == 0


@in_loop
async def test_a_partition_whose_log_did_not_open_is_tried_again_in_its_next_epoch() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        await node.stop()
        node.memory.flip_bit(f"{LOGS}/orders-0/identity", 20, 3)
        await node.start()
        client = await node.connect()
        image = node.broker.services.image.topics["orders"]
        node.memory.flip_bit(f"{LOGS}/orders-0/identity", 20, 3)
        isr_alone = msgspec.structs.replace(image.partitions[0], partition_epoch=1)
        await follow(node, PartitionsChanged(image.topic_id, (isr_alone,)))
        assert (await client.fetch("orders")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await give(node, "orders", node.broker.node_id)
        assert not node.broker.services.partitions.failed
        assert await client.values("orders") == [b"a"]


@in_loop
async def test_before_the_cluster_knows_this_broker_logs_are_open_and_none_is_led() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        services = node.broker.services
        partitions = services.partitions
        fresh = Partitions(
            node.broker.node_id,
            node.broker.directory,
            services.image,
            partitions._settings_of,
            services.now_ms,
            turn=services.turn,
        )
        assert list(fresh.recover(services.image)) == [None]
        assert fresh.get("orders", 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        [partition] = fresh.replicas()
        assert (partition.is_led, partition.high_watermark) == (False, 1)
        assert list(fresh.lead_all()) == [None]
        assert fresh.get("orders", 0) is partition


@in_loop
async def test_out_of_contact_only_what_waits_for_all_is_taken() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        node.broker.services.partitions.refuse_unconfirmed(True)
        client.send(produce_request("orders", batch(b"a"), acks=1), 12)
        refused = produced(await client.reply())
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert "out of contact" in (refused.error_message or "")
        assert (await client.produce("orders", batch(b"b"))).base_offset == 0
        await client.create_topic("payments")
        assert not node.partition("payments").takes_unconfirmed
        node.broker.services.partitions.refuse_unconfirmed(False)
        client.send(produce_request("orders", batch(b"c"), acks=1), 12)
        assert produced(await client.reply()).base_offset == 1


async def import_into(nodes: list[Node], *, export: Export) -> None:
    """Stop all, and start with a store that was lost and has this export."""
    for node in nodes:
        await node.stop()
    shared = SharedMetadata()
    snapshot = imported_snapshot(export.image, now_ms=0)
    founding = Founding(export.cluster_id, b"s" * 32, founding_entry(), snapshot)
    await MemoryStore(shared).found(founding)
    for node in nodes:
        node.shared = shared
        await node.start()


async def exported(node: Node) -> Export:
    store = MemoryStore(node.shared)
    await store.open()
    try:
        return await read_export(store, now_ms=0)
    finally:
        await store.close()


@in_loop
async def test_an_imported_partition_is_led_by_the_report_of_its_log_with_all_it_has() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 2)
        export = await exported(node)
        await client.produce("orders", batch(b"a"))
        await client.produce("orders", batch(b"b"))
        await import_into([node], export=export)
        await until(lambda: len(node.broker.services.partitions) == 2)
        assert await (await node.connect()).values("orders") == [b"a", b"b"]
        assert [node.partition("orders", index).leader_epoch for index in range(2)] == [LEADER_EPOCH_STEP] * 2


@in_loop
async def test_logs_that_an_older_export_does_not_know_are_kept_and_named(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as node:
        client = await node.connect()
        export = await exported(node)
        await client.create_topic("orders", 2)
        await client.produce("orders", batch(b"a"), partition=1)
        with caplog.at_level(logging.WARNING):
            await import_into([node], export=export)
        assert node.broker.services.partitions.unknown() == ["orders-1"]
        assert folders(node) == ["orders-1"]
        [named] = [record for record in caplog.records if "does not know as this broker's" in record.message]
        assert (named.__dict__["logs"], named.__dict__["partitions"]) == (1, "orders-1")


@in_loop
async def test_a_log_of_a_later_leader_epoch_than_the_metadata_has_is_not_served() -> None:
    async with running() as node:
        client = await node.connect()
        created = await client.create_topic("orders")
        export = await exported(node)
        await import_into([node], export=export)
        await until(lambda: len(node.broker.services.partitions) == 1)
        await (await node.connect()).produce("orders", batch(b"a"))
        # As if a copy of what ZooKeeper had kept on its disk was restored, and no export imported.
        await node.stop()
        node.shared = SharedMetadata()
        snapshot = founding_snapshot(export.image)
        await MemoryStore(node.shared).found(Founding(export.cluster_id, b"s" * 32, founding_entry(), snapshot))
        await node.start()
        partitions = node.broker.services.partitions
        assert partitions.find_by_id(created.topic_id, 0) == ErrorCode.KAFKA_STORAGE_ERROR
        assert "penstock cluster import" in partitions.failed["orders", 0]
        assert folders(node) == ["orders-0"]


@in_loop
async def test_a_log_from_before_its_partition_was_made_again_is_kept_aside() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        export = await exported(node)
        more = CreatePartitionsTopic(name="orders", count=2, assignments=None)
        added = CreatePartitionsRequest(topics=[more], timeout_ms=1000)
        await client.ask(added, 3)
        assert (await client.produce("orders", batch(b"a"), partition=1)).error_code == ErrorCode.NONE
        await import_into([node], export=export)
        await until(lambda: len(node.broker.services.partitions) == 1)
        client = await node.connect()
        await client.ask(added, 3)
        assert (await client.produce("orders", batch(b"b"), partition=1)).base_offset == 0
        assert sorted(folders(node)) == ["orders-1", "orders-1.0-stray"]
