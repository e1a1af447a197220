"""A topic that does not exist: the consumer says so at once, and raises an error if that was asked for."""

import logging

import pytest

from penstock.client.errors import UnknownTopicError
from penstock.client.group.missing_topics import MOST_REMEMBERED, MissingTopics
from penstock.protocol.records import NewRecord
from penstock.testing import Broker
from tests.client.consuming import Stage, read, values
from tests.waiting import in_loop, until


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "missing_topics" in each.name]


@pytest.mark.parametrize("group", [True, False], ids=["in a group", "alone"])
@in_loop
async def test_a_missing_topic_is_warned_of_at_once_with_the_near_name_and_read_when_it_is_there(
    broker: Broker, caplog: pytest.LogCaptureFixture, group: bool
) -> None:
    stage = Stage(broker)
    missing = f"{stage.topic}s"
    who = f"group '{stage.group}'" if group else "a consumer"
    options = {"on_missing_topic": None} if group else {"group_id": None, "on_missing_topic": "warn"}
    async with stage.consumer(missing, **options) as consumer:
        assert await consumer.poll(timeout_ms=0) == []
        await until(lambda: warnings(caplog))
        [warning] = warnings(caplog)
        assert warning.startswith(f"{who} waits for a topic that it cannot read: topic '{missing}': there is no such")
        assert f"did you mean '{stage.topic}'" in warning
        broker.create_topic(missing)
        await stage.append([NewRecord(b"paid")], topic=missing)
        assert values(await read(consumer, 1)) == [b"paid"]
    assert len(warnings(caplog)) == 1


@in_loop
async def test_a_missing_topic_is_an_error_of_polls_in_a_group_that_asks_for_it(broker: Broker) -> None:
    stage = Stage(broker)
    async with stage.consumer(f"{stage.topic}s", on_missing_topic="raise") as consumer:
        for _ in range(2):
            with pytest.raises(UnknownTopicError, match="did you mean"):
                await consumer.poll(timeout_ms=None)


@in_loop
async def test_another_subscription_is_looked_at_again(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(broker)
    async with stage.consumer() as consumer:
        await until(lambda: consumer.assignment)
        assert warnings(caplog) == []
        consumer.subscribe([stage.topic, "no-such"])
        await consumer.poll(timeout_ms=0)
        await until(lambda: warnings(caplog))


def test_each_topic_is_warned_of_once_until_it_was_there(caplog: pytest.LogCaptureFixture) -> None:
    missing = MissingTopics("a consumer", lambda _: None, raises=False)
    for _ in range(3):
        assert missing.report("orders", UnknownTopicError("orders"))
    assert len(warnings(caplog)) == 1
    missing.found("orders")
    missing.report("orders", UnknownTopicError("orders"))
    assert len(warnings(caplog)) == 2


def test_what_is_remembered_has_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "penstock.client.group.missing_topics")
    missing = MissingTopics("a consumer", lambda _: None, raises=False)
    for number in range(2 * MOST_REMEMBERED):
        missing.report(f"topic-{number}", UnknownTopicError(f"topic-{number}"))
    assert len(missing._warned) <= MOST_REMEMBERED
