"""Full memory: who awaits waits, who does not is told, and the bound holds."""

import asyncio
import tracemalloc
from typing import Any

import pytest

from penstock.client.errors import BufferFullError, ClientError, UnknownTopicError, UnsendableError
from penstock.client.producer.admission import MESSAGES_AT_A_TIME, PARKED_COST_BYTES
from penstock.client.producer.deliveries import SendFuture
from penstock.client.producer.producer import Producer
from penstock.protocol.schemas.metadata import MetadataRequest
from penstock.protocol.schemas.produce import ProduceRequest, ProduceResponse
from penstock.protocol.schemas.transactions import InitProducerIdRequest
from tests.client.peer import SILENCE, peer
from tests.client.produce_peer import Log, producing_to
from tests.waiting import in_loop, until

MEGABYTE = 1024 * 1024


@in_loop
async def test_memory_stays_within_its_bound_however_much_is_offered() -> None:
    """100 MB for a broker that does not answer."""
    async with producing_to(buffer_memory=4 * MEGABYTE) as (producer, _, [broker]):
        broker.answers[ProduceRequest] = lambda _: SILENCE
        tracemalloc.start()
        try:
            refused = 0
            for number in range(10_000):
                try:
                    producer.send("orders", b"%08d" % number + bytes(10_232))
                except BufferFullError:
                    refused += 1
                if number % 100 == 0:
                    await asyncio.sleep(0)
                assert producer.buffered_bytes <= 4 * MEGABYTE
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert refused > 9_500
        # What is in flight lies in the socket's buffer, too, and the scripted broker keeps what it was sent.
        assert peak < 4 * 4 * MEGABYTE
        await producer.close(timeout_ms=0)


@in_loop
async def test_small_messages_to_many_partitions_stay_within_the_bound_too() -> None:
    async with producing_to(buffer_memory=MEGABYTE, leaders=[0] * 500, partitioner="round_robin") as (
        producer,
        _,
        [broker],
    ):
        broker.answers[ProduceRequest] = lambda _: SILENCE
        tracemalloc.start()
        try:
            with pytest.raises(BufferFullError):
                send_many(producer, 100_000, b"x")
            now, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert now < 5 * MEGABYTE
        await producer.close(timeout_ms=0)


@in_loop
async def test_who_awaits_gets_in_when_others_have_left() -> None:
    async with producing_to(buffer_memory=20_000) as (producer, log, _):
        sent = await asyncio.gather(*[send(producer, b"%d" % number + bytes(1_000)) for number in range(200)])

        assert sorted(each.offset for each in sent) == list(range(200))
        # In the order in which they came.
        assert [each.offset for each in sent] == list(range(200))
        assert len(log.records["orders", 0]) == 200


def send_many(
    producer: Producer[bytes, bytes], count: int, value: bytes, futures: list[SendFuture] | None = None
) -> None:
    """Without awaiting anything."""
    for _ in range(count):
        future = producer.send("orders", value)
        if futures is not None:
            futures.append(future)


async def send(producer: Producer[bytes, bytes], value: bytes) -> Any:
    return await producer.send("orders", value)


@in_loop
async def test_who_does_not_await_is_told_what_to_do() -> None:
    async with producing_to(buffer_memory=20_000) as (producer, log, [broker]):
        gate = asyncio.Event()

        async def answer(request: ProduceRequest) -> ProduceResponse:
            await gate.wait()
            return log.produce(request)  # type: ignore[no-any-return]

        broker.answers[ProduceRequest] = answer
        futures: list[SendFuture] = []
        with pytest.raises(BufferFullError, match=r"await producer\.ready\(\)"):
            send_many(producer, 100, bytes(1_000), futures)
        gate.set()
        await producer.ready()
        futures.append(producer.send("orders", bytes(1_000)))

        assert [(await each).offset for each in futures] == list(range(len(futures)))


@in_loop
async def test_waiting_for_room_has_an_end() -> None:
    async with producing_to(buffer_memory=20_000, max_block_ms=300) as (producer, _, [broker]):
        broker.answers[ProduceRequest] = lambda _: SILENCE
        with pytest.raises(BufferFullError):
            send_many(producer, 100, bytes(1_000))
        with pytest.raises(BufferFullError):
            await producer.ready()
        with pytest.raises(BufferFullError):
            await producer.send_batch("orders", [bytes(1_000)] * 100)
        await producer.close(timeout_ms=0)


@in_loop
async def test_one_that_waits_in_line_fails_when_its_time_is_up() -> None:
    async with producing_to(buffer_memory=20_000, max_block_ms=300) as (producer, _, [broker]):
        broker.answers[ProduceRequest] = lambda _: SILENCE
        waiting = [asyncio.ensure_future(send_or_error(producer, bytes(1_000))) for _ in range(30)]
        failed = await waiting[-1]

        assert isinstance(failed, BufferFullError)
        assert any("max.block.ms (300)" in note for note in failed.__notes__)
        await producer.close(timeout_ms=0)
        assert all(isinstance(each, ClientError) for each in await asyncio.gather(*waiting))


async def send_or_error(producer: Producer[bytes, bytes], value: bytes) -> Any:
    try:
        return await producer.send("orders", value)
    except ClientError as error:
        return error


@in_loop
async def test_messages_wait_in_order_for_their_topic_to_be_known() -> None:
    async with producing_to() as (producer, log, [broker]):
        await producer.send("orders", b"first")
        gate = asyncio.Event()
        layout = broker.layout
        layout.leaders["payments"] = [0]

        async def answer(request: MetadataRequest) -> Any:
            await gate.wait()
            return layout.metadata(request)

        broker.answers[MetadataRequest] = answer
        futures = [producer.send("payments", b"%d" % number) for number in range(1_000)]
        # Another topic is not held up by it.
        assert (await producer.send("orders", b"paid")).offset == 1
        gate.set()
        futures += [producer.send("payments", b"%d" % number) for number in range(1_000, 1_100)]
        await producer.flush()

        assert [future.result().offset for future in futures] == list(range(1_100))
        assert log.records["payments", 0] == [b"%d" % number for number in range(1_100)]


@in_loop
async def test_messages_that_come_when_the_others_are_placed_begin_no_other_look_up() -> None:
    async with peer(orders=[0]) as broker:
        log = Log()
        broker.answers[InitProducerIdRequest] = log.begin
        broker.answers[ProduceRequest] = log.produce
        async with Producer(broker.address, linger_ms=0) as producer:
            admission = producer._start()
            look_up, begun = admission._look_up, []

            def begin(topic: str, *args: Any, **options: Any) -> Any:
                begun.append(topic)
                return look_up(topic, *args, **options)

            admission._look_up = begin  # type: ignore[method-assign]
            values = [b"%d" % number for number in range(3 * MESSAGES_AT_A_TIME)]
            for value in values:
                # One that comes when all others are placed finds the look-up ended.
                while len(admission._parked.get("orders", ())) > 0:
                    await asyncio.sleep(0)
                producer.send("orders", value)
            await producer.flush()
        assert begun == ["orders"]
        assert log.records["orders", 0] == values


@in_loop
async def test_messages_that_get_in_while_the_last_is_placed_begin_no_other_look_up() -> None:
    """Without acknowledgements a batch leaves, and makes room, in the midst of placing another message."""
    settings: dict[str, Any] = {"acks": 0, "enable_idempotence": False, "batch_size": 1, "buffer_memory": 7_000}
    async with producing_to(**settings) as (producer, log, [broker]):
        await producer.send("orders", b"first")
        await until(lambda: log.records)
        broker.layout.leaders["orders"] = [0, 0]
        admission = producer._admission
        assert admission is not None
        look_up, begun = admission._look_up, list[str]()

        def count(topic: str, *args: Any, **options: Any) -> Any:
            begun.append(topic)
            return look_up(topic, *args, **options)

        admission._look_up = count  # type: ignore[method-assign]
        # The topic has grown: all of these wait until it is known better, and the last for room.
        sent = [asyncio.create_task(send_to(producer, bytes(2_000), partition=1)) for _ in range(3)]
        await asyncio.gather(*sent)
        assert begun == ["orders"]


async def send_to(producer: Producer[bytes, bytes], value: bytes, *, partition: int) -> Any:
    return await producer.send("orders", value, partition=partition)


@in_loop
async def test_what_waits_for_a_topic_that_is_not_there_fails_and_frees_its_room() -> None:
    async with producing_to() as (producer, _, _):
        futures = [producer.send("payments", b"x") for _ in range(3)]
        assert producer.buffered_bytes == 3 * (PARKED_COST_BYTES + 15)
        for future in futures:
            with pytest.raises(UnknownTopicError):
                await future
        assert producer.buffered_bytes == 0


@in_loop
async def test_what_waits_for_its_topic_when_the_producer_is_closed_fails() -> None:
    async with peer(orders=[0]) as broker:
        broker.answers[MetadataRequest] = lambda _: SILENCE
        async with Producer(broker.address) as producer:
            future = producer.send("orders", b"x")
            await broker.until(lambda: bool(broker.requests(MetadataRequest)))
            await producer.close(timeout_ms=10)

            with pytest.raises(ClientError, match="closed before this message was sent"):
                await future
            assert producer.buffered_bytes == 0


@in_loop
async def test_a_message_that_the_memory_can_never_hold_is_refused_at_once() -> None:
    async with producing_to(buffer_memory=5_000) as (producer, _, _):
        with pytest.raises(UnsendableError, match=r"more than buffer\.memory"):
            producer.send("orders", bytes(5_000))


@in_loop
async def test_who_awaits_ready_between_sends_is_never_refused() -> None:
    """Not even while the topic is looked up, or when the next message is larger than what room there is."""
    async with peer(orders=[0]) as broker:
        log = Log()
        broker.answers[InitProducerIdRequest] = log.begin
        broker.answers[ProduceRequest] = log.produce
        async with Producer(broker.address, buffer_memory=100_000) as producer:
            sizes = [(number * 7919) % 20_000 for number in range(500)]
            for size in sizes:
                await producer.ready()
                producer.send("orders", bytes(size))
            await producer.flush()

        assert [len(value or b"") for value in log.records["orders", 0]] == sizes
