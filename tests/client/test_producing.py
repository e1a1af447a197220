"""Plain produce against scripted brokers: what is on the wire, and that no batch is written twice."""

import asyncio
import time
from typing import Any

import pytest

from penstock.client import producing
from penstock.client.cluster import Cluster
from penstock.client.errors import (
    BadReplyError,
    BrokerError,
    ConnectionLostError,
    TimedOutError,
    UnknownTopicError,
    UnsendableError,
)
from penstock.client.producing import Acks, produce
from penstock.protocol.batch import check_produced, split, verify
from penstock.protocol.compression import Codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import NewRecord, iterate
from penstock.protocol.schemas.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.client.peer import HANG_UP, SILENCE, Peer, in_loop, peer, peers, topic_id

RECORDS = [
    NewRecord(b"value" * 100, b"key", [("name", b"header"), ("empty", None)], 1_700_000_000_000),
    NewRecord(None, b"tombstone", timestamp=1_700_000_000_001),
]


def acknowledge(request: ProduceRequest, **told: Any) -> ProduceResponse | None:
    if request.acks == 0:
        return None
    topic = request.topic_data[0]
    refused = told.get("error_code", 0) != 0
    told = {"index": topic.partition_data[0].index, "base_offset": -1 if refused else 40} | told
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=[PartitionProduceResponse(**told)]
            )
        ]
    )


def batch_of(broker: Peer) -> memoryview:
    (request,) = broker.requests(ProduceRequest)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    return records


@pytest.mark.parametrize("codec", Codec)
@in_loop
async def test_a_batch_arrives_as_it_was_given(codec: Codec) -> None:
    async with peer(orders=[0, 0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[ProduceRequest] = acknowledge
        assert await produce(cluster, "orders", 1, RECORDS, codec=codec) == 40
        ((header, view),) = split(batch_of(broker))
        verify(header, view)
        check_produced(header)
        assert header.codec is codec
        assert [NewRecord(each.value, each.key, list(each.headers), each.timestamp) for each in iterate(view)] == [
            record._replace(headers=list(record.headers)) for record in RECORDS
        ]


@pytest.mark.parametrize(("acks", "offset"), [(Acks.NONE, -1), (Acks.LEADER, 40), (Acks.ALL, 40)])
@in_loop
async def test_the_broker_hears_what_to_wait_for(acks: Acks, offset: int) -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[ProduceRequest] = acknowledge
        assert await produce(cluster, "orders", 0, RECORDS, acks=acks, timeout_ms=20_000) == offset
        await broker.until(lambda: len(broker.requests(ProduceRequest)) == 1)
        assert broker.requests(ProduceRequest)[0].acks == acks
        assert broker.requests(ProduceRequest)[0].timeout_ms == 20_000


@pytest.mark.parametrize("newest", [3, 9, 12, 13])
@in_loop
async def test_a_topic_goes_by_its_id_where_the_broker_knows_ids_and_by_its_name_elsewhere(newest: int) -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.offer(ProduceRequest, 0, newest)
        broker.answers[ProduceRequest] = acknowledge
        assert await produce(cluster, "orders", 0, RECORDS) == 40
        assert broker.versions_of(ProduceRequest) == [newest]
        topic = broker.requests(ProduceRequest)[0].topic_data[0]
        assert (topic.name, topic.topic_id) == (("", topic_id("orders")) if newest >= 13 else ("orders", bytes(16)))


@in_loop
async def test_a_record_without_a_timestamp_gets_the_present_one() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[ProduceRequest] = acknowledge
        before_ms = time.time_ns() // 1_000_000
        await produce(cluster, "orders", 0, [NewRecord(b"now"), NewRecord(b"then", timestamp=5)])
        now, then = (record.timestamp for record in iterate(batch_of(broker)))
        assert before_ms <= now <= time.time_ns() // 1_000_000
        assert then == 5


@in_loop
async def test_a_refused_batch_goes_to_the_new_leader() -> None:
    async with peers(2, orders=[0]) as (first, second), Cluster(first.address) as cluster:

        def refuse(request: ProduceRequest) -> ProduceResponse | None:
            first.layout.leaders["orders"] = [1]
            return acknowledge(request, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)

        first.answers[ProduceRequest] = refuse
        second.answers[ProduceRequest] = acknowledge
        assert await produce(cluster, "orders", 0, RECORDS) == 40
        assert len(second.requests(ProduceRequest)) == 1


@in_loop
async def test_a_topic_that_was_created_anew_is_produced_to_under_its_new_id() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:

        def answer(request: ProduceRequest) -> ProduceResponse | None:
            known = broker.layout.ids["orders"] == request.topic_data[0].topic_id
            return acknowledge(request, error_code=0 if known else ErrorCode.UNKNOWN_TOPIC_ID)

        broker.answers[ProduceRequest] = answer
        for identity in (b"1" * 16, b"2" * 16):
            broker.layout.ids["orders"] = identity
            assert await produce(cluster, "orders", 0, RECORDS) == 40
        assert len(broker.requests(ProduceRequest)) == 3


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
@in_loop
async def test_a_batch_that_may_have_been_written_is_not_sent_again(code: ErrorCode) -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[ProduceRequest] = lambda request: acknowledge(request, error_code=code)
        with pytest.raises(BrokerError, match=code.name) as caught:
            await produce(cluster, "orders", 0, RECORDS)
        assert caught.value.outcome_unknown
        assert len(broker.requests(ProduceRequest)) == 1


@in_loop
async def test_a_batch_that_a_leader_had_written_before_it_lost_its_office_is_not_sent_again() -> None:
    """A real Kafka answers so when it is stopped in good order: the new leader may have the batch already."""
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[ProduceRequest] = lambda request: acknowledge(
            request, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=40
        )
        with pytest.raises(BrokerError, match="look before you send it again") as caught:
            await produce(cluster, "orders", 0, RECORDS)
        assert caught.value.outcome_unknown
        assert len(broker.requests(ProduceRequest)) == 1


@in_loop
async def test_a_batch_whose_connection_was_lost_is_not_sent_again() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[ProduceRequest] = lambda _: HANG_UP
        with pytest.raises(ConnectionLostError) as caught:
            await produce(cluster, "orders", 0, RECORDS)
        assert caught.value.outcome_unknown
        assert len(broker.requests(ProduceRequest)) == 1


@in_loop
async def test_a_batch_without_an_acknowledgement_in_time_has_an_unknown_outcome() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[ProduceRequest] = lambda _: SILENCE
        await cluster.topic("orders")
        with pytest.raises(TimedOutError) as caught:
            await produce(cluster, "orders", 0, RECORDS, timeout_ms=500)
        assert caught.value.outcome_unknown


@in_loop
async def test_a_refusal_says_which_records_were_wrong() -> None:
    async with peer(compacted=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[ProduceRequest] = lambda request: acknowledge(
            request,
            error_code=ErrorCode.INVALID_RECORD,
            error_message="one record has no key",
            record_errors=[BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")],
        )
        with pytest.raises(BrokerError, match="compacted-0: one record has no key; record 1: no key") as caught:
            await produce(cluster, "compacted", 0, RECORDS)
        assert caught.value.code is ErrorCode.INVALID_RECORD
        assert len(broker.requests(ProduceRequest)) == 1


@in_loop
async def test_an_answer_for_another_partition_is_not_believed() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[ProduceRequest] = lambda request: acknowledge(request, index=1)
        with pytest.raises(BadReplyError) as caught:
            await produce(cluster, "orders", 0, RECORDS)
        assert caught.value.outcome_unknown


@in_loop
async def test_many_batches_are_in_flight_at_once_and_in_order() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        await cluster.topic("orders")
        released = asyncio.Event()

        async def answer(request: ProduceRequest) -> ProduceResponse | None:
            if len(broker.requests(ProduceRequest)) == 20:
                released.set()
            await released.wait()
            return acknowledge(request)

        broker.answers[ProduceRequest] = answer
        sending = (produce(cluster, "orders", 0, [NewRecord(b"%d" % number)]) for number in range(20))
        assert await asyncio.gather(*sending) == [40] * 20
        values = [
            next(iterate(request.topic_data[0].partition_data[0].records)).value  # type: ignore[arg-type]
            for request in broker.requests(ProduceRequest)
        ]
        assert values == [b"%d" % number for number in range(20)]


@in_loop
async def test_what_cannot_be_a_batch_is_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        with pytest.raises(ValueError, match="no records to produce to orders-0"):
            await produce(cluster, "orders", 0, [])
        with pytest.raises(UnsendableError, match="64 bits"):
            await produce(cluster, "orders", 0, [NewRecord(b"", timestamp=2**63)])
        monkeypatch.setattr(producing, "MAX_BATCH_BYTES", 1000)
        with pytest.raises(UnsendableError, match="send fewer records at once"):
            await produce(cluster, "orders", 0, [NewRecord(bytes(1000))])
        assert broker.opened == 0


@in_loop
async def test_an_unknown_topic_is_told_with_near_names() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        with pytest.raises(UnknownTopicError, match="did you mean 'orders'"):
            await produce(cluster, "order", 0, RECORDS)
        assert not broker.requests(ProduceRequest)
