"""A reply to a Produce waits for all of its batches, and says what became of each."""

from typing import Any, cast

from penstock.broker.partitions.produce_reply import NO_KEY, ProduceReply
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.record_checks import Findings
from penstock.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData


class Call:
    version = 9

    """What a reply needs of a call."""

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.reasons: list[str] = []

    def reply(self, response: Any) -> None:
        self.replies.append(response)

    def give_up(self, reason: str) -> None:
        self.reasons.append(reason)


def reply_to(acks: int) -> tuple[Any, ProduceReply]:
    call: Any = Call()
    return call, ProduceReply(cast(Any, None), call, acks)


def test_a_reply_leaves_when_the_last_batch_is_done_and_all_are_expected() -> None:
    call, reply = reply_to(-1)
    first, second = reply.expect(0), reply.expect(1)
    first.appended(5, 0)
    reply.all_expected()
    assert not call.replies
    second.refused(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
    assert len(call.replies) == 1
    assert (first.response.base_offset, second.response.error_message) == (5, "the disk is full")


def test_batches_that_are_done_at_once_do_not_let_the_reply_leave_before_the_others_are_known() -> None:
    call, reply = reply_to(1)
    reply.expect(0).appended(5, 0)
    assert not call.replies
    reply.all_expected()
    assert len(call.replies) == 1


def test_without_acknowledgement_there_is_no_reply_but_a_closed_connection_after_an_error() -> None:
    call, reply = reply_to(0)
    reply.expect(0).appended(5, 0)
    reply.all_expected()
    assert (call.replies, call.reasons) == ([None], [])
    call, reply = reply_to(0)
    reply.expect(0).refused(ErrorCode.CORRUPT_MESSAGE, "")
    reply.all_expected()
    assert call.replies == []
    assert len(call.reasons) == 1


def test_a_request_can_be_refused_as_a_whole() -> None:
    call, reply = reply_to(-1)
    data = [PartitionProduceData(index=index) for index in range(2)]
    request = ProduceRequest(topic_data=[TopicProduceData(name="orders", partition_data=data)])
    reply.refuse_all(request, ErrorCode.INVALID_REQUIRED_ACKS, "no")
    reply.all_expected()
    [response] = call.replies
    answers = response.responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUIRED_ACKS] * 2


def test_a_refusal_for_records_without_a_key_names_them() -> None:
    call, reply = reply_to(-1)
    part = reply.expect(0)
    part.refused_for(Findings(keyless=[3], keyless_count=1))
    reply.all_expected()
    [named] = part.response.record_errors
    assert (named.batch_index, named.batch_index_error_message) == (3, NO_KEY)
    assert len(call.replies) == 1
