"""Topics by pattern, and those that do not exist yet."""

import re
from typing import Any

import pytest

from penstock.client.errors import (
    UnknownTopicError,
)
from penstock.protocol.records import NewRecord
from penstock.testing import Broker
from tests.client.consuming import Stage, read
from tests.waiting import in_loop


@in_loop
async def test_a_pattern_finds_topics_that_are_made_later(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(2)
    async with stage.consumer(re.compile(f"{stage.topic}(-.*)?"), metadata_max_age_ms=50) as consumer:
        assert {m.topic for m in await read(consumer, 2)} == {stage.topic}
        broker.create_topic(f"{stage.topic}-more", 1)
        broker.create_topic(f"x-{stage.topic}", 1)
        await stage.append([NewRecord(b"new")], topic=f"{stage.topic}-more")
        [message] = await read(consumer, 1)
        assert message.topic == f"{stage.topic}-more"
        assert {key.topic for key in consumer.assignment} == {stage.topic, f"{stage.topic}-more"}


@pytest.mark.parametrize("group", [True, False])
@in_loop
async def test_a_topic_that_does_not_exist_yet_is_read_as_soon_as_it_does(broker: Broker, group: bool) -> None:
    stage = Stage(broker)
    await stage.fill(2)
    later = f"{stage.topic}-later"
    options: dict[str, Any] = {} if group else {"group_id": None}
    async with stage.consumer(stage.topic, later, **options) as consumer:
        complaints = set()
        is_made = False
        messages: list[Any] = []
        while len(messages) < 3:
            try:
                messages += await consumer.poll(timeout_ms=20)
            except UnknownTopicError as error:
                complaints.add(error.topic)
            if len(messages) == 2 and (group or complaints) and not is_made:
                broker.create_topic(later, 1)
                await stage.append([NewRecord(b"new")], topic=later)
                is_made = True
        assert messages[-1].topic == later
        # Only a group may have members that know more.
        assert complaints == (set() if group else {later})
