"""How a consumer ends, with its broker there or gone, and what a crash costs."""

import asyncio
import selectors
from typing import Any

import pytest

from penstock.client.consumer.consumer import CLOSE_TIMEOUT_MS, Consumer
from penstock.client.errors import (
    BrokerError,
    ClientError,
)
from penstock.client.group.requests import LEAVE_TIMEOUT_MS
from penstock.protocol.error_codes import ErrorCode
from penstock.testing import Broker
from tests.client.consuming import Stage, eventually, places, polling_until, read
from tests.waiting import in_loop, until


@pytest.mark.parametrize("iterates", [False, True])
@pytest.mark.parametrize("how", ["with", "finally"])
@in_loop
async def test_what_failed_in_the_applications_hands_comes_again(broker: Broker, how: str, iterates: bool) -> None:
    stage = Stage(broker)
    await stage.fill(10)

    async def work(consumer: Consumer[Any, Any]) -> None:
        if iterates:
            async for message in consumer:
                if message.offset == 3:
                    raise RuntimeError("it is too much")
        else:
            await consumer.poll(3)
            await consumer.poll(4)
            raise RuntimeError("it is too much")

    async def use(consumer: Consumer[Any, Any]) -> None:
        if how == "with":
            async with consumer:
                await work(consumer)
        else:
            try:
                await work(consumer)
            finally:
                await consumer.close()

    with pytest.raises(RuntimeError):
        await use(stage.consumer())
    assert await stage.committed() == {0: 3}


@in_loop
async def test_closing_commits_leaves_the_group_and_ends_everything(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    revoked: list[object] = []
    consumer = stage.consumer()
    consumer.subscribe(stage.topic, on_revoked=revoked.append)
    await consumer.poll(6)
    await consumer.close()
    await consumer.close()
    assert await stage.committed() == {0: 6}
    assert revoked == [{stage.key}]
    described = await stage.describe()
    assert (described.state, described.members) == ("Empty", ())
    assert asyncio.all_tasks() == {asyncio.current_task()}
    for use in (consumer.poll, consumer.commit, consumer.unsubscribe):
        with pytest.raises(ClientError, match="the consumer was closed: make a new one"):
            await use()


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is the machine's until `skip_waits`. After that only waits move it: each takes no time
    and counts in full."""

    def __init__(self) -> None:
        self._clock = SkippingSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return super().time() if self._clock.now is None else self._clock.now

    def skip_waits(self) -> None:
        self._clock.now = self.time()


class SkippingSelector(selectors.DefaultSelector):
    now: float | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.now is None or timeout is None or timeout <= 0:
            return super().select(timeout)
        # What a socket of this machine has to say, it says within a millisecond.
        if found := super().select(0.001):
            return found
        self.now += timeout + 1e-6
        return []


@pytest.mark.parametrize(("commits", "most_ms"), [(False, LEAVE_TIMEOUT_MS), (True, CLOSE_TIMEOUT_MS)])
def test_closing_does_not_wait_long_for_a_broker_that_is_gone(commits: bool, most_ms: int) -> None:
    async def close() -> float:
        with Broker(storage="memory") as broker:
            stage = Stage(broker)
            await stage.fill(1)
            consumer = stage.consumer(enable_auto_commit=commits)
            await read(consumer, 1)
            broker.kill()
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SkippingLoop)
            loop.skip_waits()
            began = loop.time()
            await consumer.close()
            return loop.time() - began

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        waited_ms = runner.run(asyncio.wait_for(close(), 30)) * 1000
    assert waited_ms <= most_ms + 100


@pytest.mark.parametrize("how", ["restart", "kill", "cut"])
@in_loop
async def test_a_consumer_goes_on_when_its_broker_is_back(how: str) -> None:
    with Broker(offsets_topic_num_partitions=2) as broker:
        stage = Stage(broker, partitions=2)
        await stage.fill(100)
        async with stage.consumer() as consumer:
            messages = await read(consumer, 50, max_records=50)
            if how == "cut":
                assert broker.faults.cut_connections() > 0
            elif how == "restart":
                await asyncio.to_thread(broker.restart)
            else:
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
            messages += await read(consumer, 150)
            await stage.fill(1)
            messages += await read(consumer, 2)
        assert sorted(places(messages)) == [(number, offset) for number in range(2) for offset in range(101)]
        assert await stage.committed() == {0: 101, 1: 101}


# What a crash costs: 20 messages are polled ten at a time, and the consumer dies over the second ten.

AT_MOST_ONCE: list[tuple[str, range]] = [
    ("nothing was polled", range(0)),
    ("the commit was not carried out", range(0)),
    ("the commit was carried out and its reply lost", range(10, 20)),
    ("messages were returned", range(10, 20)),
    ("half of them were processed", range(15, 20)),
    ("all of them were processed", range(0)),
]
AT_LEAST_ONCE: list[tuple[str, range]] = [
    ("nothing was polled", range(0)),
    ("messages were returned", range(0)),
    ("half of them were processed", range(10, 15)),
    ("all of them were processed", range(10, 20)),
    ("the application came back, and the commit was not carried out", range(10, 20)),
    ("the commit was carried out and its reply lost", range(0)),
    ("the commit was carried out", range(0)),
]


async def crash(consumer: Consumer[Any, Any]) -> None:
    """End everything that goes on, and tell nobody."""
    parts, consumer._parts, consumer._is_closed = consumer._parts, None, True
    assert parts is not None
    assert parts._reader is not None
    for part in (parts._reader.stop(), parts.prefetcher.close(), parts.positioner.close(), parts.progress.close()):
        await part
    assert parts._committer is not None
    await parts._committer.close()
    parts.poller.close()
    await consumer._cluster.close()


async def read_the_rest(stage: Stage, delivery: str) -> list[int]:
    """By the next member of the group, once it has given up on the one that died."""
    await asyncio.to_thread(stage.broker.clock.advance, "1 minute")
    offsets: list[int] = []
    async with stage.consumer(delivery=delivery) as consumer:
        offsets += [message.offset for message in await polling_until(lambda: consumer.assignment, consumer)]
        while await consumer.position(stage.key) < 20:
            offsets += [message.offset for message in await consumer.poll()]
    return offsets


@pytest.mark.parametrize(("step", "lost"), AT_MOST_ONCE, ids=[step for step, _ in AT_MOST_ONCE])
@in_loop
async def test_at_most_once_loses_what_was_in_the_applications_hands_and_repeats_nothing(
    broker: Broker, step: str, lost: range
) -> None:
    stage = Stage(broker)
    await stage.fill(20)
    processed: list[int] = []
    consumer = stage.consumer(delivery="at_most_once", max_poll_records=10)
    if step == "nothing was polled":
        consumer._start()
        await until(lambda: consumer.assignment)
    else:
        processed += [message.offset for message in await read(consumer, 10)]
        match step:
            case "the commit was not carried out":
                with broker.faults.fail("OffsetCommit", ErrorCode.NOT_COORDINATOR, count=None) as fault:
                    polling = asyncio.create_task(consumer.poll(timeout_ms=None))
                    await until(lambda: fault.struck > 1)
                    polling.cancel()
                    await crash(consumer)
            case "the commit was carried out and its reply lost":
                with broker.faults.drop_replies("OffsetCommit", count=None) as fault:
                    polling = asyncio.create_task(consumer.poll(timeout_ms=None))
                    await until(lambda: fault.struck > 1)
                    polling.cancel()
                    await crash(consumer)
            case _:
                messages = await consumer.poll()
                count = {"messages were returned": 0, "half of them were processed": 5}.get(step, 10)
                processed += [message.offset for message in messages[:count]]
    if not consumer._is_closed:
        await crash(consumer)
    processed += await read_the_rest(stage, "at_most_once")
    assert processed == [offset for offset in range(20) if offset not in lost]


@pytest.mark.parametrize(("step", "twice"), AT_LEAST_ONCE, ids=[step for step, _ in AT_LEAST_ONCE])
@in_loop
async def test_at_least_once_repeats_what_was_processed_and_not_committed_and_loses_nothing(
    broker: Broker, step: str, twice: range
) -> None:
    stage = Stage(broker)
    await stage.fill(20)
    processed: list[int] = []
    consumer = stage.consumer(delivery="at_least_once", max_poll_records=10, auto_commit_interval_ms=5)
    if step == "nothing was polled":
        consumer._start()
        await until(lambda: consumer.assignment)
    else:
        processed += [message.offset for message in await read(consumer, 10)]
        messages = await consumer.poll()
        await eventually(stage.committed, {0: 10})
        count = {"messages were returned": 0, "half of them were processed": 5}.get(step, 10)
        processed += [message.offset for message in messages[:count]]
        match step:
            case "the application came back, and the commit was not carried out":
                with broker.faults.fail("OffsetCommit", ErrorCode.NOT_COORDINATOR, count=None) as fault:
                    assert await consumer.poll(timeout_ms=0) == []
                    await until(lambda: fault.struck > 1)
                    await crash(consumer)
            case "the commit was carried out and its reply lost":
                with broker.faults.drop_replies("OffsetCommit", count=None) as fault:
                    assert await consumer.poll(timeout_ms=0) == []
                    await until(lambda: fault.struck > 1)
                    await crash(consumer)
            case "the commit was carried out":
                assert await consumer.poll(timeout_ms=0) == []
                await eventually(stage.committed, {0: 20})
    if not consumer._is_closed:
        await crash(consumer)
    processed += await read_the_rest(stage, "at_least_once")
    assert sorted(processed) == sorted([*range(20), *twice])


@pytest.mark.parametrize("is_processed", [False, True])
@in_loop
async def test_at_least_once_repeats_only_the_message_that_an_iteration_was_at(
    broker: Broker, is_processed: bool
) -> None:
    stage = Stage(broker)
    await stage.fill(20)
    processed: list[int] = []
    consumer = stage.consumer(delivery="at_least_once", auto_commit_interval_ms=5)
    async for message in consumer:
        if message.offset == 7:
            await eventually(stage.committed, {0: 7})
            processed += [7] if is_processed else []
            break
        processed.append(message.offset)
    await crash(consumer)
    processed += await read_the_rest(stage, "at_least_once")
    assert sorted(processed) == sorted([*range(20), *([7] if is_processed else [])])


@in_loop
async def test_at_most_once_returns_what_it_could_not_commit_as_soon_as_it_can(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(20)
    async with stage.consumer(delivery="at_most_once") as consumer:
        broker.faults.fail("OffsetCommit", ErrorCode.GROUP_AUTHORIZATION_FAILED, count=2)
        for _ in range(2):
            with pytest.raises(BrokerError, match="you may not do this with the group"):
                await polling_until(lambda: False, consumer)
        assert [message.offset for message in await consumer.poll()] == list(range(20))
        assert await stage.committed() == {0: 20}
