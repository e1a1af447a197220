"""An answer is written without messages if it has no errors, and in either case as the tables write it."""

import pytest

from penstock.broker.network.connection import Connection
from penstock.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.broker.harness import batch, in_loop, running
from tests.broker.quick.watched import ask, only_the_ordinary_way


def fetch_of(*indexes: int, epoch: int = -1) -> FetchRequest:
    partitions = [FetchPartition(partition=index, partition_max_bytes=1000) for index in indexes]
    topics = [FetchTopic(topic="orders", partitions=partitions)]
    return FetchRequest(max_bytes=1000, min_bytes=1, session_epoch=epoch, topics=topics)


@pytest.mark.parametrize("epoch", [-1, 0], ids=["alone", "opens a session"])
@in_loop
async def test_an_answer_without_errors_is_made_without_messages(epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 2)
        await client.produce("orders", batch(b"a"))
        messages: list[object] = []
        reply = Connection.reply

        def watched(connection: Connection, *args: object) -> None:
            messages.append(args[1])
            reply(connection, *args)  # type: ignore[arg-type]

        with only_the_ordinary_way(), monkeypatch.context() as patch:
            patch.setattr(Connection, "reply", watched)
            for version in (7, 11, 12):
                response = await ask(client, fetch_of(0, 1, epoch=epoch), version)
                assert len(response.responses[0].partitions) == 2
            assert not messages
            response = await ask(client, fetch_of(0, 1, 2, epoch=epoch), 12)
            assert [data.error_code for data in response.responses[0].partitions][:2] == [0, 0]
            assert len(messages) == 1


@in_loop
async def test_what_is_fetched_is_counted_in_every_shape() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 2)
        records = batch(b"a")
        await client.produce("orders", records)
        for times, indexes in enumerate([(0,), (0, 1), (1, 0)], start=1):
            await ask(client, fetch_of(*indexes), 11)
            assert node.partition("orders").fetched_bytes == times * len(records)
