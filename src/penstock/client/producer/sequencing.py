"""`judge` decides what a broker's answer means to its batch, and to the sequence numbers of the batches after it.

The rules are those of Kafka's own client: what may be sent again is sent again, in order; a gap in the sequence begins
a new epoch (KIP-360); a batch that is too large is halved.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from penstock.client.errors import AuthenticationError, ClientError, UnsendableError, broker_error
from penstock.client.producer.accumulator import SEQUENCES, Batch, PartitionQueue
from penstock.client.producer.deliveries import Outcome
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.produce import PartitionProduceResponse


class Verdict(Enum):
    DONE = auto()
    AGAIN = auto()
    SPLIT = auto()
    """Send it again in two halves."""
    PART = auto()
    """Some records are refused: send it again without them."""
    FAILED = auto()


@dataclass(slots=True, frozen=True)
class Judgement:
    verdict: Verdict
    error: ClientError | None = None
    refused: Mapping[int, ClientError] = field(default_factory=dict)
    """The errors of single records, by their place in the batch."""


def judge(queue: PartitionQueue, batch: Batch, answer: PartitionProduceResponse, *, retries: int) -> Judgement:
    """Decide about a batch that was answered, and is no longer in flight."""
    code = answer.error_code
    # A duplicate of which the broker does not know any more where it lies: it is written.
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return _DONE
    error = broker_error(code, str(queue), answer.error_message)
    if error.code is ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
        return Judgement(Verdict.SPLIT, error)
    if answer.record_errors:
        about = f"a message to {queue}"
        refused: dict[int, ClientError] = {
            each.batch_index: broker_error(code, about, each.batch_index_error_message or answer.error_message)
            for each in answer.record_errors
            if 0 <= each.batch_index < batch.count
        }
        if refused:
            queue.leave_gap(batch, is_refused=True)
            return Judgement(Verdict.PART, error, refused)
    # An error with an offset comes from a leader that had written the batch when it lost its office.
    batch.in_doubt |= error.outcome_unknown or answer.base_offset >= 0
    if batch.sequence >= 0 and error.code in _OUT_OF_SEQUENCE:
        if error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or queue.is_first(batch):
            queue.leave_gap(batch, is_refused=True)
        return Judgement(Verdict.AGAIN, error)
    if error.code.retriable and batch.tries <= retries:
        return Judgement(Verdict.AGAIN, error)
    return give_up(queue, batch, error)


def judge_loss(queue: PartitionQueue, batch: Batch, error: ClientError, *, retries: int) -> Judgement:
    """The batch got no answer, and will get none."""
    batch.in_doubt |= error.outcome_unknown
    if batch.tries <= retries and not isinstance(error, UnsendableError | AuthenticationError):
        return Judgement(Verdict.AGAIN, error)
    return give_up(queue, batch, error)


def give_up(queue: PartitionQueue, batch: Batch, error: ClientError) -> Judgement:
    """The batch is not sent again. If it was ever sent, its numbers are missing, or may be."""
    queue.leave_gap(batch, is_refused=not batch.in_doubt)
    error.outcome_unknown |= batch.in_doubt
    return Judgement(Verdict.FAILED, error)


def halve(queue: PartitionQueue, batch: Batch, level: int | None) -> list[Batch]:
    """Two batches in place of one that is too large, with its sequence numbers."""
    middle = batch.count // 2
    # Later batches are kept below the size, so that they need not be refused first.
    queue.largest = min(queue.largest, batch.size // 2)
    halves = batch.parts([range(middle), range(middle, batch.count)], level)
    if batch.sequence >= 0:
        assert batch.producer is not None
        for half, first in zip(halves, (0, middle), strict=True):
            half.stamp(batch.producer, (batch.sequence + first) % SEQUENCES)
    batch.pass_on(halves, lambda index: (halves[0], index) if index < middle else (halves[1], index - middle))
    return halves


def leave_out(batch: Batch, refused: Mapping[int, ClientError], level: int | None) -> list[Batch]:
    """A batch, if anything is left, in place of one of which some records were refused; these fail."""
    kept = [index for index in range(batch.count) if index not in refused]
    successors: dict[int, tuple[Outcome, int]] = {}
    for index, error in refused.items():
        outcome = Outcome(batch.topic, batch.partition)
        outcome.fail(error)
        successors[index] = outcome, 0
    parts = batch.parts([kept], level) if kept else []
    for part in parts:
        successors |= {index: (part, place) for place, index in enumerate(kept)}
    batch.pass_on(parts, successors.__getitem__)
    return parts


_DONE: Final = Judgement(Verdict.DONE)
_OUT_OF_SEQUENCE: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
