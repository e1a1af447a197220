"""The future of a message: lazily awaited, passed on to successors, cancelled without harm."""

import asyncio

import pytest

from penstock.client.errors import ClientError
from penstock.client.message import RecordMetadata
from penstock.client.producer.deliveries import Outcome, SendFuture
from tests.waiting import in_loop


def settled(base_offset: int = 10, append_time_ms: int = -1) -> Outcome:
    outcome = Outcome("orders", 3, base_offset=base_offset, append_time_ms=append_time_ms)
    outcome.settle()
    return outcome


@in_loop
async def test_a_settled_message_is_there_at_once() -> None:
    future = SendFuture(settled(), 2, 99)

    assert future.done()
    assert await future == RecordMetadata("orders", 3, 12, 99)
    assert future.exception() is None
    assert "offset=12" in repr(future)


def test_a_broker_that_stamps_messages_decides_their_time() -> None:
    assert SendFuture(settled(append_time_ms=5), 0, 99).result().timestamp == 5


def test_where_no_offset_is_told_there_is_none() -> None:
    assert SendFuture(settled(base_offset=-1), 2, 99).result().offset == -1


def test_nothing_is_told_too_early() -> None:
    future = SendFuture(Outcome("orders"), 0, 99)

    assert not future.done()
    assert "pending" in repr(future)
    with pytest.raises(asyncio.InvalidStateError, match="not known yet"):
        future.result()


@in_loop
async def test_everybody_who_waits_is_woken() -> None:
    outcome = Outcome("orders", 0, base_offset=0)
    waiting = [asyncio.ensure_future(wait(SendFuture(outcome, index, 1))) for index in range(3)]
    await asyncio.sleep(0)
    outcome.settle()

    assert [(await each).offset for each in waiting] == [0, 1, 2]


async def wait(future: SendFuture) -> RecordMetadata:
    return await future


@in_loop
async def test_who_is_cancelled_takes_nobody_with_him_and_leaves_nothing_behind() -> None:
    outcome = Outcome("orders", 0, base_offset=0)
    one, other = (asyncio.ensure_future(wait(SendFuture(outcome, index, 1))) for index in range(2))
    await asyncio.sleep(0)
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    assert len(outcome.waiters) == 1
    outcome.settle()

    assert (await other).offset == 1


@in_loop
async def test_a_failure_is_raised_for_each() -> None:
    outcome = Outcome("orders", 0)
    outcome.fail(ClientError("too late"))
    for index in range(2):
        with pytest.raises(ClientError, match="too late"):
            await SendFuture(outcome, index, 1)


@in_loop
async def test_successors_are_followed_while_one_waits() -> None:
    first, second, third = Outcome("orders", 0), Outcome("orders", 0), Outcome("orders", 0, base_offset=7)
    future = SendFuture(first, 5, 1)
    waiting = asyncio.ensure_future(wait(future))
    heard: list[int] = []
    future.add_done_callback(lambda done: heard.append(done.result().offset))
    await asyncio.sleep(0)
    first.pass_on([second], lambda index: (second, index - 4))
    await asyncio.sleep(0)
    assert not waiting.done()
    second.pass_on([third], lambda index: (third, index))
    third.settle()

    assert (await waiting).offset == 8
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert heard == [8]
    assert future.outcome is third


def test_a_failure_that_nobody_asks_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    asked, ignored = Outcome("asked"), Outcome("ignored")
    for outcome in (asked, ignored):
        outcome.fail(ClientError("too late"))
    SendFuture(asked, 0, 1).exception()
    del outcome, asked, ignored

    assert [record.getMessage() for record in caplog.records] == [
        "messages to topic ignored were not sent, and their outcome was not awaited: too late"
    ]
