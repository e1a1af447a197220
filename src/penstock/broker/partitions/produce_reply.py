"""A produce reply gathers what becomes of the batches of a call, and leaves when the last of them is done."""

from dataclasses import dataclass
from typing import Final

from penstock.broker.network.call import Call
from penstock.broker.partitions.leader_hints import add_hints
from penstock.broker.services import Services
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.record_checks import Findings
from penstock.protocol.schemas.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

ACKS: Final = (-1, 0, 1)
# The version in which zstd was added (KIP-110).
ZSTD_SINCE: Final = 7
# Some clients show this text and no other.
NO_KEY: Final = "the record has no key, and a compacted topic needs one"


class ProduceReply:
    """A Produce call: replies when the last of its partitions has."""

    __slots__ = ("_all_expected", "_outstanding", "_services", "acks", "call", "has_error", "timeout_ms", "topics")

    def __init__(self, services: Services, call: Call, acks: int, timeout_ms: int = 0) -> None:
        self._services = services
        self.timeout_ms = timeout_ms
        self.call = call
        self.acks = acks
        self.topics: list[TopicProduceResponse] = []
        self.has_error = False
        self._outstanding = 0
        self._all_expected = False

    def expect(self, index: int) -> "PartitionReply":
        self._outstanding += 1
        return PartitionReply(self, PartitionProduceResponse(index=index, base_offset=-1))

    def all_expected(self) -> None:
        self._all_expected = True
        self._finish_if_done()

    def done(self) -> None:
        self._outstanding -= 1
        self._finish_if_done()

    def refuse_all(self, request: ProduceRequest, code: ErrorCode, message: str) -> None:
        for topic in request.topic_data:
            replies = [self.expect(data.index) for data in topic.partition_data]
            responses = [reply.response for reply in replies]
            self.topics.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=responses)
            )
            for reply in replies:
                reply.refused(code, message)

    def _finish_if_done(self) -> None:
        if self._outstanding or not self._all_expected:
            return
        if self.acks != 0:
            response = ProduceResponse(responses=self.topics)
            if self.has_error:
                add_hints(self._services, self.call, response)
            self.call.reply(response)
        elif self.has_error:
            # A client that wants no replies learns in no other way that something is wrong with what it sends.
            self.call.give_up("an append with acks=0 failed")
        else:
            self.call.reply(None)


@dataclass(slots=True, eq=False)
class PartitionReply:
    """One partition's part of the reply."""

    operation: ProduceReply
    response: PartitionProduceResponse

    @property
    def deadline(self) -> float:
        return self.operation.call.received_at + self.operation.timeout_ms / 1000

    def appended(self, base_offset: int, log_start: int) -> None:
        self.response.base_offset = base_offset
        self.response.log_start_offset = log_start
        self.operation.done()

    def refused(self, code: ErrorCode, message: str, base_offset: int = -1) -> None:
        self.response.base_offset = base_offset
        self.response.error_code = code
        self.response.error_message = message or None
        self.operation.has_error = True
        self.operation.done()

    def refused_for(self, findings: Findings | None) -> None:
        """No record of the batch is taken; those that are wrong are named, the first of them at least (KIP-467)."""
        if findings is None:
            self.refused(ErrorCode.KAFKA_STORAGE_ERROR, "the records could not be checked now (see the log): try again")
        elif findings.damage is not None:
            message, index = findings.damage, findings.damaged_index
            if index >= 0:
                self._name_records([index], message)
                message = f"record {index}: {message}"
            self.refused(ErrorCode.INVALID_RECORD, f"the records of the batch cannot be read: {message}")
        else:
            self._name_records(findings.keyless, NO_KEY)
            self.refused(
                ErrorCode.INVALID_RECORD,
                "the topic is compacted, and keeps the newest record of each key, but of the batch's records "
                f"{findings.keyless_count} have none: give every record a key, or set cleanup.policy=delete",
            )

    def _name_records(self, indexes: list[int], message: str) -> None:
        self.response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message) for index in indexes
        ]
