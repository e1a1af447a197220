"""Keys and values out of bytes, and messages that are not what they should be."""

from typing import Any

import pytest

from penstock.client.consumer.deserializers import DeserializationError
from penstock.client.message import MessageId
from penstock.client.serializers import JSON, STRING, SerializationError
from penstock.protocol.records import NewRecord
from penstock.testing import Broker
from tests.client.consuming import Stage, read, values
from tests.waiting import in_loop


@in_loop
async def test_keys_and_values_are_what_the_deserializers_make_of_them(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.append([NewRecord(b'{"paid": true}', key=b"k"), NewRecord(None)])
    async with stage.consumer(key_deserializer=STRING, value_deserializer=JSON) as consumer:
        messages = await read(consumer, 2)
    assert [(m.key, m.value) for m in messages] == [("k", {"paid": True}), (None, None)]


@pytest.mark.parametrize("iterates", [False, True])
@in_loop
async def test_a_message_that_cannot_be_deserialized_is_named_and_those_behind_it_come(
    broker: Broker, iterates: bool
) -> None:
    stage = Stage(broker)
    await stage.send(b"1", b"2", b"{", b"4", b"}", b"}", b"7")
    told: list[Any] = []
    failed: Exception | None = None
    async with stage.consumer(value_deserializer=JSON) as consumer:
        while len(told) < 7:
            try:
                if iterates:
                    told.append((await anext(consumer)).value)
                else:
                    told += values(await consumer.poll())
            except SerializationError as error:
                failed = error
                told.append((str(error).partition(" cannot be deserialized")[0], await consumer.position(stage.key)))
    name = f"message {stage.topic}-0@"
    assert told == [1, 2, (f"{name}2", 3), 4, (f"{name}4", 5), (f"{name}5", 6), 7]
    assert isinstance(failed, DeserializationError)
    assert (failed.message_id, failed.message.value) == (MessageId(stage.topic, 0, 5), b"}")
    assert await stage.committed() == {0: 7}
