"""Plain fetch against scripted brokers: whole batches only, records from the offset on, leaders that move."""

from typing import Any

import pytest

from penstock.client.cluster.cluster import Cluster, Target
from penstock.client.corruption import PassedOver
from penstock.client.errors import (
    BrokerError,
    ClientError,
    CorruptBatchError,
    TimedOutError,
    UnknownPartitionError,
    UnknownTopicError,
    unwrap,
)
from penstock.client.metadata import TopicPartition
from penstock.client.plain.fetch import Fetched, WantedPartition, fetch, fetch_many, fetch_request
from penstock.protocol.batch import split, stamp
from penstock.protocol.compression import Codec
from penstock.protocol.control import ControlType, build_end_marker
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import NewRecord, build
from penstock.protocol.schemas.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from penstock.protocol.schemas.metadata import MetadataRequest
from tests.client.peer import SILENCE, Peer, peer, peers, topic_id
from tests.hostile import poison
from tests.waiting import in_loop

ORDERS = TopicPartition("orders", 0)


def batch(base_offset: int, *values: bytes, **options: Any) -> bytes:
    records = [NewRecord(value, timestamp=1000) for value in values]
    return bytes(build(records, base_offset=base_offset, **options))


def serve(broker: Peer, data: bytes = b"", **told: Any) -> None:
    """The same for every partition that the broker leads."""
    told = {"high_watermark": 100, "log_start_offset": 2} | told

    def answer(request: FetchRequest) -> FetchResponse:
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        PartitionData(partition_index=each.partition, records=data, **told) for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    broker.answers[FetchRequest] = answer


async def values_from(cluster: Cluster, offset: int) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in (await fetch(cluster, "orders", 0, offset)).records()]


@pytest.mark.parametrize("codec", Codec)
@in_loop
async def test_records_come_from_the_offset_on_whatever_their_batch_begins_with(codec: Codec) -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        serve(broker, batch(10, b"a", b"b", b"c", codec=codec) + batch(13, b"d", codec=codec))
        assert await values_from(cluster, 11) == [(11, b"b"), (12, b"c"), (13, b"d")]
        assert await values_from(cluster, 13) == [(13, b"d")]


@in_loop
async def test_what_the_broker_says_of_the_partition_is_told() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        serve(broker, batch(10, b"a", b"b"))
        fetched = await fetch(cluster, "orders", 0, 10)
        assert (fetched.partition, fetched.offset, fetched.next_offset) == (ORDERS, 10, 12)
        assert (fetched.high_watermark, fetched.log_start_offset) == (100, 2)


@in_loop
async def test_the_broker_hears_how_much_and_how_long() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.layout.epoch = 7
        serve(broker)
        await fetch(cluster, "orders", 0, 10, max_bytes=1000, max_wait_ms=20, min_bytes=3)
        (request,) = broker.requests(FetchRequest)
        (wanted,) = request.topics[0].partitions
        assert (request.max_bytes, request.max_wait_ms, request.min_bytes) == (1000, 20, 3)
        assert (wanted.fetch_offset, wanted.partition_max_bytes, wanted.current_leader_epoch) == (10, 1000, 7)
        assert (request.session_id, request.session_epoch, request.replica_id) == (0, -1, -1)


@in_loop
async def test_the_broker_hears_whether_open_transactions_count() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        serve(broker)
        for read_committed in (False, True):
            await fetch_many(cluster, {ORDERS: 0}, read_committed=read_committed)
        assert [request.isolation_level for request in broker.requests(FetchRequest)] == [0, 1]


@pytest.mark.parametrize("newest", [4, 11, 12, 13, 18])
@in_loop
async def test_a_topic_goes_by_its_id_where_the_broker_knows_ids_and_by_its_name_elsewhere(newest: int) -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.offer(FetchRequest, 4, newest)
        serve(broker, batch(0, b"a"))
        assert await values_from(cluster, 0) == [(0, b"a")]
        assert broker.versions_of(FetchRequest) == [newest]
        topic = broker.requests(FetchRequest)[0].topics[0]
        assert (topic.topic, topic.topic_id) == (("", topic_id("orders")) if newest >= 13 else ("orders", bytes(16)))


@pytest.mark.parametrize("data", [b"", None], ids=["empty", "null"])
@in_loop
async def test_nothing_new_is_no_error(data: bytes | None) -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        serve(broker, data)  # type: ignore[arg-type]
        fetched = await fetch(cluster, "orders", 0, 10)
        assert list(fetched.records()) == []
        assert fetched.next_offset == 10


@pytest.mark.parametrize("cut", [1, 30, 61])
@in_loop
async def test_a_batch_that_was_cut_off_at_the_end_is_left_for_the_next_fetch(cut: int) -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        serve(broker, batch(10, b"a") + batch(11, b"b")[:cut])
        fetched = await fetch(cluster, "orders", 0, 10)
        assert [record.value for record in fetched.records()] == [b"a"]
        assert fetched.next_offset == 11


@in_loop
async def test_after_compaction_the_next_fetch_begins_behind_what_the_batch_covered() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        serve(broker, batch(10, b"a", offset_deltas=[2], last_offset_delta=9))
        fetched = await fetch(cluster, "orders", 0, 10)
        assert [record.offset for record in fetched.records()] == [12]
        assert fetched.next_offset == 20


@in_loop
async def test_control_records_are_passed_over() -> None:
    marker = build_end_marker(
        ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=11
    )
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        serve(broker, batch(10, b"a") + bytes(marker))
        fetched = await fetch(cluster, "orders", 0, 10)
        assert [record.offset for record in fetched.records()] == [10]
        assert fetched.next_offset == 12


@in_loop
async def test_a_damaged_batch_is_found_when_its_records_are_read_and_not_before() -> None:
    damaged = bytearray(batch(11, b"b"))
    damaged[-1] ^= 1
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        serve(broker, batch(10, b"a") + damaged)
        records = (await fetch(cluster, "orders", 0, 10)).records()
        assert next(records).value == b"a"
        with pytest.raises(CorruptBatchError, match="orders-0: the batch at offset 11 cannot be read"):
            next(records)


@pytest.mark.parametrize(
    "garbage",
    [b"\x00" * 100, b"\xff" * 100, b"x", batch(0, b"a")[:-1]],
    ids=["zeros", "ones", "short", "cut off first"],
)
@in_loop
async def test_what_is_no_batch_is_an_error_and_not_an_empty_answer(garbage: bytes) -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        serve(broker, garbage)
        with pytest.raises(CorruptBatchError, match="orders-0"):
            await fetch(cluster, "orders", 0, 0)


@in_loop
async def test_what_comes_before_something_that_is_no_batch_is_fetched_first() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        serve(broker, batch(0, b"a") + b"\x00" * 100)
        fetched = await fetch(cluster, "orders", 0, 0)
        assert ([record.value for record in fetched.records()], fetched.next_offset) == ([b"a"], 1)


@in_loop
async def test_a_batch_that_cannot_be_read_gives_none_of_its_records_and_can_be_passed_over() -> None:
    poisoned = bytearray(poison.count_too_low())
    stamp(poisoned, 1, 0)
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        serve(broker, batch(0, b"a") + bytes(poisoned) + batch(3, b"b"))
        fetched = await fetch(cluster, "orders", 0, 0)
        records = fetched.records()
        assert next(records).value == b"a"
        with pytest.raises(CorruptBatchError) as caught:
            next(records)
        assert (caught.value.partition, caught.value.offset, caught.value.next_offset) == (ORDERS, 1, 3)
        passed_over = PassedOver(lambda line: None)
        assert [record.value for record in fetched.records(passed_over)] == [b"a", b"b"]
        assert passed_over.count == 1


def test_next_offset_never_goes_back() -> None:
    stale = Fetched(ORDERS, 50, 100, 0, split(batch(10, b"a")))
    assert stale.next_offset == 50
    assert list(stale.records()) == []


@in_loop
async def test_an_offset_out_of_range_is_named() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        serve(broker, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=-1)
        with pytest.raises(BrokerError, match="offset 999 of orders-0") as caught:
            await fetch(cluster, "orders", 0, 999)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert len(broker.requests(FetchRequest)) == 1


@in_loop
async def test_partitions_of_several_leaders_come_together() -> None:
    async with peers(2, orders=[0, 1, 1], clicks=[0]) as (first, second), Cluster(first.address) as cluster:
        serve(first, batch(0, b"first"))
        serve(second, batch(0, b"second"))
        keys = [TopicPartition("orders", number) for number in range(3)] + [TopicPartition("clicks", 0)]
        fetched = unwrap(await fetch_many(cluster, dict.fromkeys(keys, 0)))
        assert [next(fetched[key].records()).value for key in keys] == [b"first", b"second", b"second", b"first"]
        assert [len(request.topics[0].partitions) for request in second.requests(FetchRequest)] == [2]


@in_loop
async def test_one_partition_that_fails_takes_no_other_with_it() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        serve(broker, batch(0, b"a"))
        missing, unknown = TopicPartition("orders", 5), TopicPartition("ordes", 0)
        outcomes = await fetch_many(cluster, {missing: 0, ORDERS: 0, unknown: 0})
        assert list(outcomes) == [missing, ORDERS, unknown]
        assert isinstance(outcomes[missing], UnknownPartitionError)
        assert isinstance(outcomes[unknown], UnknownTopicError)
        assert not isinstance(outcomes[ORDERS], ClientError)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH])
@in_loop
async def test_a_fetch_follows_the_leader_when_it_moves(code: ErrorCode) -> None:
    async with peers(2, orders=[0]) as (first, second), Cluster(first.address) as cluster:
        await cluster.topic("orders")
        first.layout.leaders["orders"] = [1]
        first.layout.epoch = 1
        serve(first, error_code=code)
        serve(second, batch(0, b"a"))
        assert await values_from(cluster, 0) == [(0, b"a")]
        assert second.requests(FetchRequest)[0].topics[0].partitions[0].current_leader_epoch == 1


@in_loop
async def test_a_topic_that_was_created_anew_is_fetched_under_its_new_id() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        serve(broker, batch(0, b"a"))
        found = broker.answers[FetchRequest]

        def answer(request: FetchRequest) -> FetchResponse:
            response: FetchResponse = found(request)
            if request.topics[0].topic_id != broker.layout.ids["orders"]:
                response.responses[0].partitions[0].error_code = ErrorCode.UNKNOWN_TOPIC_ID
            return response

        broker.answers[FetchRequest] = answer
        for identity in (b"1" * 16, b"2" * 16):
            broker.layout.ids["orders"] = identity
            assert await values_from(cluster, 0) == [(0, b"a")]
        assert len(broker.requests(MetadataRequest)) == 2


@in_loop
async def test_an_error_of_the_whole_fetch_is_an_error_of_each_partition() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[FetchRequest] = lambda _: FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        with pytest.raises(BrokerError, match=r"a fetch of orders-0.*INVALID_REQUEST"):
            await fetch(cluster, "orders", 0, 0)


@in_loop
async def test_a_fetch_that_the_broker_holds_back_as_it_was_asked_to_is_not_late() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address, request_timeout_ms=500) as cluster:
        serve(broker, batch(0, b"a"))
        found = broker.answers[FetchRequest]

        async def hold(request: FetchRequest) -> FetchResponse:
            # As long as it takes another request, which the broker has no leave to hold back, to time out.
            broker.answers[MetadataRequest] = lambda _: SILENCE
            with pytest.raises(TimedOutError):
                await cluster.topic("orders", fresh=True, timeout_ms=600)
            response: FetchResponse = found(request)
            return response

        broker.answers[FetchRequest] = hold
        fetched = await fetch(cluster, "orders", 0, 0, max_wait_ms=10_000, timeout_ms=500)
        assert [record.value for record in fetched.records()] == [b"a"]


def test_a_request_groups_partitions_by_topic_in_their_order() -> None:
    a, b = topic_id("a"), topic_id("b")
    request = fetch_request(
        [
            WantedPartition(Target("b", b, 1, 7), 10, last_fetched_epoch=6),
            WantedPartition(Target("a", a, 0, 3), 20),
            WantedPartition(Target("b", b, 0, 8), 30),
        ],
        max_bytes=100,
        partition_max_bytes=200,
        max_wait_ms=5,
        min_bytes=2,
        read_committed=True,
        rack_id="r",
    )
    assert [(topic.topic, topic.topic_id) for topic in request.topics] == [("b", b), ("a", a)]
    assert [
        (each.partition, each.current_leader_epoch, each.fetch_offset, each.last_fetched_epoch)
        for topic in request.topics
        for each in topic.partitions
    ] == [(1, 7, 10, 6), (0, 8, 30, -1), (0, 3, 20, -1)]
    assert {each.partition_max_bytes for topic in request.topics for each in topic.partitions} == {100}
    assert (request.max_bytes, request.max_wait_ms, request.min_bytes) == (100, 5, 2)
    assert (request.isolation_level, request.rack_id) == (1, "r")
