"""What is fetched ahead: within bounds, not of paused partitions, never what a seek has made stale."""

import asyncio
import itertools
import random
from typing import Any

import pytest

from penstock.client.consumer.consumer import Consumer
from penstock.client.errors import BrokerError, CorruptBatchError, NoPositionError, UnknownTopicError
from penstock.client.metadata import TopicPartition
from penstock.protocol.batch import split
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import NewRecord, build
from penstock.protocol.schemas.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from penstock.protocol.schemas.metadata import MetadataRequest
from penstock.protocol.schemas.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.testing import Broker
from tests.client.consuming import Stage, polling_until, read, values
from tests.client.peer import HANG_UP, SILENCE, Peer, peer, peers
from tests.client.virtual_time import in_virtual_time
from tests.waiting import in_loop

ORDERS = TopicPartition("orders", 0)


@in_loop
async def test_a_partition_that_does_not_exist_is_an_error_of_the_poll(broker: Broker) -> None:
    stage = Stage(broker)
    async with stage.lone_consumer() as consumer:
        await consumer.assign([TopicPartition(stage.topic, 5)])
        with pytest.raises(BrokerError, match="the topic has one partition"):
            await consumer.poll()
        await consumer.assign([TopicPartition(f"{stage.topic}x", 0)])
        with pytest.raises(UnknownTopicError, match=f"did you mean '{stage.topic}'"):
            await polling_until(lambda: False, consumer)


@in_loop
async def test_after_a_seek_nothing_comes_that_was_fetched_before_it(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(5000, batch=100)
    chance = random.Random(4)
    async with stage.lone_consumer(max_partition_fetch_bytes=2000) as consumer:
        await consumer.assign([stage.key])
        for _ in range(60):
            offset = chance.randrange(4900)
            await consumer.seek(stage.key, offset)
            for _ in range(chance.randint(1, 3)):
                messages = await consumer.poll(chance.randint(1, 300))
                assert [m.offset for m in messages] == list(range(offset, offset + len(messages)))
                offset += len(messages)
                assert await consumer.position(stage.key) == offset


@in_loop
async def test_a_paused_partition_is_neither_returned_nor_fetched(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    one, two = stage.keys
    async with stage.lone_consumer() as consumer:
        await consumer.assign([one, two])
        consumer.pause(one)
        assert consumer.paused == {one}
        await stage.fill(10)
        assert {m.partition for m in await read(consumer, 10)} == {1}
        assert await consumer.poll(timeout_ms=50) == []
        assert consumer._subscription.cursors[one].queued_bytes == 0
        consumer.resume(one)
        consumer.pause(two)
        assert {m.partition for m in await read(consumer, 10)} == {0}


@in_loop
async def test_what_was_fetched_before_a_pause_comes_after_it(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    async with stage.lone_consumer() as consumer:
        await consumer.assign([stage.key])
        messages = await consumer.poll(3)
        consumer.pause(stage.key)
        assert await consumer.poll(timeout_ms=30) == []
        consumer.resume()
        messages += await read(consumer, 7)
        assert [m.offset for m in messages] == list(range(10))


@in_loop
async def test_what_is_fetched_ahead_stays_within_its_bound(broker: Broker) -> None:
    stage = Stage(broker, partitions=4)
    batch = [bytes(10_000)] * 2
    for key in stage.keys:
        for _ in range(20):
            await stage.send(*batch, partition=key.partition)
    most = 0
    async with stage.lone_consumer(queued_max_bytes=100_000, max_partition_fetch_bytes=50_000) as consumer:
        await consumer.assign(stage.keys)
        count = 0
        while count < 160:
            count += len(await consumer.poll(1))
            most = max(most, consumer._subscription.queued_bytes)
    assert 50_000 < most <= 100_000 + 21_000


# Against scripted brokers: leaders that move, logs that are cut off, replicas nearby


def serve(broker: Peer, log: bytes = b"", **told: Any) -> None:
    """The same log for every partition, from each offset on; the fields of the answer are as told."""

    def answer(request: FetchRequest) -> FetchResponse:
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        PartitionData(
                            partition_index=each.partition, high_watermark=100, records=log_from(log, each), **told
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    broker.answers[FetchRequest] = answer


def log_from(log: bytes, wanted: FetchPartition) -> bytes:
    return b"".join(bytes(view) for header, view in split(log) if header.next_offset > wanted.fetch_offset)


def batch(base_offset: int, *values: bytes, epoch: int = 0) -> bytes:
    records = [NewRecord(value, timestamp=1) for value in values]
    return bytes(build(records, base_offset=base_offset, leader_epoch=epoch))


def asked(broker: Peer) -> list[tuple[int, int, int]]:
    """Offset, leader epoch and last fetched epoch of all that was asked for."""
    return [
        (each.fetch_offset, each.current_leader_epoch, each.last_fetched_epoch)
        for request in broker.requests(FetchRequest)
        for topic in request.topics
        for each in topic.partitions
    ]


def scripted(broker: Peer, **settings: Any) -> Consumer[Any, Any]:
    return Consumer(bootstrap_servers=broker.address, **{"auto_offset_reset": "earliest", **settings})


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
@in_loop
async def test_the_leader_is_followed_when_it_moves(code: ErrorCode) -> None:
    async with peers(2, orders=[0]) as (first, second), scripted(first) as consumer:
        serve(first, batch(0, b"a"))
        serve(second, batch(0, b"a", b"b"))
        await consumer.assign([ORDERS])
        await consumer.seek(ORDERS, 0)
        assert values(await read(consumer, 1)) == [b"a"]
        first.layout.leaders["orders"] = [1]
        first.layout.epoch = 1
        serve(first, error_code=code)
        assert values(await read(consumer, 1)) == [b"b"]
        # The first fetch from a new leader finds out whether both have the same behind us.
        assert asked(second)[0] == (1, 1, 0)
        assert all(last == -1 for _, _, last in asked(second)[1:])


def naming(broker: Peer, leader: int, epoch: int, *endpoints: Peer, **told: Any) -> None:
    """The broker refuses all fetches, and names the leader (KIP-951)."""
    named = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    serve(broker, **{"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER, "current_leader": named, **told})
    refuse = broker.answers[FetchRequest]

    def answer(request: FetchRequest) -> FetchResponse:
        response: FetchResponse = refuse(request)
        response.node_endpoints = [
            NodeEndpoint(node_id=each.node_id, host="127.0.0.1", port=each.port) for each in endpoints
        ]
        return response

    broker.answers[FetchRequest] = answer


@pytest.mark.parametrize("newest", [16, 18])
@in_loop
async def test_a_fetch_goes_to_the_leader_that_the_refusal_names(newest: int) -> None:
    async with peers(2, orders=[0]) as (first, second), scripted(first) as consumer:
        # Metadata says nothing of the new leader, not even where it is.
        del first.layout.addresses[1]
        first.offer(FetchRequest, 4, newest)
        serve(first, batch(0, b"a"))
        serve(second, batch(0, b"a", b"b"))
        await consumer.assign([ORDERS])
        await consumer.seek(ORDERS, 0)
        assert values(await read(consumer, 1)) == [b"a"]
        naming(first, 1, 1, second)
        assert values(await read(consumer, 1)) == [b"b"]
        # As after any election: the first fetch finds out whether both logs are equal before the position.
        assert asked(second)[0] == (1, 1, 0)
        assert len(first.requests(MetadataRequest)) == 1
        assert consumer.stats().leader_hints == 1


@in_loop
async def test_a_leader_that_fences_an_old_epoch_is_asked_with_the_epoch_that_it_names() -> None:
    async with peer(orders=[0]) as broker, scripted(broker) as consumer:
        serve(broker, batch(0, b"a"))
        accept = broker.answers[FetchRequest]
        naming(broker, 0, 1, error_code=ErrorCode.FENCED_LEADER_EPOCH)
        refuse = broker.answers[FetchRequest]
        broker.answers[FetchRequest] = lambda request: (
            accept(request) if request.topics[0].partitions[0].current_leader_epoch == 1 else refuse(request)
        )
        await consumer.assign([ORDERS])
        await consumer.seek(ORDERS, 0)
        assert values(await read(consumer, 1)) == [b"a"]
        assert len(broker.requests(MetadataRequest)) == 1


@pytest.mark.parametrize(("leader", "epoch"), [(1, 0), (7, 3)])
@in_loop
async def test_a_fetch_follows_no_older_hint_and_none_without_an_address(leader: int, epoch: int) -> None:
    async with peers(2, orders=[0]) as (first, second), scripted(first) as consumer:
        naming(first, leader, epoch)
        serve(second, batch(0, b"a"))
        await consumer.assign([ORDERS])
        await consumer.seek(ORDERS, 0)
        await polling_until(lambda: len(first.requests(MetadataRequest)) > 1, consumer)
        assert second.requests(FetchRequest) == []
        first.layout.leaders["orders"], first.layout.epoch = [1], 3
        assert values(await read(consumer, 1)) == [b"a"]
        assert consumer.stats().leader_hints == 0


@in_loop
async def test_a_leader_that_hangs_up_is_asked_again() -> None:
    async with peer(orders=[0]) as broker, scripted(broker) as consumer:
        await consumer.assign([ORDERS])
        await consumer.seek(ORDERS, 0)
        broker.answers[FetchRequest] = lambda _: HANG_UP
        assert await consumer.poll(timeout_ms=20) == []
        serve(broker, batch(0, b"a"))
        assert values(await read(consumer, 1)) == [b"a"]


@pytest.mark.parametrize("reset", ["earliest", "none"])
@in_loop
async def test_a_log_that_was_cut_off_behind_us_is_read_from_there_or_told(reset: str) -> None:
    async with peers(2, orders=[0]) as (first, second), scripted(first, auto_offset_reset=reset) as consumer:
        serve(first, batch(0, b"a", b"b", b"c", epoch=3))
        await consumer.assign([ORDERS])
        await consumer.seek(ORDERS, 0)
        assert values(await read(consumer, 3)) == [b"a", b"b", b"c"]
        first.layout.leaders["orders"] = [1]
        first.layout.epoch = 4
        serve(first, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        diverging = EpochEndOffset(epoch=2, end_offset=1)
        serve(second, diverging_epoch=diverging)
        if reset == "none":
            with pytest.raises(NoPositionError, match="orders-0: the log was cut off at offset 1 and we were at 3"):
                await polling_until(lambda: False, consumer)
            assert asked(second)[0] == (3, 4, 3)
            await consumer.seek(ORDERS, 1)
        else:
            await polling_until(lambda: asked(second)[:1] == [(3, 4, 3)], consumer)
        serve(second, batch(0, b"a", epoch=3) + batch(1, b"x", epoch=4))
        assert values(await read(consumer, 1)) == [b"x"]
        assert await consumer.position(ORDERS) == 2


@in_loop
async def test_a_replica_nearby_is_read_until_it_fails() -> None:
    async with peers(2, orders=[0]) as (first, second), scripted(first, client_rack="r1") as consumer:
        serve(first, preferred_read_replica=1)
        serve(second, batch(0, b"a"))
        await consumer.assign([ORDERS])
        await consumer.seek(ORDERS, 0)
        assert values(await read(consumer, 1)) == [b"a"]
        assert first.requests(FetchRequest)[0].rack_id == "r1"
        # It has less than the leader: that is no reason to begin anew.
        serve(second, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        serve(first, batch(0, b"a", b"b"))
        assert values(await read(consumer, 1)) == [b"b"]


@in_loop
async def test_an_error_that_does_not_pass_is_raised_by_the_poll() -> None:
    async with peer(orders=[0]) as broker, scripted(broker) as consumer:
        serve(broker, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        await consumer.assign([ORDERS])
        await consumer.seek(ORDERS, 0)
        with pytest.raises(BrokerError, match="orders-0: you may not do this with the topic"):
            await consumer.poll()


@in_loop
async def test_a_damaged_batch_is_raised_and_a_seek_goes_on_behind_it() -> None:
    damaged = bytearray(batch(1, b"b"))
    damaged[-2] ^= 1
    async with peer(orders=[0]) as broker, scripted(broker) as consumer:
        serve(broker, batch(0, b"a") + bytes(damaged) + batch(2, b"c"))
        await consumer.assign([ORDERS])
        await consumer.seek(ORDERS, 0)
        assert values(await read(consumer, 1)) == [b"a"]
        for _ in range(2):
            with pytest.raises(CorruptBatchError, match="the batch at offset 1 cannot be read"):
                await polling_until(lambda: False, consumer)
        await consumer.seek(ORDERS, 2)
        assert values(await read(consumer, 1)) == [b"c"]


@in_loop
async def test_quiet_partitions_do_not_hold_up_the_one_that_was_just_read() -> None:
    """A fetch that waits for their news is left waiting, and another one sent."""
    async with peer(orders=[0, 0]) as broker, scripted(broker, max_partition_fetch_bytes=100) as consumer:
        quiet: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        log = b"".join(batch(offset, b"x" * 200) for offset in range(5))
        serve(broker, log)
        everything = broker.answers[FetchRequest]

        async def answer(request: FetchRequest) -> FetchResponse:
            wanted = {each.partition for topic in request.topics for each in topic.partitions}
            if wanted == {1}:
                await quiet
            response: FetchResponse = everything(request)
            for data in response.responses[0].partitions:
                records = split(data.records) if data.partition_index == 0 else []  # type: ignore[arg-type]
                data.records = bytes(records[0][1]) if records else b""
            return response

        broker.answers[FetchRequest] = answer
        await consumer.assign([ORDERS, TopicPartition("orders", 1)])
        await consumer.seek(ORDERS, 0)
        await consumer.seek(TopicPartition("orders", 1), 0)
        assert [message.offset for message in await read(consumer, 5)] == list(range(5))
        quiet.set_result(None)


@pytest.mark.parametrize("newest", [4, 11, 12, 18])
@in_loop
async def test_older_brokers_are_fetched_from_too(newest: int) -> None:
    async with peer(orders=[0]) as broker, scripted(broker) as consumer:
        broker.offer(FetchRequest, 4, newest)
        serve(broker, batch(0, b"a"))
        await consumer.assign([ORDERS])
        await consumer.seek(ORDERS, 0)
        assert values(await read(consumer, 1)) == [b"a"]
        assert set(broker.versions_of(FetchRequest)) == {newest}


# Pauses, against a clock that only waiting moves

MOST_REQUESTS = 1_000
"""From so many on a scripted broker is silent: a client that does not pause would never let the clock go on."""


def listing(broker: Peer, offset: int) -> None:
    """Says of every partition that it begins and ends there."""

    def answer(request: ListOffsetsRequest) -> object:
        if len(broker.requests(ListOffsetsRequest)) > MOST_REQUESTS:
            return SILENCE
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=offset)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    broker.answers[ListOffsetsRequest] = answer


@in_virtual_time
async def test_between_resets_of_an_offset_that_is_never_in_range_there_are_pauses() -> None:
    async with peer(orders=[0]) as broker, scripted(broker) as consumer:
        listing(broker, 5)
        serve(broker, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        await consumer.assign([ORDERS])
        assert await consumer.poll(timeout_ms=20_000) == []
        assert 10 < len(broker.requests(FetchRequest)) < 40
        assert 10 < len(broker.requests(ListOffsetsRequest)) < 40
        # One reset is nothing special: the log is read on at once.
        serve(broker, batch(5, b"a"))
        assert values(await read(consumer, 1)) == [b"a"]
        assert consumer._subscription.cursors[ORDERS].resets == 0


@in_virtual_time
async def test_one_reset_is_followed_by_a_fetch_without_a_pause() -> None:
    async with peer(orders=[0]) as broker, scripted(broker) as consumer:
        listing(broker, 5)
        serve(broker, batch(5, b"a"))
        everything = broker.answers[FetchRequest]

        def answer(request: FetchRequest) -> FetchResponse:
            response: FetchResponse = everything(request)
            if request.topics[0].partitions[0].fetch_offset < 5:
                [data] = response.responses[0].partitions
                data.error_code, data.records = ErrorCode.OFFSET_OUT_OF_RANGE, b""
            return response

        broker.answers[FetchRequest] = answer
        await consumer.assign([ORDERS])
        await consumer.seek(ORDERS, 1)
        began = asyncio.get_running_loop().time()
        assert values(await read(consumer, 1)) == [b"a"]
        assert asyncio.get_running_loop().time() - began < 0.01


@in_virtual_time
async def test_who_polls_a_damaged_batch_again_and_again_fetches_it_after_pauses_and_a_seek_needs_none() -> None:
    damaged = bytearray(batch(0, b"b"))
    damaged[-2] ^= 1
    async with peer(orders=[0]) as broker, scripted(broker) as consumer:
        serve(broker, bytes(damaged) + batch(1, b"c"))
        await consumer.assign([ORDERS])
        await consumer.seek(ORDERS, 0)
        loop = asyncio.get_running_loop()
        began, errors = loop.time(), 0
        while loop.time() - began < 10 and errors < MOST_REQUESTS:
            with pytest.raises(CorruptBatchError):
                await consumer.poll(timeout_ms=None)
            errors += 1
        assert 50 < errors < 150
        assert len(broker.requests(FetchRequest)) < 2 * errors + 2
        await consumer.seek(ORDERS, 1)
        began = loop.time()
        assert values(await read(consumer, 1)) == [b"c"]
        assert loop.time() - began < 0.01


@pytest.mark.parametrize("lanes", [1, 2])
@in_virtual_time
async def test_nothing_is_fetched_of_a_broker_for_as_long_as_it_throttles(lanes: int) -> None:
    async with peer(orders=[0, 0]) as broker, scripted(broker, max_partition_fetch_bytes=100) as consumer:
        log = b"".join(batch(offset, b"x" * 200) for offset in range(100))
        serve(broker, log)
        everything = broker.answers[FetchRequest]
        times: list[float] = []

        def answer(request: FetchRequest) -> FetchResponse:
            times.append(asyncio.get_running_loop().time())
            response: FetchResponse = everything(request)
            response.throttle_time_ms = 5_000
            for data in response.responses[0].partitions:
                data.records = bytes(split(data.records)[0][1])  # type: ignore[arg-type]
            return response

        broker.answers[FetchRequest] = answer
        keys = [TopicPartition("orders", number) for number in range(lanes)]
        await consumer.assign(keys)
        for key in keys:
            await consumer.seek(key, 0)
        await read(consumer, 10, timeout_ms=None)
        # A fetch that was under way on the other lane may end meanwhile; nothing is begun.
        pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert sum(pause < 4.9 for pause in pauses) <= lanes - 1
        assert sum(pauses) >= 5 * (10 // lanes - 2)


@in_virtual_time
async def test_an_old_broker_that_has_waited_itself_is_not_waited_for_again() -> None:
    async with peer(orders=[0]) as broker, scripted(broker) as consumer:
        broker.offer(FetchRequest, 4, 7)
        serve(broker, batch(0, b"a") + batch(1, b"b"))
        everything = broker.answers[FetchRequest]

        def answer(request: FetchRequest) -> FetchResponse:
            response: FetchResponse = everything(request)
            response.throttle_time_ms = 5_000
            for data in response.responses[0].partitions:
                data.records = bytes(split(data.records)[0][1]) if data.records else b""  # type: ignore[arg-type]
            return response

        broker.answers[FetchRequest] = answer
        await consumer.assign([ORDERS])
        await consumer.seek(ORDERS, 0)
        began = asyncio.get_running_loop().time()
        await read(consumer, 2, timeout_ms=None)
        assert asyncio.get_running_loop().time() - began < 1
