"""Offsets are committed, fetched and deleted over the wire, in every version."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from penstock.protocol.schemas.topics import DeleteTopicsRequest
from tests.broker.harness import FakeClock, GatedFiles, Node, in_loop, running, turns, until
from tests.broker.members import AT_ONCE, commit, commit_request, committed, lone_member, pass_time, with_groups

MANY = 10_000


def delete_request(group: str, *topics: str) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            for name in topics
        ],
    )


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_of_offset_commit_commits(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await with_groups(node)
            topic_id = (await client.create_topic("t", 3)).topic_id
            offsets = {("t", 0): 5, ("t", 2): 7}
            request = commit_request("g", offsets, metadata="here", ids={"t": topic_id} if version >= 10 else None)
            [topic] = (await client.ask(request, version)).topics
            assert (topic.name, topic.topic_id) == (("", topic_id) if version >= 10 else ("t", bytes(16)))
            assert [(item.partition_index, item.error_code) for item in topic.partitions] == [(0, 0), (2, 0)]
            assert await committed(client, "g", {"t": [0, 1, 2]}) == {("t", 0): 5, ("t", 1): -1, ("t", 2): 7}

    run()


@pytest.mark.parametrize("version", range(1, 8))
def test_every_old_version_of_offset_fetch_finds_what_was_committed(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await with_groups(node)
            await client.create_topic("t", 2)
            await client.ask(commit_request("g", {("t", 0): 5}, metadata="here"), 9)
            wanted = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
            response = await client.ask(OffsetFetchRequest(group_id="g", topics=wanted), version)
            assert response.error_code == ErrorCode.NONE
            [topic] = response.topics
            found = [(item.partition_index, item.committed_offset, item.metadata) for item in topic.partitions]
            assert (topic.name, found) == ("t", [(0, 5, "here"), (1, -1, "")])
            if version >= 2:
                response = await client.ask(OffsetFetchRequest(group_id="g", topics=None), version)
                [topic] = response.topics
                assert [item.committed_offset for item in topic.partitions] == [5]

    run()


@pytest.mark.parametrize("version", range(8, 11))
def test_every_new_version_of_offset_fetch_tells_of_many_groups(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await with_groups(node)
            topic_id = (await client.create_topic("t")).topic_id
            groups = [f"g{number}" for number in range(20)]
            for number, group in enumerate(groups):
                await commit(client, group, {("t", 0): number})
            wanted = (
                OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])
                if version >= 10
                else OffsetFetchRequestTopics(name="t", partition_indexes=[0])
            )
            request = OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(group_id=group, topics=[wanted] if number % 2 else None)
                    for number, group in enumerate([*groups, "unheard of"])
                ]
            )
            response = await client.ask(request, version)
            assert [group.group_id for group in response.groups] == [*groups, "unheard of"]
            assert not response.groups[-1].topics
            for number, group in enumerate(response.groups[:-1]):
                [topic] = group.topics
                assert (topic.name, topic.topic_id) == (("", topic_id) if version >= 10 else ("t", bytes(16)))
                assert [item.committed_offset for item in topic.partitions] == [number]

    run()


@in_loop
async def test_a_group_that_nobody_knows_has_no_offsets_and_that_is_no_error() -> None:
    async with running() as node:
        client = await with_groups(node)
        assert await committed(client, "unheard of", {"t": [0, 1]}) == {("t", 0): -1, ("t", 1): -1}


@in_loop
async def test_a_topic_that_does_not_exist_is_refused_and_others_are_committed() -> None:
    async with running() as node:
        client = await with_groups(node)
        await client.create_topic("t")
        response = await client.ask(commit_request("g", {("t", 0): 1, ("gone", 0): 1}), 9)
        codes = {topic.name: topic.partitions[0].error_code for topic in response.topics}
        assert codes == {"t": ErrorCode.NONE, "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert await committed(client, "g") == {("t", 0): 1}
        assert await commit(client, "g", {("gone", 0): 1}) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert not (await client.ask(OffsetCommitRequest(group_id="g"), 9)).topics


@pytest.mark.parametrize("version", range(2, 11))
def test_a_partition_that_does_not_exist_is_refused_and_others_are_committed(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await with_groups(node)
            topic_id = (await client.create_topic("t", 2)).topic_id
            ids = {"t": topic_id} if version >= 10 else None
            places = {("t", index): 1 for index in (-1, 0, 1, 2, 0x7FFF_FFFF)}
            [topic] = (await client.ask(commit_request("g", places, ids=ids), version)).topics
            codes = {partition.partition_index: partition.error_code for partition in topic.partitions}
            missing = dict.fromkeys((-1, 2, 0x7FFF_FFFF), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            assert codes == {0: ErrorCode.NONE, 1: ErrorCode.NONE} | missing
            [topic] = (await client.ask(commit_request("g", {("t", 2): 1}, ids=ids), version)).topics
            assert [partition.error_code for partition in topic.partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            assert await committed(client, "g") == {("t", 0): 1, ("t", 1): 1}

    run()


@in_loop
async def test_a_commit_that_no_batch_holds_is_refused_as_kafka_does() -> None:
    async with running() as node:
        client = await with_groups(node)
        await client.create_topic("t", 2)
        request = commit_request("g", {("t", 0): 1})
        # Few enough to be looked into, too many to be written, and so many that they are not looked into.
        for count in (18_000, 19_000):
            request.topics[0].partitions = [request.topics[0].partitions[0]] * count
            [topic] = (await client.ask(request, 9)).topics
            assert len(topic.partitions) == count
            assert {item.error_code for item in topic.partitions} == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        assert await committed(client, "g") == {}


@in_loop
async def test_an_id_that_is_no_topics_is_refused() -> None:
    async with running() as node:
        client = await with_groups(node)
        topic_id = (await client.create_topic("t")).topic_id
        ids = {"t": topic_id, "gone": b"?" * 16}
        response = await client.ask(commit_request("g", {("t", 0): 1, ("gone", 0): 1}, ids=ids), 10)
        codes = {topic.topic_id: topic.partitions[0].error_code for topic in response.topics}
        assert codes == {topic_id: ErrorCode.NONE, b"?" * 16: ErrorCode.UNKNOWN_TOPIC_ID}
        wanted = [OffsetFetchRequestTopics(topic_id=item, partition_indexes=[0]) for item in ids.values()]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=wanted)])
        [group] = (await client.ask(request, 10)).groups
        found = {
            topic.topic_id: (topic.partitions[0].committed_offset, topic.partitions[0].error_code)
            for topic in group.topics
        }
        assert found == {topic_id: (1, ErrorCode.NONE), b"?" * 16: (-1, ErrorCode.UNKNOWN_TOPIC_ID)}


@in_loop
async def test_without_a_coordinator_each_version_says_so_in_its_way() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("t")
        assert await commit(client, "g", {("t", 0): 1}) == {ErrorCode.NOT_COORDINATOR}
        wanted = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        oldest = await client.ask(OffsetFetchRequest(group_id="g", topics=wanted), 1)
        assert oldest.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        assert oldest.topics[0].partitions[0].committed_offset == -1
        old = await client.ask(OffsetFetchRequest(group_id="g", topics=wanted), 7)
        assert (old.error_code, list(old.topics)) == (ErrorCode.NOT_COORDINATOR, [])
        new = await client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 8)
        assert new.groups[0].error_code == ErrorCode.NOT_COORDINATOR
        assert (await client.ask(delete_request("g", "t"), 0)).error_code == ErrorCode.NOT_COORDINATOR


@in_loop
async def test_members_are_fenced_by_generation_and_by_name() -> None:
    async with running(AT_ONCE) as node:
        member = await lone_member(node)
        await member.client.create_topic("t")
        assert await member.commit("t", 3) == ErrorCode.NONE
        assert await commit(member.client, "g", {("t", 0): 9}) == {ErrorCode.UNKNOWN_MEMBER_ID}
        member.generation -= 1
        assert await member.commit("t", 9) == ErrorCode.ILLEGAL_GENERATION
        member.generation += 1
        member.member_id = "somebody else"
        assert await member.commit("t", 9) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await committed(member.client, "g") == {("t", 0): 3}


@in_loop
async def test_metadata_has_a_limit() -> None:
    async with running({"offset.metadata.max.bytes": "5"}) as node:
        client = await with_groups(node)
        await client.create_topic("t")
        response = await client.ask(commit_request("g", {("t", 0): 1}, metadata="123456"), 9)
        assert response.topics[0].partitions[0].error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE
        response = await client.ask(commit_request("g", {("t", 0): 1}, metadata="12345"), 9)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE


@in_loop
async def test_an_offset_is_told_to_nobody_before_it_is_durable() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await with_groups(node)
        await client.create_topic("t")
        await commit(client, "g", {("t", 0): 1})
        files.gate.clear()
        client.send(commit_request("g", {("t", 0): 2}), 9)
        other = await node.connect()
        await until(lambda: files.waiting)
        other.send(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 9)
        await turns(50)
        assert not other._replies
        files.gate.set()
        await client.reply()
        [group] = (await other.reply()).groups
        assert group.topics[0].partitions[0].committed_offset == 2


@in_loop
async def test_offsets_can_be_deleted() -> None:
    async with running() as node:
        client = await with_groups(node)
        for name in ("t", "u"):
            await client.create_topic(name)
        await commit(client, "g", {("t", 0): 1, ("u", 0): 2})
        response = await client.ask(delete_request("g", "t", "gone"), 0)
        codes = {topic.name: topic.partitions[0].error_code for topic in response.topics}
        assert (response.error_code, codes) == (
            ErrorCode.NONE,
            {"t": ErrorCode.NONE, "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        )
        assert await committed(client, "g") == {("u", 0): 2}
        response = await client.ask(delete_request("nobody", "t", "gone"), 0)
        assert (response.error_code, list(response.topics)) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
        [topic] = (await client.ask(delete_request("nobody", "gone"), 0)).topics
        assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_offsets_of_partitions_that_do_not_exist_cannot_be_deleted() -> None:
    async with running() as node:
        client = await with_groups(node)
        await client.create_topic("t")
        await commit(client, "g", {("t", 0): 1})
        request = delete_request("g", "t", "gone")
        request.topics[0].partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, -1, 1)]
        response = await client.ask(request, 0)
        codes = {
            (topic.name, item.partition_index): item.error_code
            for topic in response.topics
            for item in topic.partitions
        }
        missing = dict.fromkeys([("t", -1), ("t", 1), ("gone", 0)], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert codes == {("t", 0): ErrorCode.NONE} | missing
        assert len(response.topics) == 2
        assert await committed(client, "g") == {}


@in_loop
async def test_a_topic_that_is_deleted_takes_its_offsets_along() -> None:
    async with running() as node:
        client = await with_groups(node)
        for name in ("t", "u"):
            await client.create_topic(name)
        for group in ("g", "h"):
            await commit(client, group, {("t", 0): 1, ("u", 0): 2})
        await client.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
        for group in ("g", "h"):
            assert await committed(client, group) == {("u", 0): 2}
        await client.create_topic("t")
        await node.crash()
        client = await node.connect()
        await until(lambda: not node.broker.services.groups.is_loading)
        assert await committed(client, "g") == {("u", 0): 2}


@in_loop
async def test_offsets_expire_when_nobody_has_used_the_group_for_long() -> None:
    clock = FakeClock()
    async with running({"offsets.retention.minutes": "60"}, clock=clock) as node:
        client = await with_groups(node)
        await client.create_topic("t")
        await commit(client, "g", {("t", 0): 1})
        await pass_time(node, clock, 59 * 60_000)
        assert await committed(client, "g") == {("t", 0): 1}
        await pass_time(node, clock, 11 * 60_000)
        assert await committed(client, "g") == {}


async def commit_many(node: Node) -> None:
    client = await with_groups(node)
    await client.create_topic("t", 100)
    for number in range(MANY // 100):
        codes = await commit(client, f"g{number}", {("t", partition): number for partition in range(100)})
        assert codes == {ErrorCode.NONE}


@in_loop
async def test_nothing_is_answered_before_ten_thousand_offsets_are_loaded() -> None:
    async with running({"offsets.topic.num.partitions": "1"}) as node:
        await commit_many(node)
        await node.crash()
        client = await node.connect()
        seen = set()
        while True:
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g99", topics=None)])
            [group] = (await client.ask(request, 9)).groups
            seen.add(group.error_code)
            if group.error_code == ErrorCode.NONE:
                break
            assert node.broker.services.groups.is_loading or group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert seen == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE}
        for number in range(MANY // 100):
            expected = {("t", partition): number for partition in range(100)}
            assert await committed(client, f"g{number}") == expected


@pytest.mark.parametrize("version", [1, 7, 8, 9])
def test_an_offset_of_another_topic_by_the_same_name_is_not_told(version: int) -> None:
    """The broker died after it deleted the topic, and before it could forget what was committed for it."""

    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await with_groups(node)
            await client.create_topic("t")
            await commit(client, "g", {("t", 0): 5})
            node.broker.services.groups._is_following = False
            await client.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
            await client.create_topic("t")
            node.broker.services.groups._is_following = True
            if version < 8:
                wanted = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
                response = await client.ask(OffsetFetchRequest(group_id="g", topics=wanted), version)
                assert response.topics[0].partitions[0].committed_offset == -1
            else:
                assert await committed(client, "g", {"t": [0]}) == {("t", 0): -1}

    run()


@in_loop
async def test_offsets_that_are_named_twice_are_deleted_once() -> None:
    async with running() as node:
        client = await with_groups(node)
        await client.create_topic("t")
        await commit(client, "g", {("t", 0): 5})
        shard = next(shard for shard in node.broker.services.groups.shards() if shard.partition.log.end_offset)
        before = shard.partition.log.end_offset
        response = await client.ask(delete_request("g", *["t", "none"] * 50), 0)
        assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [("t", 1), ("none", 1)]
        assert shard.partition.log.end_offset == before + 1
