"""Every version of what consumers send is taken quickly, and the replies are those of the ordinary way."""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import pytest

from penstock.broker.partitions.fetch_wait import AT_ONCE
from penstock.protocol.codec import encode
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tests.broker.harness import Client, FakeClock, Node, batch, in_loop, records_of, running, until, values_of
from tests.broker.quick.watched import answer, ask, only_the_ordinary_way, only_the_quick_way

VERSIONS = range(4, 19)
# The versions in which something changes in what is read or written.
GENERATIONS = [4, 5, 7, 9, 11, 12, 13, 15, 18]
FOR_EVER_MS = 600_000
Places = dict[tuple[str, int], int]
ALL: Places = {(topic, index): 0 for topic in ("orders", "payments") for index in range(3)}
SHAPES: dict[str, Places] = {
    "one": {("orders", 1): 0},
    "several": {("orders", 2): 0, ("orders", 0): 0, ("orders", 1): 0},
    "topics": ALL,
}


async def stage(node: Node) -> Client:
    """Partition 1 of each topic has records, and partition 2 two batches of them."""
    client = await node.connect()
    for topic in ("orders", "payments"):
        await client.create_topic(topic, 3)
        await client.produce(topic, batch(b"a"), partition=1)
        for value in (b"b", b"c"):
            await client.produce(topic, batch(value), partition=2)
    return client


def request(
    node: Node, version: int, offsets: Places, *, session: tuple[int, int] = (0, -1), **fields: Any
) -> FetchRequest:
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, index), offset in offsets.items():
        wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics.setdefault(topic, []).append(wanted)
    asked = []
    for topic, partitions in topics.items():
        names: dict[str, Any] = {"topic_id": node.partition(topic).topic_id} if version >= 13 else {"topic": topic}
        asked.append(FetchTopic(**names, partitions=partitions))
    options = {"max_bytes": 1 << 20, "min_bytes": 1, **fields}
    return FetchRequest(topics=asked, session_id=session[0], session_epoch=session[1], **options)


def found(node: Node, response: FetchResponse) -> dict[tuple[str, int], PartitionData]:
    assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code).name
    names = {node.partition(topic).topic_id: topic for topic in ("orders", "payments")}
    return {
        (topic.topic or names[topic.topic_id], data.partition_index): data
        for topic in response.responses
        for data in topic.partitions
    }


def values(node: Node, response: FetchResponse) -> dict[tuple[str, int], list[bytes | None]]:
    return {place: values_of(records_of(data)) for place, data in found(node, response).items()}


# What is taken


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_version_of_every_shape_is_taken_quickly_and_finds_the_records(version: int, shape: str) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await stage(node)
            expected = {0: [], 1: [b"a"], 2: [b"b", b"c"]}
            with only_the_quick_way():
                for isolation in (0, 1, 0):
                    asked = request(node, version, SHAPES[shape], isolation_level=isolation)
                    response = await ask(client, asked, version)
                    assert values(node, response) == {place: expected[place[1]] for place in SHAPES[shape]}
                    for (_, index), data in found(node, response).items():
                        assert (data.high_watermark, data.last_stable_offset) == (index, index)
                        assert data.log_start_offset == (0 if version >= 5 else -1)
                        assert (data.aborted_transactions is None) == (isolation == 0)

    run()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_version_of_every_shape_waits_and_is_answered_quickly(version: int, shape: str) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client, writer = await stage(node), await node.connect()
            ends = {place: place[1] for place in SHAPES[shape]}
            with only_the_quick_way():
                client.send(request(node, version, ends, max_wait_ms=FOR_EVER_MS), version)
                await until(lambda: all(node.partition(*place).fetch_waiters for place in ends))
                await writer.produce("orders", batch(b"new"), partition=1)
                response = await answer(client)
            assert values(node, response) == {place: [b"new"] if place == ("orders", 1) else [] for place in ends}
            assert not any(node.partition(*place).fetch_waiters for place in ends)

    run()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_version_of_every_shape_is_answered_quickly_when_its_time_is_up(version: int, shape: str) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await stage(node)
            ends = {place: place[1] for place in SHAPES[shape]}
            with only_the_quick_way():
                client.send(request(node, version, ends, max_wait_ms=FOR_EVER_MS), version)
                await until(lambda: all(node.partition(*place).fetch_waiters for place in ends))
                node.broker.services.fetch_room.deadlines.expire_all()
                assert values(node, await answer(client)) == {place: [] for place in ends}
                # Without a wait there is nothing either.
                response = await ask(client, request(node, version, ends), version)
                assert values(node, response) == {place: [] for place in ends}

    run()


@pytest.mark.parametrize("version", range(7, 19))
def test_every_version_goes_on_quickly_with_a_session(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client, writer = await stage(node), await node.connect()
            opened = await ask(client, request(node, version, ALL, session=(0, 0)), version)
            number = opened.session_id
            assert number
            assert set(found(node, opened)) == set(ALL)
            with only_the_quick_way():
                # The reader is at the end of every partition: there is nothing new.
                ends = {place: place[1] for place in ALL}
                response = await ask(client, request(node, version, ends, session=(number, 1)), version)
                assert (response.session_id, len(response.responses)) == (number, 0)
                client.send(request(node, version, {}, session=(number, 2), max_wait_ms=FOR_EVER_MS), version)
                await until(lambda: node.partition("payments", 2).fetch_waiters)
                await writer.produce("payments", batch(b"new"), partition=2)
                response = await answer(client)
                assert response.session_id == number
                assert values(node, response) == {("payments", 2): [b"new"]}
                # One partition has moved, and nothing comes for a while.
                moved = request(node, version, {("payments", 2): 3}, session=(number, 3), max_wait_ms=FOR_EVER_MS)
                client.send(moved, version)
                await until(lambda: node.partition("orders").fetch_waiters)
                node.broker.services.fetch_room.deadlines.expire_all()
                response = await answer(client)
                assert (response.session_id, len(response.responses)) == (number, 0)

    run()


@pytest.mark.parametrize("version", [7, 11, 12, 13])
@in_loop
async def test_a_session_gains_a_partition_quickly(version: int) -> None:
    async with running() as node:
        client = await stage(node)
        opened = await ask(client, request(node, version, {("orders", 1): 0}, session=(0, 0)), version)
        with only_the_quick_way():
            asked = request(node, version, {("payments", 2): 1}, session=(opened.session_id, 1))
            response = await ask(client, asked, version)
            assert values(node, response) == {("orders", 1): [b"a"], ("payments", 2): [b"c"]}


@in_loop
async def test_a_partition_that_is_named_twice_is_fetched_as_it_was_named_last() -> None:
    async with running() as node:
        client = await stage(node)
        [topic] = request(node, 11, {("orders", 2): 0}).topics
        [again] = request(node, 11, {("orders", 2): 1}).topics
        with only_the_quick_way():
            response = await ask(client, FetchRequest(max_bytes=1 << 20, topics=[topic, again]), 11)
        assert values(node, response) == {("orders", 2): [b"c"]}


@in_loop
async def test_records_of_a_file_are_sent_from_it_in_a_reply_of_several_partitions(tmp_path: Any) -> None:
    async with running(folder=str(tmp_path)) as node:
        client = await stage(node)
        large = batch(bytes(300_000))
        await client.produce("orders", large, partition=1)
        await client.produce("payments", batch(bytes(100)), partition=1)
        with only_the_quick_way():
            for version in (4, 11, 12):
                response = await ask(client, request(node, version, ALL, max_bytes=1 << 30), version)
                assert values(node, response)["orders", 1] == [b"a", bytes(300_000)]
                assert values(node, response)["payments", 1] == [b"a", bytes(100)]
        assert node.pinned() == 0


# What is not


Scene = Callable[[Node, Client, int], Awaitable[FetchResponse]]


def same_both_ways(version: int, scene: Scene) -> None:
    """Play a scene twice, with the quick way and without it: what the client gets is the same."""
    replies = []

    @in_loop
    async def run() -> None:
        for way in (nullcontext(), only_the_ordinary_way()):
            async with running(clock=FakeClock()) as node:
                client = await stage(node)
                with way:
                    response = await scene(node, client, version)
                response.session_id = min(response.session_id, 1)
                written = encode(response, version)
                for number, topic in enumerate(("orders", "payments")):
                    written = written.replace(node.partition(topic).topic_id, bytes([number]) * 16)
                replies.append(written)

    run()
    assert replies[0] == replies[1]


REFUSED: dict[str, tuple[dict[str, int], int, int]] = {
    # What differs in what is asked, the first version that can say so, and the error.
    "beyond the end": ({"fetch_offset": 9}, 4, ErrorCode.OFFSET_OUT_OF_RANGE),
    "before the start": ({"fetch_offset": -5}, 4, ErrorCode.OFFSET_OUT_OF_RANGE),
    "no partition": ({"partition": 9}, 4, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "another leader": ({"current_leader_epoch": 99}, 9, ErrorCode.UNKNOWN_LEADER_EPOCH),
    "another history": ({"last_fetched_epoch": 0, "fetch_offset": 9}, 12, ErrorCode.NONE),
}


@pytest.mark.parametrize("version", GENERATIONS)
@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("alone", [True, False])
def test_errors_are_those_of_the_ordinary_way(version: int, kind: str, alone: bool) -> None:
    fields, since, code = REFUSED[kind]
    if version < since:
        return

    async def scene(node: Node, client: Client, version: int) -> FetchResponse:
        asked = request(node, version, {("orders", 1): 0} if alone else ALL, max_wait_ms=FOR_EVER_MS)
        wanted = asked.topics[0].partitions[0 if alone else 1]
        for name, value in fields.items():
            setattr(wanted, name, value)
        response: FetchResponse = await ask(client, asked, version)
        data = found(node, response)["orders", wanted.partition]
        assert data.error_code == code
        assert (data.diverging_epoch.end_offset >= 0) == (kind == "another history")
        return response

    same_both_ways(version, scene)


@pytest.mark.parametrize("version", [7, 11, 12, 13])
@pytest.mark.parametrize("session", [(5, 1), (-1, 9), (0, 1), (-1, 0), (-1, -1), (5, -7)])
def test_other_requests_about_sessions_are_answered_as_by_the_ordinary_way(
    version: int, session: tuple[int, int]
) -> None:
    async def scene(node: Node, client: Client, version: int) -> FetchResponse:
        opened = await ask(client, request(node, version, ALL, session=(0, 0)), version)
        number, epoch = session
        number = opened.session_id if number == -1 else number
        response: FetchResponse = await ask(client, request(node, version, ALL, session=(number, epoch)), version)
        return response

    same_both_ways(version, scene)


@pytest.mark.parametrize("version", [7, 12, 13])
def test_a_session_that_forgets_a_partition_is_served_by_the_ordinary_way(version: int) -> None:
    async def scene(node: Node, client: Client, version: int) -> FetchResponse:
        opened = await ask(client, request(node, version, ALL, session=(0, 0)), version)
        asked = request(node, version, {}, session=(opened.session_id, 1))
        names: dict[str, Any] = (
            {"topic_id": node.partition("orders").topic_id} if version >= 13 else {"topic": "orders"}
        )
        asked.forgotten_topics_data = [ForgottenTopic(**names, partitions=[1, 2])]
        response: FetchResponse = await ask(client, asked, version)
        assert set(found(node, response)) == {("payments", 1), ("payments", 2)}
        return response

    same_both_ways(version, scene)


@in_loop
async def test_wide_fetches_and_sessions_are_looked_at_in_turns_by_the_ordinary_way() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", AT_ONCE)
        await client.create_topic("payments", 3)
        most: Places = {("orders", index): 0 for index in range(AT_ONCE)}
        opened = await ask(client, request(node, 12, most, session=(0, 0)), 12)
        # As large as it may be, it is quick; with one more it is not, and nothing has changed when it is declined.
        with only_the_quick_way():
            assert not (await ask(client, request(node, 12, {}, session=(opened.session_id, 1)), 12)).responses
            assert len(found(node, await ask(client, request(node, 4, most), 4))) == AT_ONCE
        more = request(node, 12, {("payments", 1): 0}, session=(opened.session_id, 2))
        wide = request(node, 4, {**most, ("payments", 1): 0})
        for asked, version in [(more, 12), (wide, 4)]:
            with only_the_quick_way():
                other = await node.connect()
                other.send(asked, version)
                assert await other.closed() == b""
            assert ("payments", 1) in found(node, await ask(client, asked, version))


@in_loop
async def test_cold_records_are_read_in_a_thread_and_sent() -> None:
    async with running() as node:
        await stage(node)
        await node.restart()
        client = await node.connect()
        for version in (4, 12):
            response = await ask(client, request(node, version, ALL), version)
            assert values(node, response)["orders", 2] == [b"b", b"c"]
