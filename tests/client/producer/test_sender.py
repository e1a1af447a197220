"""The sender against scripted brokers: order, retries, epochs, splits, and the end of every wait."""

import asyncio
from typing import Any

import pytest

from penstock.client.errors import BrokerError, TimedOutError
from penstock.client.producer.producer import Producer
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.metadata import MetadataRequest
from penstock.protocol.schemas.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.protocol.schemas.transactions import InitProducerIdRequest, InitProducerIdResponse
from tests.client.peer import HANG_UP, SILENCE, Peer, peers, topic_id
from tests.client.produce_peer import NAMES, PRODUCER_ID, Answer, Log, got, producing_to, refused
from tests.waiting import in_loop

# Each message has a batch, and each batch a request, of its own.
ONE_BY_ONE: dict[str, Any] = {"max_request_size": 600, "batch_size": 1}
VALUES = [b"%d" % number for number in range(8)]


async def send_all(producer: Producer[bytes, bytes], values: list[bytes] = VALUES) -> list[Any]:
    """What has become of each."""
    futures = [producer.send("orders", value) for value in values]
    return await asyncio.gather(*futures, return_exceptions=True)


@in_loop
async def test_batches_are_numbered_and_answered_in_order() -> None:
    async with producing_to(**ONE_BY_ONE) as (producer, log, _):
        results = await send_all(producer)

        assert [each.offset for each in results] == list(range(8))
        assert [(each.epoch, each.sequence) for each in log.batches] == [(0, number) for number in range(8)]
        assert log.records["orders", 0] == VALUES


@in_loop
async def test_no_more_requests_are_in_flight_than_allowed() -> None:
    async with producing_to(**ONE_BY_ONE) as (producer, log, [broker]):
        gate = asyncio.Event()

        async def answer(request: ProduceRequest) -> ProduceResponse:
            await gate.wait()
            return log.produce(request)  # type: ignore[no-any-return]

        broker.answers[ProduceRequest] = answer
        sending = asyncio.ensure_future(send_all(producer))
        await broker.until(lambda: len(broker.requests(ProduceRequest)) == 5)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(broker.requests(ProduceRequest)) == 5
        gate.set()

        assert [each.offset for each in await sending] == list(range(8))


@in_loop
async def test_a_full_batch_grows_on_while_its_broker_is_busy() -> None:
    async with producing_to(batch_size=80, max_in_flight_requests_per_connection=1) as (producer, log, [broker]):
        gate = asyncio.Event()

        async def answer(request: ProduceRequest) -> ProduceResponse:
            await gate.wait()
            return log.produce(request)  # type: ignore[no-any-return]

        broker.answers[ProduceRequest] = answer
        first = producer.send("orders", b"first")
        await broker.until(lambda: len(broker.requests(ProduceRequest)) == 1)
        others = asyncio.ensure_future(send_all(producer))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(first, others)

        assert [each.values for each in log.batches] == [(b"first",), tuple(VALUES)]


@in_loop
async def test_what_a_lost_connection_takes_with_it_is_sent_again_in_order_under_the_same_numbers() -> None:
    async with producing_to(**ONE_BY_ONE) as (producer, log, [broker]):
        seen: list[bytes | None] = []

        def hang_up_once(request: ProduceRequest) -> Any:
            [batch] = got(request, {topic.topic_id: "orders" for topic in request.topic_data})
            seen.extend(batch.values)
            if len(seen) == 5:
                broker.answers[ProduceRequest] = log.produce
                return HANG_UP
            return SILENCE

        broker.answers[ProduceRequest] = hang_up_once
        results = await send_all(producer)

        assert seen == VALUES[:5]
        assert [each.offset for each in results] == list(range(8))
        assert [each.sequence for each in log.batches] == list(range(8))
        assert log.records["orders", 0] == VALUES


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]
)
def test_what_may_go_better_is_tried_again_in_order(code: ErrorCode) -> None:
    @in_loop
    async def test() -> None:
        out_of_order = [refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) for _ in range(4)]
        async with producing_to(refused(code), *out_of_order, **ONE_BY_ONE) as (producer, log, _):
            results = await send_all(producer)

            assert [each.offset for each in results] == list(range(8))
            assert log.records["orders", 0] == VALUES
            assert {each.epoch for each in log.batches} == {0}

    test()


@in_loop
async def test_a_gap_that_the_broker_sees_begins_a_new_epoch() -> None:
    def judge(batch: Any) -> Answer:
        is_behind_gap = batch.epoch == 0 and batch.sequence > 0
        return refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) if is_behind_gap else Answer()

    async with producing_to(*[judge] * 30, **ONE_BY_ONE) as (producer, log, _):
        results = await send_all(producer)

        assert [each.offset for each in results] == list(range(8))
        assert log.records["orders", 0] == VALUES
        assert [(each.epoch, each.sequence) for each in log.batches[-7:]] == [(1, number) for number in range(7)]


@in_loop
async def test_a_broker_that_has_forgotten_the_producer_gets_a_new_epoch() -> None:
    async with producing_to(refused(ErrorCode.UNKNOWN_PRODUCER_ID)) as (producer, log, _):
        result = await producer.send("orders", b"paid")

        assert result.offset == 0
        assert [(each.epoch, each.sequence) for each in log.batches] == [(0, 0), (1, 0)]


@in_loop
async def test_a_duplicate_that_the_broker_knows_no_place_of_counts_as_sent() -> None:
    async with producing_to(refused(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)) as (producer, _, _):
        assert (await producer.send("orders", b"paid")).offset == -1


@in_loop
async def test_a_batch_that_is_too_large_is_halved_until_it_fits() -> None:
    def judge(batch: Any) -> Answer:
        return refused(ErrorCode.MESSAGE_TOO_LARGE) if len(batch.values) > 3 else Answer()

    plan = [judge] * 20
    async with producing_to(*plan) as (producer, log, _):
        results = await send_all(producer)

        assert [each.offset for each in results] == list(range(8))
        assert log.records["orders", 0] == VALUES
        assert [len(each.values) for each in log.batches] == [8, 4, 2, 2, 4, 2, 2]
        assert [each.sequence for each in log.batches] == [0, 0, 0, 2, 4, 4, 6]
        assert {each.epoch for each in log.batches} == {0}


@in_loop
async def test_a_message_that_is_too_large_by_itself_fails_alone() -> None:
    def judge(batch: Any) -> Answer:
        return refused(ErrorCode.MESSAGE_TOO_LARGE) if b"large" in batch.values else Answer()

    async with producing_to(*[judge] * 20) as (producer, log, _):
        results = await send_all(producer, [b"one", b"large", b"two", b"three"])

        assert isinstance(results[1], BrokerError)
        assert results[1].code is ErrorCode.MESSAGE_TOO_LARGE
        assert not results[1].outcome_unknown
        assert [results[0].offset, results[2].offset, results[3].offset] == [0, 1, 2]
        assert log.records["orders", 0] == [b"one", b"two", b"three"]


@in_loop
async def test_only_the_records_that_a_broker_names_fail_and_the_rest_is_sent_again() -> None:
    bad = refused(ErrorCode.INVALID_RECORD, record_errors={1: "no key", 4: "no key"}, message="the topic is compacted")
    async with producing_to(bad) as (producer, log, _):
        results = await send_all(producer)

        assert [number for number, each in enumerate(results) if isinstance(each, BrokerError)] == [1, 4]
        assert "no key" in str(results[1])
        assert [each.offset for each in results if not isinstance(each, BrokerError)] == list(range(6))
        assert log.records["orders", 0] == [VALUES[number] for number in (0, 2, 3, 5, 6, 7)]
        # Nobody has the numbers of those that were left out.
        assert [(each.epoch, each.sequence) for each in log.batches] == [(0, 0), (1, 0)]


@in_loop
async def test_a_batch_of_which_every_record_is_refused_holds_up_nobody() -> None:
    bad = refused(ErrorCode.INVALID_RECORD, record_errors={0: "no key"})
    async with producing_to(bad) as (producer, _, _):
        with pytest.raises(BrokerError, match="no key"):
            await producer.send("orders", b"paid")
        assert (await producer.send("orders", b"paid")).offset == 0
        assert producer.buffered_bytes == 0


@in_loop
async def test_a_refusal_for_good_fails_its_batch_and_the_next_ones_go_on_in_a_new_epoch() -> None:
    async with producing_to(refused(ErrorCode.INVALID_TIMESTAMP), **ONE_BY_ONE) as (producer, log, _):
        with pytest.raises(BrokerError, match="INVALID_TIMESTAMP") as failed:
            await producer.send("orders", b"paid")
        assert not failed.value.outcome_unknown
        await producer.send("orders", b"sent")

        assert [(each.epoch, each.sequence) for each in log.batches] == [(0, 0), (1, 0)]


@in_loop
async def test_an_answer_that_does_not_come_in_time_leaves_the_outcome_unknown() -> None:
    async with producing_to(delivery_timeout_ms=50) as (producer, _, [broker]):
        broker.answers[ProduceRequest] = lambda _: SILENCE
        with pytest.raises(TimedOutError, match=r"orders-0.*delivery\.timeout\.ms") as failed:
            await producer.send("orders", b"paid")

        assert failed.value.outcome_unknown
        assert producer.buffered_bytes == 0


@in_loop
async def test_what_was_never_sent_is_known_not_to_be_written_when_its_time_is_up() -> None:
    async with producing_to(leaders=[-1], delivery_timeout_ms=50) as (producer, _, _):
        with pytest.raises(TimedOutError, match="no success within") as failed:
            await producer.send("orders", b"paid")

        assert not failed.value.outcome_unknown


@in_loop
async def test_after_a_batch_of_unknown_outcome_new_ones_begin_a_new_epoch() -> None:
    async with producing_to(delivery_timeout_ms=100, request_timeout_ms=100) as (producer, log, [broker]):
        broker.answers[ProduceRequest] = lambda _: SILENCE
        with pytest.raises(TimedOutError):
            await producer.send("orders", b"lost")
        await broker.until(lambda: len(broker.connections) < 2)
        broker.answers[ProduceRequest] = log.produce
        await producer.send("orders", b"paid")

        assert [(each.values, each.epoch, each.sequence) for each in log.batches] == [((b"paid",), 1, 0)]


@in_loop
async def test_batches_follow_their_partition_to_another_leader() -> None:
    async with producing_to(brokers=2) as (producer, log, [old, new]):
        await producer.send("orders", b"one")

        def move(request: ProduceRequest) -> Any:
            old.layout.leaders["orders"] = [1]
            log.plan.append(refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return log.produce(request)

        old.answers[ProduceRequest] = move
        await producer.send("orders", b"two")

        assert len(new.requests(ProduceRequest)) == 1
        assert log.records["orders", 0] == [b"one", b"two"]


def naming(broker: Peer, leader: int, epoch: int, *endpoints: Peer) -> None:
    """The broker refuses all batches, and names the leader (KIP-951)."""

    def answer(request: ProduceRequest) -> ProduceResponse:
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(
                            index=each.index,
                            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                            base_offset=-1,
                            current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
                        )
                        for each in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ],
            node_endpoints=[NodeEndpoint(node_id=each.node_id, host="127.0.0.1", port=each.port) for each in endpoints],
        )

    broker.answers[ProduceRequest] = answer


@pytest.mark.parametrize("newest", [10, 12, 13])
@in_loop
async def test_a_batch_goes_to_the_leader_that_the_refusal_names(newest: int) -> None:
    async with peers(2, orders=[0]) as (old, new):
        # Metadata says nothing of the new leader, not even where it is.
        del old.layout.addresses[1]
        log = Log()
        for each in (old, new):
            each.offer(ProduceRequest, 3, newest)
            each.answers |= {InitProducerIdRequest: log.begin, ProduceRequest: log.produce}
        async with Producer(old.address, linger_ms=0, request_timeout_ms=2_000, delivery_timeout_ms=5_000) as producer:
            await producer.send("orders", b"one")
            naming(old, 1, 3, new)
            await producer.send("orders", b"two")

            assert log.records["orders", 0] == [b"one", b"two"]
            assert len(new.requests(ProduceRequest)) == 1
            assert len(old.requests(MetadataRequest)) == 1
            assert producer.stats().leader_hints == 1


@in_loop
async def test_batches_that_are_refused_together_follow_the_named_leader_in_order() -> None:
    async with producing_to(brokers=2, **ONE_BY_ONE) as (producer, log, [old, new]):
        naming(old, 1, 3, new)
        results = await send_all(producer)

        assert [each.offset for each in results] == list(range(8))
        assert log.records["orders", 0] == VALUES
        assert [each.sequence for each in log.batches] == list(range(8))
        assert len(old.requests(ProduceRequest)) == 5
        assert len(old.requests(MetadataRequest)) + len(new.requests(MetadataRequest)) == 1
        assert producer.stats().leader_hints == 1


@in_loop
async def test_a_batch_does_not_follow_an_older_hint() -> None:
    async with producing_to(brokers=2) as (producer, log, [old, new]):
        # What brokers say about the topic has epoch 0.
        naming(old, 1, 0, new)
        sending = producer.send("orders", b"one")
        await old.until(lambda: len(old.requests(MetadataRequest)) > 1)
        assert new.requests(ProduceRequest) == []
        old.answers[ProduceRequest] = log.produce

        assert (await sending).offset == 0
        assert producer.stats().leader_hints == 0


@in_loop
async def test_a_batch_whose_leader_is_named_without_an_address_waits_for_metadata() -> None:
    async with producing_to(brokers=2) as (producer, _, [old, new]):
        naming(old, 7, 3)
        sending = producer.send("orders", b"one")
        await old.until(lambda: len(old.requests(MetadataRequest)) > 1)
        old.layout.leaders["orders"], old.layout.epoch = [1], 3

        assert (await sending).offset == 0
        assert len(new.requests(ProduceRequest)) == 1
        assert producer.stats().leader_hints == 0


@in_loop
async def test_a_topic_that_was_created_anew_is_written_to_under_its_new_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NAMES, b"2" * 16, "orders")
    async with producing_to() as (producer, log, [broker]):

        def answer(request: ProduceRequest) -> Any:
            sent = request.topic_data[0].topic_id
            if sent == broker.layout.ids.get("orders", topic_id("orders")):
                return log.produce(request)
            unknown = PartitionProduceResponse(index=0, error_code=ErrorCode.UNKNOWN_TOPIC_ID, base_offset=-1)
            return ProduceResponse(responses=[TopicProduceResponse(topic_id=sent, partition_responses=[unknown])])

        broker.answers[ProduceRequest] = answer
        assert (await producer.send("orders", b"before")).offset == 0
        broker.layout.ids["orders"] = b"2" * 16
        assert (await producer.send("orders", b"after")).offset == 1
        # The first retry may come before the new id is known.
        sent = [request.topic_data[0].topic_id for request in broker.requests(ProduceRequest)]
        assert sent[:2] == [topic_id("orders")] * 2
        assert sent[-1] == b"2" * 16
        assert log.records["orders", 0] == [b"before", b"after"]


@in_loop
async def test_a_leader_that_is_elected_later_gets_what_waited_for_one() -> None:
    async with producing_to(leaders=[-1]) as (producer, log, [broker]):
        future = producer.send("orders", b"paid")
        asked = len(broker.requests(MetadataRequest))
        await broker.until(lambda: len(broker.requests(MetadataRequest)) > asked + 1)
        broker.layout.leaders["orders"] = [0]

        assert (await future).offset == 0
        assert log.records["orders", 0] == [b"paid"]


@in_loop
async def test_a_broker_that_does_not_answer_holds_up_no_other() -> None:
    async with producing_to(brokers=2, leaders=[0, 1], delivery_timeout_ms=2_000) as (producer, _, [silent, _]):
        silent.answers[ProduceRequest] = lambda _: SILENCE
        stuck = producer.send("orders", b"one", partition=0)
        assert (await producer.send("orders", b"two", partition=1)).offset == 0

        assert not stuck.done()
        silent.answers[ProduceRequest] = lambda _: HANG_UP
        await producer.close(timeout_ms=0)
        with pytest.raises(Exception, match="closed before the broker had answered"):
            await stuck


@in_loop
async def test_partitions_of_one_broker_share_a_request() -> None:
    async with producing_to(leaders=[0, 0, 0]) as (producer, _, [broker]):
        futures = [producer.send("orders", b"paid", partition=partition) for partition in (0, 1, 2)]
        await asyncio.gather(*futures)

        assert len(broker.requests(ProduceRequest)) == 1


@in_loop
async def test_without_acks_nothing_is_waited_for() -> None:
    async with producing_to(acks=0, enable_idempotence=False) as (producer, log, [broker]):
        result = await producer.send("orders", b"paid")
        await broker.until(lambda: bool(log.batches))

        assert (result.partition, result.offset) == (0, -1)
        assert log.batches[0].sequence == -1
        assert not broker.requests(InitProducerIdRequest)


@in_loop
async def test_without_idempotence_batches_have_no_numbers_and_are_tried_again_all_the_same() -> None:
    again = refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    async with producing_to(again, acks=1, enable_idempotence=False) as (producer, log, [broker]):
        assert (await producer.send("orders", b"paid")).offset == 0
        assert [each.sequence for each in log.batches] == [-1, -1]
        assert {request.acks for request in broker.requests(ProduceRequest)} == {1}


@in_loop
async def test_without_retries_the_first_failure_is_the_last() -> None:
    again = refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    async with producing_to(again, acks=1, enable_idempotence=False, retries=0) as (producer, log, _):
        with pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
            await producer.send("orders", b"paid")
        assert len(log.batches) == 1


@in_loop
async def test_a_producer_that_may_have_no_id_says_what_to_do() -> None:
    async with producing_to() as (producer, _, [broker]):
        refusal = InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, producer_id=-1)
        broker.answers[InitProducerIdRequest] = lambda _: refusal
        with pytest.raises(BrokerError, match="a producer id") as failed:
            await producer.send("orders", b"paid")

        assert any("enable.idempotence=False" in note for note in failed.value.__notes__)


@in_loop
async def test_a_producer_whose_epochs_are_used_up_takes_a_new_id() -> None:
    last = InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=0x7FFF)
    async with producing_to(refused(ErrorCode.UNKNOWN_PRODUCER_ID)) as (producer, log, [broker]):
        answers = [last]
        broker.answers[InitProducerIdRequest] = lambda request: answers.pop() if answers else log.begin(request)
        log.identities = 10
        await producer.send("orders", b"paid")

        assert [(each.epoch, each.sequence) for each in log.batches] == [(0x7FFF, 0), (0, 0)]
        assert len(broker.requests(InitProducerIdRequest)) == 2


@in_loop
async def test_a_broker_that_throttles_gets_nothing_for_a_while() -> None:
    async with producing_to(**ONE_BY_ONE) as (producer, log, [broker]):

        def throttle(request: ProduceRequest) -> Any:
            response = log.produce(request)
            response.throttle_time_ms = 20
            return response

        broker.answers[ProduceRequest] = throttle
        results = await send_all(producer)

        assert [each.offset for each in results] == list(range(8))


@in_loop
async def test_an_answer_that_leaves_a_partition_out_is_no_success() -> None:
    async with producing_to() as (producer, _, [broker]):
        broker.answers[ProduceRequest] = lambda _: ProduceResponse(responses=[])
        with pytest.raises(Exception, match="does not mention it") as failed:
            await producer.send("orders", b"paid")

        assert getattr(failed.value, "outcome_unknown", False)


@pytest.mark.parametrize("newest", [3, 8, 9, 12, 13])
@in_loop
async def test_a_topic_goes_by_its_id_where_the_broker_knows_ids_and_by_its_name_elsewhere(newest: int) -> None:
    async with peers(1, orders=[0]) as [broker]:
        log = Log()
        broker.answers[InitProducerIdRequest] = log.begin
        broker.answers[ProduceRequest] = log.produce
        broker.offer(ProduceRequest, 3, newest)
        async with Producer(broker.address) as producer:
            assert (await producer.send("orders", b"paid")).offset == 0
        assert broker.versions_of(ProduceRequest) == [newest]
        topic = broker.requests(ProduceRequest)[0].topic_data[0]
        assert (topic.name, topic.topic_id) == (("", topic_id("orders")) if newest >= 13 else ("orders", bytes(16)))


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
@in_loop
async def test_a_batch_that_may_have_been_written_is_sent_again_under_its_numbers(code: ErrorCode) -> None:
    async with producing_to(refused(code)) as (producer, log, _):
        assert (await producer.send("orders", b"paid")).offset == 0
        assert [(each.epoch, each.sequence) for each in log.batches] == [(0, 0), (0, 0)]


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
@in_loop
async def test_a_batch_that_may_have_been_written_says_so_when_it_is_not_sent_again(code: ErrorCode) -> None:
    async with producing_to(refused(code), retries=0, enable_idempotence=False) as (producer, log, _):
        with pytest.raises(BrokerError, match=code.name) as caught:
            await producer.send("orders", b"paid")
        assert caught.value.outcome_unknown
        assert len(log.batches) == 1
