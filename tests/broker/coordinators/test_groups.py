"""Which groups a broker coordinates, the topic that they are kept in, and the timer for all of them."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.broker.cluster import replicator
from penstock.broker.coordinators import coordinator
from penstock.broker.coordinators.coordinator import State
from penstock.broker.coordinators.groups import GroupCoordinators
from penstock.machines.cluster_records import PartitionImage, PartitionsChanged
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
from tests.broker.copies import Copies, copying
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
from tests.broker.members import (
    AT_ONCE,
    SESSION_MS,
    Member,
    commit,
    commit_request,
    committed,
    lone_member,
    with_groups,
)

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
        topic = node.broker.services.image.topics[OFFSETS_TOPIC]
        assert len(topic.partitions) == 4
        assert topic.partitions[0].replicas == (node.broker.node_id,)
        assert topic.configs == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(2 << 20),
        }
        assert active(node.broker.services.groups) == 4


@in_loop
async def test_segments_may_be_smaller_than_a_topic_of_a_client_may_have_them() -> None:
    async with running({"offsets.topic.segment.bytes": "4096"}) as node:
        client = await with_groups(node)
        assert node.partition(OFFSETS_TOPIC).log.config.segment_bytes == 4096
        await client.create_topic("t", 100)
        for number in range(3):
            await commit(client, "g", {("t", partition): number for partition in range(100)})
        await node.restart()
        await until(lambda: not node.broker.services.groups.is_loading)
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
        assert len(node.broker.services.image.topics[OFFSETS_TOPIC].partitions) == PARTITIONS


@in_loop
async def test_it_is_made_by_nobody_but_the_broker() -> None:
    async with running() as node:
        client = await node.connect()
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=OFFSETS_TOPIC)], allow_auto_topic_creation=True)
        [topic] = (await client.ask(asked, 12)).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        [result] = (await client.ask(create_topics(OFFSETS_TOPIC), 7)).topics
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert not node.broker.services.image.topics


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
        await until(lambda: not node.broker.services.groups.is_loading)
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
        for shard in node.broker.services.groups.shards():
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
            await until(lambda: active(node.broker.services.groups) == PARTITIONS)
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
        assert node.broker.services.groups.is_loading
        await node.broker.services.controlling.change(lambda controller: controller.delete_topic("t"))
        assert node.broker.services.groups.is_loading
        await until(lambda: not node.broker.services.groups.is_loading)
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
            assert node.broker.services.groups.is_loading
        await until(lambda: not node.broker.services.groups.is_loading)
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
            node.broker.services.groups.clock_moved()
        files.gate.set()
        await other.reply()
        node.broker.services.groups.clock_moved()
        await turns()
        assert await member.heartbeat() == ErrorCode.NONE


@in_loop
async def test_when_the_broker_itself_was_held_up_members_do_not_pay_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    async with running(AT_ONCE, clock=clock) as node:
        member = await lone_member(node)
        groups = node.broker.services.groups
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
        groups = node.broker.services.groups
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
        told = node.broker.services.groups.committed_offset("g", "t", 0)
        assert told is not None
        assert told.offset == 7
        assert node.broker.services.groups.committed_offset("g", "t", 1) is None
        assert node.broker.services.groups.committed_offset("another", "t", 0) is None


@in_loop
async def test_a_stop_ends_the_timer() -> None:
    async with running(AT_ONCE) as node:
        await lone_member(node)
        groups = node.broker.services.groups
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
async def test_a_coordinator_that_hands_over_says_nothing_that_its_successor_may_know_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with coordinated() as copies:
        await member_of(copies)
        node = copies.nodes[copies.leader()]
        client, broker = await node.connect(), node.broker
        asks, may_go, relieve = asyncio.Event(), asyncio.Event(), broker._ask_to_be_relieved

        async def ask_later() -> None:
            asks.set()
            await may_go.wait()
            await relieve()

        monkeypatch.setattr(broker, "_ask_to_be_relieved", ask_later)
        stopping = asyncio.ensure_future(broker.stop())
        await asks.wait()
        with pytest.raises(AssertionError, match="NOT_COORDINATOR"):
            await committed(client, GROUP)
        may_go.set()
        await stopping
        node._broker = None
        await node.stop()


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


@in_loop
async def test_groups_go_with_their_partition_and_come_back_with_all_they_had() -> None:
    async with running() as node:
        client = await with_groups(node)
        await client.create_topic("orders")
        assert await commit(client, "readers", {("orders", 0): 5}) == {ErrorCode.NONE}
        image = node.broker.services.image
        topic = image.topics[OFFSETS_TOPIC]
        index = partition_for("readers", len(topic.partitions))
        for leader in (-1, node.broker.node_id):
            old = topic.partitions[index]
            new = PartitionImage(
                index, old.replicas, old.isr, (), leader, old.leader_epoch + 1, old.partition_epoch + 1
            )
            await node.broker._image_changed(image.apply_all([PartitionsChanged(topic.topic_id, (new,))]))
            assert node.broker.services.groups.leader_of("readers") == leader
            if leader < 0:
                assert await commit(client, "readers", {("orders", 0): 6}) == {ErrorCode.NOT_COORDINATOR}
        await until(lambda: not node.broker.services.groups.is_loading)
        assert await committed(client, "readers", {"orders": [0]}) == {("orders", 0): 5}
        assert await commit(client, "readers", {("orders", 0): 6}) == {ErrorCode.NONE}


# With replicas


GROUP = "g"
REPLICATED = {**AT_ONCE, "offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "3"}
MEANWHILE = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
"""What clients hear while a group has no coordinator, and try again."""


@asynccontextmanager
async def coordinated(configs: dict[str, str] | None = None) -> AsyncIterator[Copies]:
    """Three brokers with a copy each of all groups. The copies are those of `__consumer_offsets`."""
    async with copying(configs=REPLICATED | (configs or {}), session_seconds=0.5, topic=OFFSETS_TOPIC) as copies:
        client = await with_groups(copies.nodes[0])
        await client.create_topic("orders")
        await copies.until_led()
        await until(copies.follow)
        await until(lambda: is_active(copies))
        yield copies


def is_active(copies: Copies) -> bool:
    return active(copies.nodes[copies.leader()].broker.services.groups) == 1


async def member_of(copies: Copies) -> Member:
    """The only member of a stable group, which has committed 5."""
    member = await lone_member(copies.nodes[copies.leader()], GROUP)
    assert await member.commit("orders", 5) == ErrorCode.NONE
    return member


async def heartbeats(member: Member, copies: Copies) -> set[ErrorCode]:
    """What the member hears from the coordinator that there is now, until that has loaded its groups. (While it loads,
    heartbeats are well, as in Kafka.)"""
    member.client, codes = await copies.client(), set()
    is_loaded = False
    while not is_loaded:
        is_loaded = is_active(copies)
        codes.add(await member.heartbeat())
        await turns()
    return codes


@in_loop
async def test_members_keep_their_generation_and_offsets_when_their_coordinator_is_killed() -> None:
    async with coordinated() as copies:
        member = await member_of(copies)
        generation = member.generation
        for offset in (6, 7):
            killed = copies.leader()
            await copies.nodes[killed].kill()
            assert await copies.elect_another() == killed
            assert await heartbeats(member, copies) <= MEANWHILE | {ErrorCode.NONE}
            assert await committed(member.client, GROUP, {"orders": [0]}) == {("orders", 0): offset - 1}
            assert await member.commit("orders", offset) == ErrorCode.NONE
            await copies.start(killed)
            await until(lambda: len(copies.image().isr) == 3)
        assert member.generation == generation
        assert await member.heartbeat() == ErrorCode.NONE


@in_loop
async def test_a_new_coordinator_answers_nothing_before_it_knows_that_all_it_has_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with coordinated() as copies:
        member = await member_of(copies)
        # Followers hear late that something is committed.
        monkeypatch.setattr(replicator, "WAIT_MS", 60_000)
        assert await member.commit("orders", 6) == ErrorCode.NONE
        assert await member.commit("orders", 7) == ErrorCode.NONE
        one, other = copies.followers()
        assert copies.replica(one).high_watermark < copies.replica(one).log.end_offset
        copies.cut(one, [other])
        await copies.nodes[copies.leader()].kill()
        await copies.elect_another()
        assert not copies.led().leader.is_settled
        member.client = await copies.client()
        for _ in range(3):
            with pytest.raises(AssertionError, match="COORDINATOR_LOAD_IN_PROGRESS"):
                await committed(member.client, GROUP, {"orders": [0]})
            assert await member.commit("orders", 8) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            await turns()
        assert copies.led().log.end_offset == copies.replica(one).log.end_offset
        copies.mend()
        await heartbeats(member, copies)
        assert await committed(member.client, GROUP, {"orders": [0]}) == {("orders", 0): 7}


@in_loop
async def test_a_commit_is_answered_when_all_in_sync_replicas_have_it() -> None:
    async with coordinated() as copies:
        member = await member_of(copies)
        files = copies.nodes[copies.followers()[0]].files
        assert isinstance(files, GatedFiles)
        files.gate.clear()
        answer = asyncio.create_task(member.commit("orders", 6))
        end = copies.led().log.end_offset
        await until(lambda: files.waiting and copies.led().log.flushed_offset > end)
        await turns()
        assert not answer.done()
        files.gate.set()
        assert await answer == ErrorCode.NONE
        assert {replica.log.flushed_offset for replica in copies.replicas()} == {copies.led().log.end_offset}


@in_loop
async def test_with_too_few_replicas_no_commit_is_taken_and_members_stay() -> None:
    async with coordinated() as copies:
        member = await member_of(copies)
        away = copies.followers()
        for number in away:
            await copies.nodes[number].stop()
        await until(lambda: not copies.led().takes_all)
        end = copies.led().log.end_offset
        assert await member.commit("orders", 6) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert copies.led().log.end_offset == end
        assert await member.heartbeat() == ErrorCode.NONE
        assert await committed(member.client, GROUP, {"orders": [0]}) == {("orders", 0): 5}
        for number in away:
            await copies.start(number)
        await until(lambda: copies.led().takes_all)
        assert await member.heartbeat() == ErrorCode.NONE
        assert await member.commit("orders", 6) == ErrorCode.NONE


@in_loop
async def test_a_commit_under_way_when_replicas_leave_is_not_acknowledged_and_is_there_if_they_come_back_with_it() -> (
    None
):
    configs = {"replica.lag.time.max.ms": "600", "offsets.commit.timeout.ms": "300"}
    async with coordinated(configs) as copies:
        member = await member_of(copies)
        copies.cut(copies.leader(), copies.followers())
        assert await member.commit("orders", 6) in MEANWHILE
        await until(lambda: not copies.led().takes_all)
        # The members are heard, and told nothing that is not committed.
        assert is_active(copies)
        assert await member.heartbeat() == ErrorCode.NONE
        assert await member.commit("orders", 7) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        asking = asyncio.create_task(committed(await copies.client(), GROUP, {"orders": [0]}))
        await turns(50)
        assert not asking.done()
        copies.mend()
        assert await asking == {("orders", 0): 6}
        assert await member.heartbeat() == ErrorCode.NONE


@in_loop
async def test_a_coordinator_that_is_cut_off_acknowledges_no_commit_and_its_successor_knows_none_of_it() -> None:
    async with coordinated() as copies:
        member = await member_of(copies)
        old, zombie = copies.leader(), member.client
        copies.cut(old, copies.followers())
        copies.nodes[old].store.cut()
        lost = asyncio.create_task(member.commit("orders", 100))
        await until(lambda: copies.replica(old).log.end_offset > copies.replica(old).high_watermark)
        await copies.elect_another()
        assert copies.replica(old).is_led
        assert await heartbeats(member, copies) <= MEANWHILE | {ErrorCode.NONE}
        assert await committed(member.client, GROUP, {"orders": [0]}) == {("orders", 0): 5}
        assert await member.commit("orders", 6) == ErrorCode.NONE
        # Whatever it is asked, and however often, it confirms nothing.
        second = await copies.client(old)
        again = asyncio.create_task(commit(second, GROUP, {("orders", 0): 101}))
        await turns(50)
        assert not lost.done()
        assert not again.done()
        copies.nodes[old].store.mend()
        copies.mend()
        assert await lost in MEANWHILE
        assert await again <= MEANWHILE | {ErrorCode.UNKNOWN_MEMBER_ID}
        await copies.until_equal()
        assert await committed(await copies.client(), GROUP, {"orders": [0]}) == {("orders", 0): 6}
        zombie.close()
