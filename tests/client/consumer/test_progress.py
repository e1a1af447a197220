"""What is committed in the background, and what never is."""

import pytest

from penstock.client.errors import BrokerError
from penstock.protocol.error_codes import ErrorCode
from penstock.testing import Broker
from tests.client.consuming import Stage, eventually, read
from tests.waiting import in_loop, until


@in_loop
async def test_commits_go_on_in_the_background_for_what_the_application_came_back_from(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    async with stage.consumer(auto_commit_interval_ms=10) as consumer:
        await consumer.poll(4)
        await consumer.poll(3)
        await eventually(stage.committed, {0: 4})
        await consumer.poll(1)
        await eventually(stage.committed, {0: 7})
        message = await anext(consumer)
        await eventually(stage.committed, {0: 8})
        assert message.offset == 8
        await anext(consumer)
        await eventually(stage.committed, {0: 9})


@in_loop
async def test_a_position_from_which_nothing_was_read_yet_is_committed_too(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    async with stage.consumer(auto_offset_reset="latest", auto_commit_interval_ms=10) as consumer:
        await consumer.poll(timeout_ms=0)
        await eventually(stage.committed, {0: 10})


@in_loop
async def test_what_the_application_failed_to_commit_is_committed_for_it_in_the_end(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    async with stage.consumer() as consumer:
        await read(consumer, 10)
        broker.faults.fail("OffsetCommit", ErrorCode.GROUP_AUTHORIZATION_FAILED, count=2)
        with pytest.raises(BrokerError):
            await consumer.commit()
        told: list[object] = []
        consumer.commit_soon(callback=lambda _, error: told.append(error))
        await until(lambda: told)
        assert isinstance(told[0], BrokerError)
    assert await stage.committed() == {0: 10}


@in_loop
async def test_what_the_application_commits_itself_is_not_taken_back_while_it_holds_the_message(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    async with stage.consumer(auto_commit_interval_ms=10) as consumer:
        async for message in consumer:
            if message.offset == 5:
                await consumer.commit()
                await consumer._parts.progress.commit()  # type: ignore[union-attr]
                assert await stage.committed() == {0: 6}
                break
