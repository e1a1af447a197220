"""Fetch messages: every version, topics by name and by id, sessions over the wire, and what replies tell besides."""

from dataclasses import dataclass

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from penstock.protocol.schemas.topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.harness import (
    Client,
    FakeClock,
    batch,
    fetch_request,
    fetched,
    in_loop,
    records_of,
    running,
    until,
    values_of,
)


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_finds_the_records(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            created = await client.create_topic("orders")
            await client.produce("orders", batch(b"a", b"b"))
            response = await client.ask(fetch_request("orders", topic_id=created.topic_id), version)
            [topic] = response.responses
            if version >= 13:
                assert topic.topic_id == created.topic_id
            else:
                assert topic.topic == "orders"
            data = fetched(response)
            assert values_of(records_of(data)) == [b"a", b"b"]
            assert (data.high_watermark, data.last_stable_offset) == (2, 2)
            assert data.log_start_offset == (0 if version >= 5 else -1)

    run()


@in_loop
async def test_a_topic_by_an_id_that_nobody_knows_is_told_as_such() -> None:
    async with running() as node:
        client = await node.connect()
        created = await client.create_topic("orders")
        for topic_id, partition, expected in [
            (b"?" * 16, 0, ErrorCode.UNKNOWN_TOPIC_ID),
            (bytes(16), 0, ErrorCode.UNKNOWN_TOPIC_ID),
            (created.topic_id, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]:
            response = await client.ask(fetch_request("", topic_id=topic_id, partition=partition), 13)
            assert response.responses[0].topic_id == topic_id
            assert fetched(response).error_code == expected


@in_loop
async def test_a_deleted_topic_is_not_found_by_its_old_id_though_one_of_its_name_exists() -> None:
    async with running() as node:
        client = await node.connect()
        old = await client.create_topic("orders")
        await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]), 6)
        new = await client.create_topic("orders")
        await client.produce("orders", batch(b"new"))
        data = fetched(await client.ask(fetch_request("", topic_id=old.topic_id), 13))
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        data = fetched(await client.ask(fetch_request("", topic_id=new.topic_id), 13))
        assert values_of(records_of(data)) == [b"new"]


@in_loop
async def test_readers_of_committed_records_are_told_that_none_are_aborted() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        committed = await client.fetch("orders", isolation_level=1)
        assert committed.aborted_transactions is not None
        assert len(committed.aborted_transactions) == 0
        assert committed.last_stable_offset == 1
        assert values_of(records_of(committed)) == [b"a"]
        assert (await client.fetch("orders", isolation_level=0)).aborted_transactions is None


# Sessions


@dataclass
class Session:
    """A client that goes on with one."""

    client: Client
    version: int
    ids: dict[str, bytes]
    session_id: int = 0
    epoch: int = 0

    async def ask(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        forget: tuple[tuple[str, int], ...] = (),
        max_wait_ms: int = 0,
    ) -> FetchResponse:
        by_topic: dict[str, list[FetchPartition]] = {}
        for (topic, index), offset in offsets.items():
            by_topic.setdefault(topic, []).append(
                FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            )
        request = FetchRequest(
            max_bytes=1 << 20,
            min_bytes=1,
            max_wait_ms=max_wait_ms,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[
                FetchTopic(topic=topic, topic_id=self.ids.get(topic, bytes(16)), partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=topic, topic_id=self.ids[topic], partitions=[index]) for topic, index in forget
            ],
        )
        response = await self.client.ask(request, self.version)
        assert isinstance(response, FetchResponse)
        if response.error_code == ErrorCode.NONE:
            self.session_id = response.session_id
            self.epoch += 1
        return response


def told(response: FetchResponse) -> dict[int, PartitionData]:
    assert response.error_code == ErrorCode.NONE
    return {data.partition_index: data for topic in response.responses for data in topic.partitions}


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_a_session_tells_everything_once_and_then_what_is_new(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client, writer = await node.connect(), await node.connect()
            created = await client.create_topic("orders", 3)
            await writer.produce("orders", batch(b"a"), partition=1)
            session = Session(client, version, {"orders": created.topic_id})
            first = await session.ask({("orders", index): 0 for index in range(3)})
            assert first.session_id != 0
            assert set(told(first)) == {0, 1, 2}
            assert values_of(records_of(told(first)[1])) == [b"a"]
            # Nothing is new but where the reader is.
            assert told(await session.ask({("orders", 1): 1})) == {}
            await writer.produce("orders", batch(b"b"), partition=2)
            news = told(await session.ask({}, max_wait_ms=600_000))
            assert set(news) == {2}
            assert values_of(records_of(news[2])) == [b"b"]
            # It has not said that it has read this: it gets it again.
            assert set(told(await session.ask({}))) == {2}
            assert told(await session.ask({("orders", 2): 1})) == {}

    run()


@in_loop
async def test_a_session_can_gain_and_forget_partitions() -> None:
    async with running() as node:
        client = await node.connect()
        created = await client.create_topic("orders", 3)
        for index in range(3):
            await client.produce("orders", batch(b"%d" % index), partition=index)
        session = Session(client, 12, {"orders": created.topic_id})
        assert set(told(await session.ask({("orders", 0): 0}))) == {0}
        assert set(told(await session.ask({("orders", 1): 0, ("orders", 2): 0}))) == {0, 1, 2}
        news = told(await session.ask({}, forget=(("orders", 0), ("orders", 2))))
        assert set(news) == {1}


@in_loop
async def test_a_session_that_is_not_known_or_out_of_step_is_refused() -> None:
    async with running() as node:
        client = await node.connect()
        created = await client.create_topic("orders")
        ids = {"orders": created.topic_id}
        stranger = Session(client, 12, ids, session_id=12345, epoch=1)
        assert (await stranger.ask({})).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        session = Session(client, 12, ids)
        await session.ask({("orders", 0): 0})
        session.epoch = 7
        refused = await session.ask({})
        assert refused.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert not refused.responses
        session.epoch, session.version = 1, 13
        assert (await session.ask({})).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@in_loop
async def test_a_session_ends_when_the_client_says_so() -> None:
    async with running() as node:
        client = await node.connect()
        created = await client.create_topic("orders")
        session = Session(client, 12, {"orders": created.topic_id})
        await session.ask({("orders", 0): 0})
        assert len(node.broker.services.fetch_sessions) == 1
        number, session.epoch = session.session_id, -1
        last = await session.ask({("orders", 0): 0})
        assert (last.session_id, set(told(last))) == (0, {0})
        assert len(node.broker.services.fetch_sessions) == 0
        gone = Session(client, 12, session.ids, session_id=number, epoch=1)
        assert (await gone.ask({})).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@in_loop
async def test_a_session_begun_anew_takes_the_place_of_the_old_one() -> None:
    async with running() as node:
        client = await node.connect()
        created = await client.create_topic("orders")
        session = Session(client, 12, {"orders": created.topic_id})
        await session.ask({("orders", 0): 0})
        before, session.epoch = session.session_id, 0
        await session.ask({("orders", 0): 0})
        assert session.session_id != before
        assert len(node.broker.services.fetch_sessions) == 1


@in_loop
async def test_without_a_free_slot_a_client_does_without_a_session() -> None:
    async with running({"max.incremental.fetch.session.cache.slots": "1"}, clock=FakeClock()) as node:
        client = await node.connect()
        created = await client.create_topic("orders")
        first, second = (Session(client, 12, {"orders": created.topic_id}) for _ in range(2))
        assert (await first.ask({("orders", 0): 0})).session_id != 0
        response = await second.ask({("orders", 0): 0})
        assert (response.session_id, set(told(response))) == (0, {0})


@in_loop
async def test_fetches_before_version_7_open_no_session() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.fetch("orders", version=6)
        assert len(node.broker.services.fetch_sessions) == 0


@in_loop
async def test_errors_are_told_by_every_reply_of_a_session() -> None:
    async with running() as node:
        client = await node.connect()
        created = await client.create_topic("orders")
        session = Session(client, 12, {"orders": created.topic_id})
        for changes in ({("orders", 0): 0, ("orders", 9): 0}, {}, {}):
            found = told(await session.ask(changes, max_wait_ms=600_000))
            assert found[9].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_a_waiting_session_learns_of_records_of_any_of_its_partitions() -> None:
    async with running() as node:
        client, writer = await node.connect(), await node.connect()
        created = await client.create_topic("orders", 50)
        session = Session(client, 13, {"orders": created.topic_id})
        await session.ask({("orders", index): 0 for index in range(50)})
        client.send(
            FetchRequest(max_wait_ms=600_000, min_bytes=1, session_id=session.session_id, session_epoch=session.epoch),
            13,
        )
        await until(lambda: node.partition("orders", 33).fetch_waiters)
        await writer.produce("orders", batch(b"a"), partition=33)
        assert set(told(await client.reply())) == {33}
        assert not any(node.partition("orders", index).fetch_waiters for index in range(50))
