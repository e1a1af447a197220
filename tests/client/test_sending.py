"""The sender against scripted brokers: order, retries, epochs, splits, and the end of every wait."""

import asyncio
from typing import Any

import pytest

from penstock.client.errors import BrokerError, TimedOutError
from penstock.client.producer import Producer
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.metadata import MetadataRequest
from penstock.protocol.schemas.produce import ProduceRequest, ProduceResponse
from penstock.protocol.schemas.transactions import InitProducerIdRequest, InitProducerIdResponse
from tests.client.peer import HANG_UP, SILENCE, in_loop, peers
from tests.client.produce_peer import PRODUCER_ID, Answer, Log, got, producing_to, refused

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
async def test_behind_a_batch_of_unknown_fate_new_ones_begin_a_new_epoch() -> None:
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


@in_loop
async def test_old_brokers_that_know_topics_by_name_are_understood() -> None:
    async with peers(1, orders=[0]) as [broker]:
        log = Log()
        broker.answers[InitProducerIdRequest] = log.begin
        broker.answers[ProduceRequest] = log.produce
        broker.offer(ProduceRequest, 3, 8)
        async with Producer(broker.address) as producer:
            assert (await producer.send("orders", b"paid")).offset == 0
        assert broker.versions_of(ProduceRequest) == [8]
