"""OffsetFetch over the wire: what is named twice, what is much, and what has no room."""

import pytest

from penstock.broker.handlers.offset_fetch import PARTITIONS_AT_ONCE
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.broker.harness import Client, in_loop, running
from tests.broker.members import commit, commit_request, with_groups

MIB = 1 << 20


def topic(name: str, *partitions: int) -> OffsetFetchRequestTopics:
    return OffsetFetchRequestTopics(name=name, partition_indexes=partitions)


async def fetch(client: Client, *groups: OffsetFetchRequestGroup) -> list[tuple[str, list[tuple[str, int, int]]]]:
    """Groups, and the offsets of partitions, in the order of the reply."""
    response = await client.ask(OffsetFetchRequest(groups=groups), 9)
    assert not any(group.error_code for group in response.groups)
    return [
        (
            group.group_id,
            [
                (topic.name, partition.partition_index, partition.committed_offset)
                for topic in group.topics
                for partition in topic.partitions
            ],
        )
        for group in response.groups
    ]


@in_loop
async def test_what_is_named_twice_is_told_once() -> None:
    async with running() as node:
        client = await with_groups(node)
        await client.create_topic("t", 3)
        await client.create_topic("u")
        await commit(client, "g", {("t", 0): 5, ("t", 2): 7, ("u", 0): 9})
        asked = [
            OffsetFetchRequestGroup(group_id="g", topics=[topic("t", 0, 0, 1), topic("t", 1)]),
            OffsetFetchRequestGroup(group_id="h", topics=[topic("t", 0)]),
            OffsetFetchRequestGroup(group_id="g", topics=[topic("t", 2), topic("u", 0)]),
        ]
        assert await fetch(client, *asked) == [
            ("g", [("t", 0, 5), ("t", 1, -1), ("t", 2, 7), ("u", 0, 9)]),
            ("h", [("t", 0, -1)]),
        ]
        everything = OffsetFetchRequestGroup(group_id="g", topics=None)
        assert await fetch(client, *[everything] * 50) == [("g", [("t", 0, 5), ("t", 2, 7), ("u", 0, 9)])]
        assert await fetch(client, asked[0], everything) == [("g", [("t", 0, 5), ("t", 2, 7), ("u", 0, 9)])]


@pytest.mark.parametrize("version", [1, 5, 7])
def test_what_is_named_twice_is_told_once_in_old_versions(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await with_groups(node)
            await client.create_topic("t", 2)
            await commit(client, "g", {("t", 1): 5})
            asked = [OffsetFetchRequestTopic(name="t", partition_indexes=[1, 0, 1])] * 2
            [found] = (await client.ask(OffsetFetchRequest(group_id="g", topics=asked), version)).topics
            offsets = [(item.partition_index, item.committed_offset) for item in found.partitions]
            assert offsets == [(1, 5), (0, -1)]

    run()


@in_loop
async def test_ids_that_are_no_topics_are_told_once() -> None:
    async with running() as node:
        client = await with_groups(node)
        unknown = [OffsetFetchRequestTopics(topic_id=b"x" * 16, partition_indexes=[0, 0])] * 2
        groups = [OffsetFetchRequestGroup(group_id="g", topics=unknown)]
        [group] = (await client.ask(OffsetFetchRequest(groups=groups), 10)).groups
        [found] = group.topics
        assert [item.error_code for item in found.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]


@in_loop
async def test_more_offsets_than_are_asked_for_in_one_step_come_whole_and_in_order() -> None:
    async with running() as node:
        client = await with_groups(node)
        count = 2 * PARTITIONS_AT_ONCE + 100
        await client.create_topic("a", count)
        await client.create_topic("b", 5)
        offsets = {("a", number): number + 1 for number in range(count)} | {("b", number): 1 for number in range(5)}
        assert await commit(client, "g", offsets) == {ErrorCode.NONE}
        expected = [(name, partition, offset) for (name, partition), offset in offsets.items()]
        everything = OffsetFetchRequestGroup(group_id="g", topics=None)
        assert await fetch(client, everything) == [("g", expected)]
        named = OffsetFetchRequestGroup(group_id="g", topics=[topic("a", *range(count)), topic("b", *range(5))])
        assert await fetch(client, named) == [("g", expected)]


@in_loop
async def test_groups_that_have_no_room_in_the_reply_are_refused_and_others_are_told() -> None:
    async with running({"penstock.reply.max.bytes": str(MIB)}) as node:
        client = await with_groups(node)
        await client.create_topic("t", 300)
        for part in (range(150), range(150, 300)):
            offsets = {("t", number): 1 for number in part}
            await client.ask(commit_request("large", offsets, metadata="x" * 4096), 9)
        await commit(client, "small", {("t", 0): 1})
        groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("large", "small")]
        large, small = (await client.ask(OffsetFetchRequest(groups=groups), 9)).groups
        assert (large.error_code, len(large.topics)) == (ErrorCode.POLICY_VIOLATION, 0)
        assert (small.error_code, len(small.topics)) == (ErrorCode.NONE, 1)
        old = await client.ask(OffsetFetchRequest(group_id="large", topics=None), 7)
        assert (old.error_code, len(old.topics)) == (ErrorCode.POLICY_VIOLATION, 0)
        asked = [OffsetFetchRequestTopic(name="t", partition_indexes=list(range(300)))]
        [found] = (await client.ask(OffsetFetchRequest(group_id="large", topics=asked), 1)).topics
        assert {item.error_code for item in found.partitions} == {ErrorCode.POLICY_VIOLATION}
