"""Fetches of very many partitions: what they cost when they come, while they wait, and when something changes."""

import asyncio
import threading

import pytest

from penstock.broker.partitions import fetch_wait as fetching
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from penstock.protocol.session import Request
from tests.broker.harness import Client, batch, in_loop, records_of, until, values_of
from tests.hostile.stage import HONEST_TOPIC, Stage, beside_an_honest_client, scale, skim

FOR_DAYS_MS = 0x7FFF_FFFF
WIDTH = scale(600, soak=10_000)


def wide(
    topic: str,
    indexes: range | list[int],
    *,
    max_wait_ms: int = 0,
    session: tuple[int, int] = (0, -1),
    offsets: dict[int, int] | None = None,
    min_bytes: int = 1,
) -> FetchRequest:
    partitions = [
        FetchPartition(partition=index, fetch_offset=(offsets or {}).get(index, 0), partition_max_bytes=1 << 20)
        for index in indexes
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=topic, partitions=partitions)] if partitions else [],
    )


def partitions_of(response: FetchResponse) -> list[int]:
    assert response.error_code == ErrorCode.NONE
    return [data.partition_index for topic in response.responses for data in topic.partitions]


class Looks:
    """Counts how often a partition is looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        look = fetching.look

        def spy(*args: object, **kwargs: object) -> fetching.Found:
            self.count += 1
            return look(*args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(fetching, "look", spy)


async def wide_topic(stage: Stage) -> Client:
    client = await stage.attacker()
    await client.create_topic("wide", WIDTH)
    return client


@in_loop
async def test_an_append_costs_wide_long_polls_one_look_each(monkeypatch: pytest.MonkeyPatch) -> None:
    async with beside_an_honest_client() as stage:
        writer = await wide_topic(stage)
        attackers = [await stage.attacker() for _ in range(10)]
        request = wide("wide", range(WIDTH), max_wait_ms=FOR_DAYS_MS, min_bytes=500_000)
        for attacker in attackers:
            attacker.send(request, 12)
        room = stage.node.broker.services.fetch_room
        await until(lambda: room.waiting >= 10 * WIDTH)
        looks = Looks(monkeypatch)
        async with stage.measured() as cost:
            for index in range(5):
                await writer.produce("wide", batch(b"a"), partition=index)
        assert 0 < looks.count - cost.answers <= 5 * 10 + 10
        assert cost.longest_turn_calls < 5_000
        # The registration stayed, and what is enough ends the wait.
        for index in (0, WIDTH - 1):
            await writer.produce("wide", batch(bytes(300_000)), partition=index)
        for attacker in attackers:
            response = await attacker.reply()
            assert partitions_of(response) == list(range(WIDTH))
        await until(lambda: room.waiting == 0)
        assert not any(stage.node.partition("wide", index).fetch_waiters for index in range(WIDTH))


@in_loop
async def test_a_wide_fetch_is_looked_at_in_many_turns() -> None:
    async with beside_an_honest_client() as stage:
        client = await stage.attacker()
        count = scale(5_000, soak=40_000)
        _, chunks = client._session.send(wide("nothing", range(count)), 12)
        data = b"".join(chunks)
        async with stage.measured() as cost:
            client.send_bytes(data)
            assert await skim(client) > 30 * count
        # A turn of looking; and for each partition no more than its error is counted with.
        assert cost.longest_turn_calls < 20 * fetching.AT_ONCE + 3 * count


@in_loop
async def test_what_is_committed_while_a_wide_fetch_is_looked_at_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with beside_an_honest_client() as stage:
        client, writer = await wide_topic(stage), await stage.attacker()
        partition = stage.node.partition("wide", 0)
        monkeypatch.setattr(fetching, "AT_ONCE", 1)
        client.send(wide("wide", range(WIDTH), max_wait_ms=FOR_DAYS_MS), 12)
        while not partition.fetch_waiters:
            await asyncio.sleep(0)
        assert stage.node.broker.services.fetch_room.waiting == 0, "the others are still to be looked at"
        await writer.produce("wide", batch(b"a"), partition=0)
        response = await client.reply()
        assert values_of(records_of(response.responses[0].partitions[0])) == [b"a"]


@in_loop
async def test_a_wide_session_that_waited_looks_at_what_changed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with beside_an_honest_client() as stage:
        client, writer = await wide_topic(stage), await stage.attacker()
        first = await client.ask(wide("wide", range(WIDTH), session=(0, 0)), 12)
        assert partitions_of(first) == list(range(WIDTH))
        client.send(wide("wide", [], session=(first.session_id, 1), max_wait_ms=FOR_DAYS_MS), 12)
        room = stage.node.broker.services.fetch_room
        await until(lambda: room.waiting >= WIDTH)
        looks = Looks(monkeypatch)
        await writer.produce("wide", batch(b"a"), partition=WIDTH // 2)
        news = await client.reply()
        assert partitions_of(news) == [WIDTH // 2]
        assert looks.count == 2
        # Nothing else is new.
        again = await client.ask(wide("wide", [WIDTH // 2], session=(first.session_id, 2), offsets={WIDTH // 2: 1}), 12)
        assert partitions_of(again) == []


@in_loop
async def test_a_partition_named_often_is_answered_once_as_it_was_named_last() -> None:
    async with beside_an_honest_client() as stage:
        client = await stage.attacker()
        await client.create_topic("orders", 2)
        for value in (b"a", b"b"):
            await client.produce("orders", batch(value), partition=1)
        request = wide("orders", [1] * 800 + [0])
        topic = request.topics[0]
        topic.partitions[799].fetch_offset = 1
        again = FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
        request.topics = [topic, again, again]
        for epoch in (-1, 0):
            request.session_epoch = epoch
            response = await client.ask(request, 12)
            assert partitions_of(response) == [1, 0]
            assert values_of(records_of(response.responses[0].partitions[0])) == [b"b"]


@in_loop
async def test_a_fetch_of_too_many_partitions_closes_the_connection() -> None:
    async with beside_an_honest_client() as stage:
        attacker = await stage.attacker()
        topics = [FetchTopic(topic="x" * 30_000, partitions=[]) for _ in range(80)]
        attacker.send(FetchRequest(topics=topics), 12)
        assert await attacker.closed() == b""
        [reason] = stage.node.broker.listener.aborted
        assert reason.startswith("a fetch of ")


@in_loop
async def test_a_wide_fetch_that_cannot_be_decoded_closes_the_connection() -> None:
    async with beside_an_honest_client() as stage:
        attacker = await stage.attacker()
        _, chunks = attacker._session.send(wide("wide", range(2_000)), 12)
        attacker.send_bytes(b"".join(chunks)[:-40_000] + b"\xff" * 40_000)
        assert await attacker.closed() == b""
        await stage.honest.answers_more(5)
        assert stage.node.broker.listener.budget.used_bytes < 1000


@in_loop
async def test_wide_fetches_of_many_clients_are_taken_one_after_the_other() -> None:
    async with beside_an_honest_client() as stage:
        attackers = [await stage.attacker() for _ in range(8)]
        _, chunks = attackers[0]._session.send(wide("nothing", range(2_000)), 12)
        data = b"".join(chunks)
        async with stage.measured(memory=True, calls=False) as cost:
            for attacker in attackers:
                attacker.send_bytes(data)
            for attacker in attackers:
                assert await skim(attacker) > 30 * 2_000
        # As messages, each of them takes a MiB or more.
        assert cost.peak_bytes < 7 << 20
        assert stage.node.broker.listener.budget.used_bytes < 1000


@in_loop
async def test_a_wide_fetch_is_decoded_in_a_thread_and_what_follows_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[tuple[int, bool]] = []
    decode = Request.decode

    def spy(self: Request) -> Message:
        decoded.append((len(self.body), threading.current_thread() is threading.main_thread()))
        return decode(self)

    monkeypatch.setattr(Request, "decode", spy)
    async with beside_an_honest_client() as stage:
        client = await stage.attacker()
        await client.create_topic("orders", 20)
        opened = await client.ask(wide("orders", range(20), session=(0, 0)), 12)
        changes = wide("orders", range(20), session=(opened.session_id, 1))
        # A long list of what is forgotten makes it large.
        changes.forgotten_topics_data = [ForgottenTopic(topic="orders", partitions=list(range(1_000, 11_000)))]
        client.send_together((changes, 12), (wide("orders", [], session=(opened.session_id, 2)), 12))
        for _ in range(2):
            # The second one goes on where the first one left off.
            assert (await client.reply()).error_code == ErrorCode.NONE
        assert [(size > 40_000, on_loop) for size, on_loop in decoded if size > 1000] == [(True, False)]


@in_loop
async def test_when_all_room_for_waiting_is_taken_wide_fetches_and_piles_of_them_are_answered_at_once() -> None:
    async with beside_an_honest_client() as stage:
        attacker, modest = await wide_topic(stage), await stage.attacker()
        room = stage.node.broker.services.fetch_room
        room.max_waiting = WIDTH + 100
        attacker.send(wide("wide", range(WIDTH), max_wait_ms=FOR_DAYS_MS), 12)
        await until(lambda: room.waiting >= WIDTH)
        other = await stage.attacker()
        assert len(partitions_of(await other.ask(wide("wide", range(WIDTH), max_wait_ms=FOR_DAYS_MS), 12))) == WIDTH
        pile = [wide("wide", [0], max_wait_ms=FOR_DAYS_MS)] * 100
        modest.send_together(*[(request, 12) for request in pile])
        await until(lambda: len(stage.node.partition("wide", 0).fetch_waiters) > 10)
        assert room.waiting <= room.max_waiting
        await stage.honest.answers_more(5)
        # One that is alone on its connection always may wait.
        other.send(wide("wide", [1], max_wait_ms=FOR_DAYS_MS), 12)
        await until(lambda: len(stage.node.partition("wide", 1).fetch_waiters) == 2)
        attacker.abort()
        modest.abort()
        other.abort()
        await until(lambda: room.waiting == 0)


@in_loop
async def test_a_client_that_leaves_while_its_wide_fetch_is_looked_at_leaves_nothing() -> None:
    async with beside_an_honest_client() as stage:
        client = await wide_topic(stage)
        partition = stage.node.partition("wide", 0)
        await client.produce("wide", batch(b"a"), partition=0)
        client.send(wide("wide", range(WIDTH), max_wait_ms=FOR_DAYS_MS, min_bytes=1000), 12)
        await until(lambda: partition.fetch_waiters)
        client.abort()
        await until(lambda: len(stage.node.broker.listener.connections) == 1)
        await stage.honest.answers_more(2)
        await until(lambda: not stage.node.broker.services.fetch_room.wide.locked())
        assert not any(stage.node.partition("wide", index).fetch_waiters for index in range(WIDTH))
        honest = stage.node.partition(HONEST_TOPIC)
        await until(lambda: stage.node.pinned() == 0 or honest.fetch_waiters)


@in_loop
async def test_a_wide_fetch_whose_time_is_up_is_answered() -> None:
    async with beside_an_honest_client() as stage:
        client = await wide_topic(stage)
        response = await asyncio.wait_for(client.ask(wide("wide", range(WIDTH), max_wait_ms=20), 12), 20)
        assert partitions_of(response) == list(range(WIDTH))
        assert stage.node.broker.services.fetch_room.waiting == 0
