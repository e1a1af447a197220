"""Push against the real broker: order, credits, acknowledgements and commits, failures, and how it ends."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.consumer.consumer import Consumer
from penstock.client.consumer.deduplication import Deduplicator
from penstock.client.consumer.deserializers import DeserializationError
from penstock.client.errors import ClientError, PushError
from penstock.client.message import Message, MessageId
from penstock.client.serializers import Json
from penstock.protocol.records import NewRecord
from penstock.testing import Broker
from tests.client.consuming import Stage, eventually, places, read
from tests.client.threads import client_threads
from tests.waiting import in_loop, until

Handler = Callable[[Message[Any, Any]], object]


class Seen:
    """A callback that notes what it is given, and ends the push after so many."""

    def __init__(self, consumer: Consumer[Any, Any], most: int) -> None:
        self.messages: list[Message[Any, Any]] = []
        self._consumer = consumer
        self._most = most

    def __call__(self, message: Message[Any, Any]) -> None:
        self.messages.append(message)
        if len(self.messages) == self._most:
            self._consumer.end_push()


@in_loop
async def test_every_message_is_pushed_once_and_in_order_to_a_plain_function(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await stage.fill(700)
    async with stage.consumer() as consumer:
        seen = Seen(consumer, 1_400)
        await consumer.push(seen)
    assert len(seen.messages) == 1_400
    for number in range(2):
        assert [m.offset for m in seen.messages if m.partition == number] == list(range(700))
    assert await stage.committed() == {0: 700, 1: 700}


@in_loop
async def test_an_async_function_is_waited_for(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(20)
    running: list[int] = []
    async with stage.consumer() as consumer:

        async def handle(message: Message[Any, Any]) -> None:
            running.append(message.offset)
            await asyncio.sleep(0.001)
            assert running == [message.offset]
            running.clear()
            if message.offset == 19:
                consumer.end_push()

        await consumer.push(handle)
    assert await stage.committed() == {0: 20}


@in_loop
async def test_lists_have_what_has_come_in_order(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await stage.fill(1_000)
    lists: list[list[Message[Any, Any]]] = []
    async with stage.consumer() as consumer:

        async def handle(messages: list[Message[Any, Any]]) -> None:
            lists.append(messages)
            if sum(map(len, lists)) == 2_000:
                consumer.end_push()

        await consumer.push(handle, lists=True, credits=300)
    assert max(map(len, lists)) <= 300
    messages = [message for each in lists for message in each]
    for number in range(2):
        assert [m.offset for m in messages if m.partition == number] == list(range(1_000))


@in_loop
async def test_a_slow_function_is_never_overrun(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    for number in range(2):
        for _ in range(20):
            await stage.send(*[b"x" * 1_000] * 50, partition=number)
    limits = {"queued_max_bytes": 200_000, "max_partition_fetch_bytes": 60_000}
    async with stage.consumer(**limits) as consumer:
        outstanding: list[Any] = []
        counts: list[int] = []
        done: list[int] = []

        def handle(message: Message[Any, Any], acknowledge: Callable[[], None]) -> None:
            outstanding.append(acknowledge)
            assert len(outstanding) <= 50
            counts.append(len(outstanding))
            # The broker is far ahead, and must not fill our memory; a batch is never cut in two.
            assert consumer._subscription.queued_bytes <= 300_000

        async def acknowledge_slowly() -> None:
            while len(done) < 2_000:
                await until(lambda: len(outstanding) == min(50, 2_000 - len(done)))
                for acknowledge in outstanding[:7]:
                    acknowledge()
                    done.append(1)
                del outstanding[:7]
            consumer.end_push()

        slowly = asyncio.create_task(acknowledge_slowly())
        await consumer.push(handle, credits=50, ack="call")
        await slowly
    assert max(counts) == 50
    assert await stage.committed() == {0: 1_000, 1: 1_000}


@in_loop
async def test_concurrent_calls_are_limited_and_keep_the_order_of_each_partition(broker: Broker) -> None:
    stage = Stage(broker, partitions=4)
    await stage.fill(100)
    chance = random.Random(2)
    running: list[tuple[int, int]] = []
    most = 0
    async with stage.consumer() as consumer:
        seen = Seen(consumer, 400)

        async def handle(message: Message[Any, Any]) -> None:
            nonlocal most
            assert message.partition not in [partition for partition, _ in running]
            running.append((message.partition, message.offset))
            most = max(most, len(running))
            await asyncio.sleep(chance.random() / 1_000)
            running.remove((message.partition, message.offset))
            seen(message)

        await consumer.push(handle, concurrency=3)
    assert most == 3
    for number in range(4):
        assert [m.offset for m in seen.messages if m.partition == number] == list(range(100))
    assert await stage.committed() == dict.fromkeys(range(4), 100)


@in_loop
async def test_the_order_may_be_kept_by_key_alone(broker: Broker) -> None:
    stage = Stage(broker)
    chance = random.Random(3)
    await stage.append([NewRecord(b"", b'{"k":%d}' % chance.randrange(5)) for _ in range(200)])
    running: list[object] = []
    most = 0
    async with stage.consumer(key_deserializer=Json()) as consumer:
        seen = Seen(consumer, 200)

        async def handle(message: Message[Any, Any]) -> None:
            nonlocal most
            assert message.key not in running
            running.append(message.key)
            most = max(most, len(running))
            await asyncio.sleep(chance.random() / 1_000)
            running.remove(message.key)
            seen(message)

        await consumer.push(handle, concurrency=4, ordered_by="key")
    assert most == 4
    for number in range(5):
        own = [m.offset for m in seen.messages if m.key == {"k": number}]
        assert own == sorted(own)
    assert await stage.committed() == {0: 200}


@in_loop
async def test_commits_follow_what_is_acknowledged_without_a_gap(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    handles: dict[int, Callable[[], None]] = {}
    async with stage.consumer(auto_commit_interval_ms=10) as consumer:
        pushing = asyncio.create_task(
            consumer.push(lambda message, acknowledge: handles.update({message.offset: acknowledge}), ack="call")
        )
        await until(lambda: len(handles) == 10)
        for offset in (0, 1, 3, 4):
            handles[offset]()
        await eventually(stage.committed, {0: 2})
        assert await consumer.position(stage.key) == 2
        handles[2]()
        await eventually(stage.committed, {0: 5})
        pushing.cancel()
        await asyncio.wait([pushing])
        handles[5]()
        assert places(await read(consumer, 5)) == [(0, offset) for offset in range(5, 10)]


@in_loop
async def test_an_exception_ends_the_push_and_nothing_behind_it_is_committed(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await stage.fill(20)
    async with stage.consumer() as consumer:
        seen: list[Message[Any, Any]] = []

        async def handle(message: Message[Any, Any]) -> None:
            if (message.partition, message.offset) == (1, 7):
                raise ZeroDivisionError("no")
            seen.append(message)

        with pytest.raises(PushError, match=f"failed with message {stage.topic}-1@7: ZeroDivisionError") as raised:
            await consumer.push(handle)
        assert raised.value.message_id == MessageId(stage.topic, 1, 7)
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
        await consumer.commit()
        assert (await stage.committed())[1] == 7
        # It comes again with the next push.
        again = Seen(consumer, 40 - len(seen))
        await consumer.push(again)
    assert sorted(places(seen + again.messages)) == [(p, o) for p in range(2) for o in range(20)]


@in_loop
async def test_with_several_calls_at_a_time_an_exception_cancels_the_others(broker: Broker) -> None:
    stage = Stage(broker, partitions=3)
    await stage.fill(10)
    cancelled: list[int] = []
    async with stage.consumer() as consumer:

        async def handle(message: Message[Any, Any]) -> None:
            if message.partition == 1 and message.offset == 4:
                await until(lambda: consumer._pusher is not None and len(waiting) == 2)
                raise ZeroDivisionError
            if message.partition != 1 and message.offset == 5:
                waiting.append(message.partition)
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    cancelled.append(message.partition)
                    raise

        waiting: list[int] = []
        with pytest.raises(PushError):
            await consumer.push(handle, concurrency=3)
        assert sorted(cancelled) == [0, 2]
    assert await stage.committed() == {0: 5, 1: 4, 2: 5}


@in_loop
async def test_an_exception_may_be_dealt_with_and_the_push_goes_on(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.send(b"1", b"{", b"3", b"0", b"5")
    failures: list[tuple[MessageId, type[Exception]]] = []
    async with stage.consumer(value_deserializer=Json(int)) as consumer:
        seen = Seen(consumer, 3)

        async def handle(message: Message[Any, Any]) -> None:
            1 / message.value
            seen(message)

        async def on_error(message: Message[Any, Any], error: Exception) -> None:
            failures.append((message.id, type(error)))

        await consumer.push(handle, on_error=on_error)
    assert [m.value for m in seen.messages] == [1, 3, 5]
    assert [(id.offset, kind) for id, kind in failures] == [(1, DeserializationError), (3, ZeroDivisionError)]
    assert await stage.committed() == {0: 5}


@in_loop
async def test_what_on_error_raises_ends_the_push(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.send(b"a")

    def fail(message: Message[Any, Any], error: Exception | None = None) -> None:
        raise KeyError("worse") if error else ZeroDivisionError

    async with stage.consumer() as consumer:
        with pytest.raises(KeyError, match="worse"):
            await consumer.push(fail, on_error=fail)
    assert await stage.committed() in ({}, {0: 0})


@in_loop
async def test_a_call_may_take_long_if_others_are_acknowledged_meanwhile_and_not_longer(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(8)
    settings = {"max_poll_interval_ms": 1_500, "heartbeat_interval_ms": 20, "auto_commit_interval_ms": 10}
    async with stage.consumer(**settings) as consumer:
        calls: list[int] = []

        async def handle(message: Message[Any, Any]) -> None:
            calls.append(message.offset)
            if calls.count(6) == 1 and message.offset == 6:
                # Until the group has given up on us.
                await until(lambda: consumer._parts.poller.polls_are_paused)  # type: ignore[union-attr]
            else:
                await asyncio.sleep(0.25)
            if message.offset == 7:
                consumer.end_push()

        await consumer.push(handle)
    assert calls == [0, 1, 2, 3, 4, 5, 6, 6, 7], "eight times 250 ms are no reason to give up"
    assert await stage.committed() == {0: 8}


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@in_loop
async def test_partitions_change_hands_when_nothing_is_in_them(broker: Broker, assignor: str) -> None:
    stage = Stage(broker, partitions=4)
    await stage.fill(50)
    strategy = {"partition_assignment_strategy": [assignor]}
    seen: list[tuple[int, int]] = []
    async with stage.consumer(**strategy) as one, stage.consumer(**strategy) as two:

        async def handle(message: Message[Any, Any]) -> None:
            await asyncio.sleep(0.002)
            seen.append((message.partition, message.offset))

        pushes = [asyncio.create_task(each.push(handle, credits=20, concurrency=2)) for each in (one, two)]
        await until(lambda: len(set(seen)) == 200 and len(one.assignment) == len(two.assignment) == 2)
        await stage.fill(5)
        await until(lambda: len(set(seen)) == 220)
        one.end_push()
        two.end_push()
        await asyncio.gather(*pushes)
    assert sorted(seen) == [(number, offset) for number in range(4) for offset in range(55)]
    assert await stage.committed() == dict.fromkeys(range(4), 55)


@in_loop
async def test_seeks_and_pauses_in_a_call_count_at_once(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await stage.fill(10)
    seen: list[tuple[int, int]] = []
    async with stage.consumer() as consumer:

        async def handle(message: Message[Any, Any]) -> None:
            seen.append((message.partition, message.offset))
            if seen.count((0, 5)) == 1 and seen[-1] == (0, 5):
                await consumer.seek(stage.keys[0], 2)
            if seen[-1] == (1, 3):
                consumer.pause(stage.keys[1])
            if len(seen) == 18:
                consumer.end_push()

        await consumer.push(handle)
    assert [offset for partition, offset in seen if partition == 0] == [*range(6), *range(2, 10)]
    assert [offset for partition, offset in seen if partition == 1] == [0, 1, 2, 3]
    assert await stage.committed() == {0: 10, 1: 4}


@in_loop
async def test_at_most_once_a_message_that_was_given_does_not_come_again(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    seen: list[int] = []
    async with stage.consumer(delivery="at_most_once") as consumer:

        def handle(message: Message[Any, Any]) -> None:
            seen.append(message.offset)
            if message.offset == 3:
                raise ZeroDivisionError

        with pytest.raises(PushError):
            await consumer.push(handle)
        assert await stage.committed() == {0: 10}
        rest = Seen(consumer, 6)
        await consumer.push(rest)
    assert seen == [0, 1, 2, 3]
    assert [m.offset for m in rest.messages] == [4, 5, 6, 7, 8, 9]


@in_loop
async def test_duplicates_are_not_pushed(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.append([NewRecord(name, headers=(("message-id", name),)) for name in (b"a", b"b", b"a", b"c", b"c")])
    async with stage.consumer(dedup=Deduplicator(header="message-id"), auto_commit_interval_ms=10) as consumer:
        seen = Seen(consumer, 4)
        pushing = asyncio.create_task(consumer.push(seen))
        await eventually(stage.committed, {0: 5})
        assert [m.value for m in seen.messages] == [b"a", b"b", b"c"]
        consumer.end_push()
        await pushing


@in_loop
async def test_one_push_at_a_time_and_sensible_options(broker: Broker) -> None:
    stage = Stage(broker)
    async with stage.consumer() as consumer:
        pushing = asyncio.create_task(consumer.push(print))
        await until(lambda: consumer._pusher is not None)
        with pytest.raises(ClientError, match="pushes messages already"):
            await consumer.push(print)
        consumer.end_push()
        await pushing
        consumer.end_push()
        for wrong in ({"credits": 0}, {"concurrency": 0}, {"ordered_by": "topic"}, {"ack": "never"}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                await consumer.push(print, **wrong)


@in_loop
async def test_cancelled_it_cancels_its_calls_and_they_come_again(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    async with stage.consumer() as consumer:
        reached = asyncio.Event()

        async def handle(message: Message[Any, Any]) -> None:
            if message.offset == 4:
                reached.set()
                await asyncio.sleep(60)

        pushing = asyncio.create_task(consumer.push(handle))
        await reached.wait()
        pushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pushing
        assert places(await read(consumer, 6)) == [(0, offset) for offset in range(4, 10)]


@in_loop
async def test_close_waits_for_the_calls_that_run_and_leaves_nothing(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    before = client_threads()
    consumer = stage.consumer()
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def handle(message: Message[Any, Any]) -> None:
        if message.offset == 4:
            reached.set()
            await go_on.wait()

    pushing = asyncio.create_task(consumer.push(handle))
    await reached.wait()
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0)
    assert not closing.done()
    go_on.set()
    await closing
    await pushing
    assert await stage.committed() == {0: 5}
    assert client_threads() == before


@in_loop
async def test_a_call_may_close_the_consumer(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    consumer = stage.consumer()

    async def handle(message: Message[Any, Any]) -> None:
        if message.offset == 4:
            await consumer.close()

    await consumer.push(handle)
    assert await stage.committed() == {0: 4}


@in_loop
async def test_a_call_may_have_something_else_read(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await stage.fill(5)
    seen: list[tuple[int, int]] = []
    async with stage.lone_consumer() as consumer:
        await consumer.assign(stage.keys[:1])

        async def handle(message: Message[Any, Any]) -> None:
            seen.append((message.partition, message.offset))
            if seen[-1] == (0, 2):
                await consumer.assign(stage.keys[1:])
            if seen[-1] == (1, 4):
                consumer.end_push()

        await consumer.push(handle)
    assert seen == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3), (1, 4)]
