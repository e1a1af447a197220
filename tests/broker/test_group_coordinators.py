"""Which groups a broker coordinates, the topic that they are kept in, and the timer for all of them."""

import asyncio
import errno

import pytest

from penstock.broker import coordinator
from penstock.broker.coordinator import State
from penstock.broker.group_coordinators import GroupCoordinators
from penstock.machines.groups.records import OffsetCommitted, decode
from penstock.machines.groups.sharding import OFFSETS_TOPIC, partition_for
from penstock.protocol.batch import split
from penstock.protocol.compression import Codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import iterate
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.schemas.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.harness import (
    Client,
    FakeClock,
    GatedFiles,
    batch,
    create_topics,
    in_loop,
    records_of,
    running,
    turns,
    until,
)
from tests.broker.members import AT_ONCE, SESSION_MS, commit, commit_request, committed, lone_member, with_groups

PARTITIONS = 50
LATE_SECONDS = 1.5


def active(groups: GroupCoordinators) -> int:
    return sum(shard.state is State.ACTIVE for shard in groups.shards())


async def held(client: Client, group: str, partitions: int = PARTITIONS) -> list[object]:
    """What the topic holds of a group, as any consumer can read it."""
    data = await client.fetch(OFFSETS_TOPIC, partition=partition_for(group, partitions))
    assert data.error_code == ErrorCode.NONE
    return [decode(record.key, record.value) for record in records_of(data)]


# The topic


@in_loop
async def test_the_topic_is_made_as_the_configs_say() -> None:
    configs = {"offsets.topic.num.partitions": "4", "offsets.topic.segment.bytes": str(2 << 20)}
    async with running(configs) as node:
        await with_groups(node)
        topic = node.broker.image.topics[OFFSETS_TOPIC]
        assert len(topic.partitions) == 4
        assert topic.partitions[0].replicas == (node.broker.node_id,)
        assert topic.configs == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(2 << 20),
        }
        assert active(node.broker.groups) == 4


@in_loop
async def test_segments_may_be_smaller_than_a_topic_of_a_client_may_have_them() -> None:
    async with running({"offsets.topic.segment.bytes": "4096"}) as node:
        client = await with_groups(node)
        assert node.partition(OFFSETS_TOPIC).log.config.segment_bytes == 4096
        await client.create_topic("t", 100)
        for number in range(3):
            await commit(client, "g", {("t", partition): number for partition in range(100)})
        await node.restart()
        await until(lambda: not node.broker.groups.is_loading)
        assert set((await committed(await node.connect(), "g")).values()) == {2}


@in_loop
async def test_it_is_internal_readable_and_neither_written_nor_changed_by_clients() -> None:
    async with running() as node:
        client = await with_groups(node)
        await client.create_topic("t")
        await commit(client, "g", {("t", 0): 5})
        [offset] = await held(client, "g")
        assert isinstance(offset, OffsetCommitted)
        assert (offset.group, offset.topic, offset.partition, offset.offset) == ("g", "t", 0, 5)

        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in (OFFSETS_TOPIC, "t")])
        assert [topic.is_internal for topic in (await client.ask(asked, 12)).topics] == [True, False]

        for version, acks in [(9, 1), (12, -1)]:
            refused = await client.produce(OFFSETS_TOPIC, batch(b"forged"), version=version, acks=acks)
            assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert "internal" in (refused.error_message or "internal")

        topic_id = await client.topic_id(OFFSETS_TOPIC)
        by_name = await client.ask(DeleteTopicsRequest(topic_names=[OFFSETS_TOPIC]), 5)
        assert by_name.responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        by_id = await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)]), 6)
        assert by_id.responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=OFFSETS_TOPIC, count=60, assignments=None)])
        assert (await client.ask(more, 3)).results[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert len(node.broker.image.topics[OFFSETS_TOPIC].partitions) == PARTITIONS


@in_loop
async def test_it_is_made_by_nobody_but_the_broker() -> None:
    async with running() as node:
        client = await node.connect()
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=OFFSETS_TOPIC)], allow_auto_topic_creation=True)
        [topic] = (await client.ask(asked, 12)).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        [result] = (await client.ask(create_topics(OFFSETS_TOPIC), 7)).topics
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert not node.broker.image.topics


@in_loop
async def test_its_records_can_be_compressed() -> None:
    async with running({"offsets.topic.compression.codec": "1"}) as node:
        client = await with_groups(node)
        await client.create_topic("t", 50)
        await commit(client, "g", {("t", partition): 1 for partition in range(50)})
        data = await client.fetch(OFFSETS_TOPIC, partition=partition_for("g", PARTITIONS))
        assert isinstance(data.records, memoryview)
        [(header, view)] = split(data.records)
        assert header.codec is Codec.GZIP
        assert len(list(iterate(view))) == 50
        await node.crash()
        await until(lambda: not node.broker.groups.is_loading)
        assert len(await committed(await node.connect(), "g")) == 50


# Following


@in_loop
async def test_every_group_is_on_the_partition_that_its_name_gives() -> None:
    async with running() as node:
        client = await with_groups(node)
        await client.create_topic("t")
        for number in range(20):
            await commit(client, f"g{number}", {("t", 0): number})
            assert len(await held(client, f"g{number}")) >= 1
        for shard in node.broker.groups.shards():
            assert shard.machine is not None
            for group in shard.machine.groups():
                assert partition_for(group.group_id, PARTITIONS) == shard.partition.index


@in_loop
async def test_a_broker_that_starts_loads_what_it_leads() -> None:
    async with running() as node:
        client = await with_groups(node)
        await client.create_topic("t")
        groups = [f"g{number}" for number in range(100)]
        for number, group in enumerate(groups):
            await commit(client, group, {("t", 0): number})
        for stop in (node.restart, node.crash):
            await stop()
            client = await node.connect()
            await until(lambda: active(node.broker.groups) == PARTITIONS)
            for number, group in enumerate(groups):
                assert await committed(client, group) == {("t", 0): number}


@in_loop
async def test_a_topic_deleted_while_a_shard_loads_takes_its_offsets_along_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator, "RECORDS_AT_ONCE", 1)
    async with running({"offsets.topic.num.partitions": "1"}) as node:
        client = await with_groups(node)
        await client.create_topic("t", 500)
        await client.create_topic("u")
        await commit(client, "g", {("t", partition): 1 for partition in range(500)})
        await commit(client, "g", {("u", 0): 1})
        await node.restart()
        assert node.broker.groups.is_loading
        await node.broker.cluster.change(lambda controller: controller.delete_topic("t"))
        assert node.broker.groups.is_loading
        await until(lambda: not node.broker.groups.is_loading)
        assert await committed(await node.connect(), "g") == {("u", 0): 1}


@in_loop
async def test_a_stop_while_loading_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "RECORDS_AT_ONCE", 1)
    async with running({"offsets.topic.num.partitions": "1"}) as node:
        client = await with_groups(node)
        await client.create_topic("t", 1000)
        await commit(client, "g", {("t", partition): 1 for partition in range(1000)})
        for _ in range(3):
            await node.restart()
            assert node.broker.groups.is_loading
        await until(lambda: not node.broker.groups.is_loading)
        assert len(await committed(await node.connect(), "g")) == 1000


# Time


@in_loop
async def test_while_the_disk_is_stalled_for_a_minute_no_member_is_lost() -> None:
    clock, files = FakeClock(), GatedFiles()
    async with running({**AT_ONCE, "offsets.topic.num.partitions": "1"}, clock=clock, files=files) as node:
        member = await lone_member(node)
        await member.client.create_topic("t")
        files.gate.clear()
        other = await node.connect()
        other.send(commit_request("other", {("t", 0): 1}), 9)
        await until(lambda: files.waiting)
        for _ in range(60):
            clock.advance(1_000)
            node.broker.groups.clock_moved()
        files.gate.set()
        await other.reply()
        node.broker.groups.clock_moved()
        await turns()
        assert await member.heartbeat() == ErrorCode.NONE


@in_loop
async def test_when_the_broker_itself_was_held_up_members_do_not_pay_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    async with running(AT_ONCE, clock=clock) as node:
        member = await lone_member(node)
        groups = node.broker.groups
        clock.advance(SESSION_MS)
        loop = asyncio.get_running_loop()
        assert groups._timer is not None
        # The timer's time has come long ago, and the loop gets round to it only now.
        late = groups._timer.when() + LATE_SECONDS
        with monkeypatch.context() as patch:
            patch.setattr(loop, "time", lambda: late)
            groups._fired()
        assert await member.heartbeat() == ErrorCode.NONE


@in_loop
async def test_whoever_moves_the_clock_on_purpose_is_not_taken_for_a_broker_that_was_held_up() -> None:
    clock = FakeClock()
    async with running(AT_ONCE, clock=clock) as node:
        member = await lone_member(node)
        groups = node.broker.groups
        await until(lambda: not any(shard.uncommitted for shard in groups.shards()))
        assert groups.next_deadline() is not None
        stale = groups._timer
        assert stale is not None
        clock.advance(SESSION_MS)
        groups.clock_moved()
        # The loop does not get round to the old timer any more: it would find itself late.
        assert stale.cancelled()
        assert await member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@in_loop
async def test_what_a_group_has_committed_is_known_where_it_is_coordinated() -> None:
    async with running() as node:
        client = await with_groups(node)
        await client.create_topic("t")
        assert await commit(client, "g", {("t", 0): 7}) == {ErrorCode.NONE}
        told = node.broker.groups.committed_offset("g", "t", 0)
        assert told is not None
        assert told.offset == 7
        assert node.broker.groups.committed_offset("g", "t", 1) is None
        assert node.broker.groups.committed_offset("another", "t", 0) is None


@in_loop
async def test_a_stop_ends_the_timer() -> None:
    async with running(AT_ONCE) as node:
        await lone_member(node)
        groups = node.broker.groups
        assert groups._timer is not None
        await node.stop()
        assert groups._timer is None
        assert not list(groups.shards())


@in_loop
async def test_commits_under_way_are_answered_when_the_broker_stops() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await with_groups(node)
        await client.create_topic("t")
        await commit(client, "g", {("t", 0): 1})
        files.gate.clear()
        client.send(commit_request("g", {("t", 0): 2}), 9)
        await until(lambda: files.waiting)
        broker, node._broker = node.broker, None
        stopping = asyncio.ensure_future(broker.stop())
        await turns()
        files.gate.set()
        response = await client.reply()
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        await stopping


@in_loop
async def test_a_failing_disk_leaves_groups_without_a_coordinator_until_an_operator_comes() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await with_groups(node)
        await client.create_topic("t")
        await commit(client, "g", {("t", 0): 1})
        files.failing = OSError(errno.EIO, "input/output error")
        assert await commit(client, "g", {("t", 0): 2}) == {ErrorCode.NOT_COORDINATOR}
        files.failing = None
        assert await commit(client, "g", {("t", 0): 3}) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
