"""Commits in their order, and those that are refused."""

from typing import Any

import pytest

from penstock.client.errors import (
    CommitFailedError,
)
from penstock.protocol.error_codes import ErrorCode
from penstock.testing import Broker
from tests.client.consuming import Stage, read
from tests.waiting import in_loop


@in_loop
async def test_commits_are_for_all_for_a_message_or_for_offsets_of_ones_own(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    async with stage.consumer(enable_auto_commit=False) as consumer:
        messages = await consumer.poll(5)
        await consumer.commit()
        assert await stage.committed() == {0: 5}
        await consumer.commit(messages[1])
        assert await stage.committed() == {0: 2}
        await consumer.commit({stage.key: 9})
        assert await consumer.committed() == {stage.key: 9}
    assert await stage.committed() == {0: 9}


@in_loop
async def test_commits_without_waiting_keep_their_order_and_tell_how_they_went(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    told: list[Any] = []
    async with stage.consumer(enable_auto_commit=False) as consumer:
        await read(consumer, 10)
        broker.faults.drop_replies("OffsetCommit", count=2)
        for offset in range(1, 8):
            consumer.commit_soon(
                {stage.key: offset}, lambda offsets, error: told.append((offsets[stage.key][0], error))
            )
        await consumer.commit({stage.key: 8})
        assert told == [(offset, None) for offset in range(1, 8)]
        assert await stage.committed() == {0: 8}
        consumer.commit_soon({stage.key: 9})
    assert await stage.committed() == {0: 9}


@in_loop
async def test_a_commit_of_one_who_is_out_of_the_group_fails_and_it_comes_back(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    lost: list[Any] = []
    async with stage.consumer(enable_auto_commit=False, session_timeout_ms=500) as consumer:
        consumer.subscribe(stage.topic, on_lost=lost.append)
        await consumer.poll(5)
        broker.faults.fail("OffsetCommit", ErrorCode.UNKNOWN_MEMBER_ID)
        with pytest.raises(CommitFailedError, match=r"was not committed .UNKNOWN_MEMBER_ID.*max.poll.interval.ms"):
            await consumer.commit()
        assert [m.offset for m in await read(consumer, 10)] == list(range(10))
        await consumer.commit()
    assert lost == [{stage.key}]
    assert await stage.committed() == {0: 10}
