"""What answers mean, one by one."""

import pytest

from penstock.client.errors import BrokerError, ConnectionLostError, UnsendableError
from penstock.client.producer.accumulator import Batch, PartitionQueue
from penstock.client.producer.deliveries import SendFuture
from penstock.client.producer.sequencing import Judgement, Verdict, give_up, halve, judge, judge_loss, leave_out
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.produce import BatchIndexAndErrorMessage, PartitionProduceResponse

RETRIES = 10


def sent(count: int = 3, *, numbered: bool = True) -> tuple[PartitionQueue, Batch]:
    """A batch that was answered, and is in flight no more."""
    queue = PartitionQueue("orders", 0, leader=1)
    batch = Batch("orders", 0, 0.0)
    for number in range(count):
        batch.append(None, b"%d" % number, 1_700_000_000_000, None, 10)
    batch.close()
    queue.waiting.append(batch)
    queue.send(batch, (7, 0) if numbered else None)
    queue.in_flight.clear()
    return queue, batch


def judged(
    code: ErrorCode, queue: PartitionQueue, batch: Batch, *, retries: int = RETRIES, offset: int = -1
) -> Judgement:
    answer = PartitionProduceResponse(index=0, error_code=code, base_offset=offset)
    return judge(queue, batch, answer, retries=retries)


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER])
def test_what_is_written_is_done(code: ErrorCode) -> None:
    assert judged(code, *sent()).verdict is Verdict.DONE


@pytest.mark.parametrize(
    ("code", "in_doubt"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
    ],
)
def test_what_may_pass_is_tried_again(code: ErrorCode, in_doubt: bool) -> None:
    queue, batch = sent()

    assert judged(code, queue, batch).verdict is Verdict.AGAIN
    assert batch.in_doubt is in_doubt
    assert queue.gap is None


def test_a_refusal_with_an_offset_leaves_a_doubt() -> None:
    queue, batch = sent()
    judged(ErrorCode.NOT_LEADER_OR_FOLLOWER, queue, batch, offset=5)

    assert batch.in_doubt


def test_tries_come_to_an_end() -> None:
    queue, batch = sent()
    judgement = judged(ErrorCode.NOT_LEADER_OR_FOLLOWER, queue, batch, retries=0)

    assert judgement.verdict is Verdict.FAILED
    assert judgement.error is not None
    assert not judgement.error.outcome_unknown
    assert queue.gap == batch.rank


def test_a_refusal_after_a_doubt_is_still_in_doubt() -> None:
    queue, batch = sent()
    judged(ErrorCode.REQUEST_TIMED_OUT, queue, batch)
    judgement = judged(ErrorCode.INVALID_TIMESTAMP, queue, batch)

    assert judgement.verdict is Verdict.FAILED
    assert judgement.error is not None
    assert judgement.error.outcome_unknown
    assert queue.gap == batch.rank + 1


def test_out_of_order_behind_one_that_is_not_settled_is_no_gap() -> None:
    queue, batch = sent()
    earlier = Batch("orders", 0, 0.0)
    earlier.rank, earlier.sequence = batch.rank - 1, 0
    queue.waiting.append(earlier)

    assert judged(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, queue, batch, retries=0).verdict is Verdict.AGAIN
    assert queue.gap is None


@pytest.mark.parametrize(
    "code",
    [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH],
)
def test_a_first_batch_out_of_sequence_is_sent_again_in_a_new_epoch(code: ErrorCode) -> None:
    queue, batch = sent()

    assert judged(code, queue, batch).verdict is Verdict.AGAIN
    assert queue.gap == batch.rank


def test_without_numbers_such_an_error_is_for_good() -> None:
    assert judged(ErrorCode.INVALID_PRODUCER_EPOCH, *sent(numbered=False)).verdict is Verdict.FAILED


def test_only_a_batch_of_several_records_can_be_halved() -> None:
    assert judged(ErrorCode.MESSAGE_TOO_LARGE, *sent(2)).verdict is Verdict.SPLIT
    assert judged(ErrorCode.MESSAGE_TOO_LARGE, *sent(1)).verdict is Verdict.FAILED


def test_halves_carry_on_under_the_numbers_of_the_whole() -> None:
    queue, batch = sent(5)
    futures = [SendFuture(batch, index, 0) for index in range(5)]
    halves = halve(queue, batch, None)

    assert [(half.count, half.sequence, half.producer) for half in halves] == [(2, 0, (7, 0)), (3, 2, (7, 0))]
    assert [future.outcome for future in futures] == [halves[0]] * 2 + [halves[1]] * 3
    assert queue.largest == batch.size // 2


def test_refused_records_fail_and_the_others_carry_on() -> None:
    queue, batch = sent(4)
    futures = [SendFuture(batch, index, 0) for index in range(4)]
    answer = PartitionProduceResponse(
        index=0,
        error_code=ErrorCode.INVALID_RECORD,
        error_message="the topic is compacted",
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=2, batch_index_error_message="no key"),
            BatchIndexAndErrorMessage(batch_index=0),
            BatchIndexAndErrorMessage(batch_index=99),
        ],
    )
    judgement = judge(queue, batch, answer, retries=RETRIES)
    assert judgement.verdict is Verdict.PART
    [rest] = leave_out(batch, judgement.refused, None)
    rest.base_offset = 10
    rest.settle()

    assert (rest.count, rest.sequence) == (2, -1)
    assert [future.result().offset for future in (futures[1], futures[3])] == [10, 11]
    assert "the topic is compacted" in str(futures[0].exception())
    assert "no key" in str(futures[2].exception())


def test_a_lost_answer_is_waited_for_again_and_leaves_a_doubt() -> None:
    queue, batch = sent()
    lost = ConnectionLostError("gone", outcome_unknown=True)

    assert judge_loss(queue, batch, lost, retries=RETRIES).verdict is Verdict.AGAIN
    assert batch.in_doubt
    assert judge_loss(queue, batch, lost, retries=0).verdict is Verdict.FAILED


def test_what_cannot_be_written_is_not_tried_again() -> None:
    assert judge_loss(*sent(), UnsendableError("no way"), retries=RETRIES).verdict is Verdict.FAILED


def test_giving_up_what_was_never_sent_leaves_no_gap() -> None:
    queue = PartitionQueue("orders", 0)
    judgement = give_up(queue, Batch("orders", 0, 0.0), BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "orders-0"))

    assert judgement.error is not None
    assert not judgement.error.outcome_unknown
    assert queue.gap is None
