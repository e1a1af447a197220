"""Where reading begins: at what was committed, where the settings say, or where the user seeks."""

from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.client.admin.offsets import delete_records
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import (
    NoPositionError,
)
from penstock.client.message import MessageId
from penstock.protocol.records import NewRecord
from penstock.testing import Broker
from tests.client.consuming import Stage, polling_until, read, values
from tests.waiting import in_loop, until


@pytest.mark.parametrize(("reset", "first"), [("earliest", b"0"), ("latest", b"new")])
@in_loop
async def test_without_a_committed_offset_the_settings_say_where_to_begin(
    broker: Broker, reset: str, first: bytes
) -> None:
    stage = Stage(broker)
    await stage.fill(3)
    async with stage.consumer(auto_offset_reset=reset) as consumer:
        await until(lambda: consumer.assignment)
        await consumer.position(stage.key)
        await stage.send(b"new")
        assert (await read(consumer, 1))[0].value == first


@in_loop
async def test_with_no_reset_the_error_says_what_to_do_and_a_seek_helps(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(3)
    async with stage.consumer(auto_offset_reset="none") as consumer:
        for _ in range(2):
            with pytest.raises(NoPositionError, match=r"has committed nothing, and auto.offset.reset=none: `seek`"):
                await polling_until(lambda: False, consumer)
        await consumer.seek(stage.key, 1)
        assert values(await read(consumer, 2)) == [b"1", b"2"]


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
@in_loop
async def test_an_offset_that_the_log_does_not_hold_any_more_is_dealt_with_as_the_settings_say(
    broker: Broker, reset: str
) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    async with Cluster(broker.bootstrap) as cluster:
        await delete_records(cluster, {stage.key: 6})
    async with stage.consumer(auto_offset_reset=reset) as consumer:
        consumer.subscribe(stage.topic, on_assigned=lambda _: consumer.seek(stage.key, 2))
        if reset == "none":
            with pytest.raises(NoPositionError, match=f"{stage.key}: the log does not hold offset 2"):
                await polling_until(lambda: False, consumer)
            await consumer.seek_to_beginning()
        elif reset == "latest":
            await polling_until(
                lambda: consumer._subscription.cursors[stage.key].position == 10 if consumer.assignment else False,
                consumer,
            )
            await stage.send(b"6")
        assert (await read(consumer, 1))[0].value == b"6"


@in_loop
async def test_a_group_goes_on_where_it_was(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    for first in (0, 4, 8):
        async with stage.consumer() as consumer:
            assert (await consumer.poll(4))[0].offset == first


@in_loop
async def test_seeks_go_to_offsets_messages_times_and_both_ends(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.append([NewRecord(b"%d" % number, timestamp=1_000_000 + 1000 * number) for number in range(10)])

    async def value_after(seek: Any) -> Any:
        await seek
        return (await read(consumer, 1))[0].value

    async with stage.lone_consumer() as consumer:
        await consumer.assign([stage.key])
        assert await value_after(consumer.seek(stage.key, 3)) == b"3"
        assert await value_after(consumer.seek(MessageId(stage.topic, 0, 7))) == b"7"
        assert await value_after(consumer.seek_to_beginning()) == b"0"
        assert await value_after(consumer.seek_to_time(1_005_500)) == b"6"
        assert await value_after(consumer.seek_to_time(datetime.fromtimestamp(1002, UTC), stage.key)) == b"2"
        await consumer.seek_to_time(2_000_000)
        assert await consumer.position(stage.key) == 10
        await consumer.seek_to_end()
        await stage.send(b"new")
        assert (await read(consumer, 1))[0].value == b"new"
        with pytest.raises(ValueError, match="offset is -1"):
            await consumer.seek(stage.key, -1)
        assert await consumer.offsets_for_times({stage.key: 1_001_000}) == {stage.key: 1}
        assert await consumer.beginning_offsets() == {stage.key: 0}
