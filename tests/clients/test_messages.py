"""Every client sends and reads messages of all sizes, and all that a message may be."""

import pytest

from penstock.protocol.records import NewRecord, Record, build
from tests.clients.matrix import CLIENTS, CONTENTS, READ, SEND, SIZES, TOO_LARGE, Cell
from tests.clients.stage import Stage, assert_same, numbered, told_by
from tools.clients.client import At, RefusedError, Session, Start
from tools.clients.records import BASE_TIMESTAMP

MESSAGES = {size: NewRecord(b"x" * count, timestamp=BASE_TIMESTAMP) for size, count in SIZES.items()} | {
    "key": NewRecord(b"value", key="Schlüssel".encode(), timestamp=BASE_TIMESTAMP),
    "headers": NewRecord(b"value", headers=(("a", b"1"), ("b", b"2"), ("b", b"")), timestamp=BASE_TIMESTAMP),
    "tombstone": NewRecord(None, key=b"key", timestamp=BASE_TIMESTAMP),
    "empty value": NewRecord(b"", key=b"key", timestamp=BASE_TIMESTAMP),
}
# The value alone is a byte over message.max.bytes.
OVER_THE_LIMIT = NewRecord(b"x" * 1_048_589, timestamp=BASE_TIMESTAMP)


@pytest.mark.parametrize("cell", [cell for cell in SEND.cells() if cell.column != TOO_LARGE], ids=str)
def test_a_message_is_stored_as_it_was_sent(stage: Stage, cell: Cell) -> None:
    client, message = CLIENTS[cell.client], MESSAGES[cell.column]
    assert client.sends([message]) == [message]

    async def scenario() -> list[Record]:
        topic = await stage.new_topic()
        await stage.drive(client, lambda session: _produce(session, stage, topic, message))
        return [record for batch in await stage.stored(topic, 1) for record in batch.records]

    stored = stage.run(scenario())
    if not client.sets_timestamps:
        stored = [record._replace(timestamp=BASE_TIMESTAMP) for record in stored]
    assert_same(stored, numbered([message]))


@pytest.mark.parametrize("cell", [cell for cell in SEND.cells() if cell.column == TOO_LARGE], ids=str)
def test_a_client_is_told_that_a_message_is_too_large(stage: Stage, cell: Cell) -> None:
    client, small = CLIENTS[cell.client], MESSAGES["1 B"]

    async def scenario() -> int:
        topic = await stage.new_topic()
        with pytest.raises(RefusedError, match=client.too_large):
            await stage.drive(client, lambda session: _produce(session, stage, topic, OVER_THE_LIMIT))
        await stage.drive(client, lambda session: _produce(session, stage, topic, small))
        return sum(len(batch.records) for batch in await stage.stored(topic, 1))

    assert stage.run(scenario()) == 1


@pytest.fixture
def messages(stage: Stage) -> str:
    """A topic that holds all messages, each in a batch of its own."""
    return stage.once(_written)


@pytest.mark.parametrize("cell", READ.cells(), ids=str)
def test_a_message_is_read_as_it_was_sent(stage: Stage, messages: str, cell: Cell) -> None:
    client, message = CLIENTS[cell.client], MESSAGES[cell.column]
    offset = list(MESSAGES).index(cell.column)

    async def fetch(session: Session) -> list[Record]:
        return await session.fetch(stage.bootstrap, messages, Start(At.OFFSET, offset), 1)

    # Clients take as many messages as come at once.
    assert_same(stage.run(stage.drive(client, fetch))[:1], told_by(client, numbered([message], offset)))


def test_the_messages_are_those_of_the_matrix() -> None:
    assert list(MESSAGES) == [*SIZES, *CONTENTS]


async def _written(stage: Stage) -> str:
    topic = await stage.new_topic()
    for message in MESSAGES.values():
        await stage.append(topic, build([message]))
    return topic


async def _produce(session: Session, stage: Stage, topic: str, message: NewRecord) -> None:
    await session.produce(stage.bootstrap, topic, [message], codec="none", acks="all")
