"""Produce, versions 3 to 13: checks a batch by its header and checksum, and hands it to its partition.

Versions 0 to 2, of older message formats, are advertised, since some clients stop compressing without them, and close
the connection. From version 13 on topics come by id.

A compacted topic opts into a look at the keys of its records. Where that takes many turns, the connection makes no
other call until the batches have their place in the log.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.broker.call import Call
from penstock.broker.partition import Partition
from penstock.broker.record_keys import Keys, look_at_once, look_in_turns
from penstock.broker.router import LATER, Router
from penstock.machines.topic_names import INTERNAL
from penstock.protocol import single_produce
from penstock.protocol.batch import BatchHeader, check_produced, read_produced, split, stamp_log_append_time, verify
from penstock.protocol.compression import Codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError
from penstock.protocol.schemas.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

router = Router()
# Some clients show this alone.
NO_KEY: Final = "the record has no key, and a compacted topic needs one"
# With 0 nobody is told what went wrong, which is for `produce` to see to.
_ACKS = (-1, 1)


def produce_quickly(broker: "Broker", call: Call) -> bool:
    """Takes the call if it is as nearly all are, one sound batch for one partition; if not, `produce` says why."""
    version = call.version
    if version < single_produce.FIRST_VERSION or (found := single_produce.read_single(call.body, version)) is None:
        return False
    target, records = found
    acks, topic, index, _ = target
    partitions = broker.partitions
    partition = partitions.get(topic, index) if isinstance(topic, str) else partitions.find_by_id(topic, index)
    if acks not in _ACKS or isinstance(partition, ErrorCode) or (header := read_produced(records)) is None:
        return False
    now_ms, settings = broker.now_ms(), partition.settings
    if (
        len(records) > settings.max_message_bytes
        or settings.log_append_time
        or (settings.needs_keys and ((keys := look_at_once(records)) is None or not keys.are_complete))
        or partition.topic in INTERNAL
        or header.max_timestamp - now_ms > settings.timestamp_after_max_ms
        or now_ms - header.base_timestamp > settings.timestamp_before_max_ms
    ):
        return False
    partition.append(header, records, wait_for_all=acks == -1, waiter=_QuickReply(call, target), now_ms=now_ms)
    return True


@router.handles(ProduceRequest, versions=(3, 13), advertised=(0, 13), quick=produce_quickly)
def produce(broker: "Broker", call: Call, request: ProduceRequest) -> object:
    operation = _Produce(call, request.acks)
    if request.acks not in (-1, 0, 1):
        operation.refuse_all(request, ErrorCode.INVALID_REQUIRED_ACKS, "acks must be -1 (all), 0 or 1")
    elif request.transactional_id is not None:
        operation.refuse_all(
            request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not offered by this broker yet"
        )
    else:
        keys, large = _look_at_keys(broker, call, request)
        if large:
            _copy_records(request)
            return _produce_later(broker, request, operation, keys, large)
        _append_all(broker, request, operation, keys)
    operation.all_expected()
    return LATER


def _look_at_keys(
    broker: "Broker", call: Call, request: ProduceRequest
) -> "tuple[dict[int, Keys], list[PartitionProduceData]]":
    """What is found in the batches for compacted topics, each under its identity, and those that are too large to be
    looked at now."""
    keys: dict[int, Keys] = {}
    large = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            partition = broker.partitions.find(topic.name, topic.topic_id, data.index, by_id=call.version >= 13)
            if isinstance(partition, Partition) and partition.settings.needs_keys and data.records:
                assert isinstance(data.records, memoryview)
                found = look_at_once(data.records)
                if found is not None:
                    keys[id(data)] = found
                elif len(data.records) <= partition.settings.max_message_bytes:
                    large.append(data)
    return keys, large


def _copy_records(request: ProduceRequest) -> None:
    """The receive buffer is used again after this turn."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records:
                assert isinstance(data.records, memoryview)
                data.records = memoryview(bytearray(data.records))


async def _produce_later(
    broker: "Broker",
    request: ProduceRequest,
    operation: "_Produce",
    keys: dict[int, Keys],
    large: list[PartitionProduceData],
) -> object:
    for data in large:
        assert isinstance(data.records, memoryview)
        keys[id(data)] = await look_in_turns(data.records)
    _append_all(broker, request, operation, keys)
    operation.all_expected()
    operation.call.connection.release(operation.call)
    return LATER


def _append_all(broker: "Broker", request: ProduceRequest, operation: "_Produce", keys: Mapping[int, Keys]) -> None:
    now_ms, version = broker.now_ms(), operation.call.version
    for topic in request.topic_data:
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        replies = []
        for data in topic.partition_data:
            reply = operation.expect(data.index)
            replies.append(reply.response)
            partition = broker.partitions.find(topic.name, topic.topic_id, data.index, by_id=version >= 13)
            if isinstance(partition, ErrorCode):
                reply.refused(partition, "")
            elif partition.topic in INTERNAL:
                message = f"{partition.topic} is internal: the cluster itself writes it, and clients may read it"
                reply.refused(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
            else:
                _append(partition, data, reply, version=version, now_ms=now_ms, keys=keys.get(id(data)))
        answer.partition_responses = replies
        operation.topics.append(answer)


def _append(
    partition: Partition,
    data: PartitionProduceData,
    reply: "_PartitionReply",
    *,
    version: int,
    now_ms: int,
    keys: Keys | None,
) -> None:
    records = data.records
    if not records:
        reply.refused(ErrorCode.INVALID_RECORD, "there is no record batch")
        return
    assert isinstance(records, memoryview)
    try:
        batches = split(records)
        if len(batches) != 1:
            reply.refused(ErrorCode.INVALID_RECORD, f"a partition gets one batch in a request, not {len(batches)}")
            return
        header, view = batches[0]
        if header.size > partition.settings.max_message_bytes:
            limit = partition.settings.max_message_bytes
            reply.refused(
                ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {header.size} bytes is over max.message.bytes ({limit})"
            )
            return
        verify(header, view)
    except DecodeError as error:
        reply.refused(ErrorCode.CORRUPT_MESSAGE, str(error))
        return
    refusal = _check(partition, header, version, now_ms)
    if refusal is not None:
        reply.refused(*refusal)
        return
    if keys is not None and not keys.are_complete:
        reply.refused_for_keys(keys)
        return
    if partition.settings.log_append_time:
        stamp_log_append_time(view, now_ms)
        header = header._replace(attributes=header.attributes | 8, max_timestamp=now_ms)
        reply.response.log_append_time_ms = now_ms
    partition.append(header, view, wait_for_all=reply.operation.acks == -1, waiter=reply, now_ms=now_ms)


def _check(partition: Partition, header: BatchHeader, version: int, now_ms: int) -> tuple[ErrorCode, str] | None:
    """What is wrong with a batch that is whole."""
    try:
        check_produced(header)
    except DecodeError as error:
        return ErrorCode.INVALID_RECORD, str(error)
    if header.is_transactional:
        return ErrorCode.INVALID_TXN_STATE, "transactions are not offered by this broker yet"
    if header.codec is Codec.ZSTD and version < 7:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs a client that speaks Produce version 7"
    settings = partition.settings
    if not settings.log_append_time and header.max_timestamp >= 0:
        if header.max_timestamp - now_ms > settings.timestamp_after_max_ms:
            limit = settings.timestamp_after_max_ms
            return ErrorCode.INVALID_TIMESTAMP, f"timestamp {header.max_timestamp} is over {limit} ms in the future"
        if now_ms - header.base_timestamp > settings.timestamp_before_max_ms:
            limit = settings.timestamp_before_max_ms
            return ErrorCode.INVALID_TIMESTAMP, f"timestamp {header.base_timestamp} is over {limit} ms in the past"
    return None


class _Produce:
    """A Produce call: replies when the last of its partitions has."""

    __slots__ = ("_all_expected", "_outstanding", "acks", "call", "has_error", "topics")

    def __init__(self, call: Call, acks: int) -> None:
        self.call = call
        self.acks = acks
        self.topics: list[TopicProduceResponse] = []
        self.has_error = False
        self._outstanding = 0
        self._all_expected = False

    def expect(self, index: int) -> "_PartitionReply":
        self._outstanding += 1
        return _PartitionReply(self, PartitionProduceResponse(index=index, base_offset=-1))

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
            self.call.reply(ProduceResponse(responses=self.topics))
        elif self.has_error:
            # The only way to tell a client that wants no replies that something is wrong with what it sends.
            self.call.give_up("an append with acks=0 failed")
        else:
            self.call.reply(None)


@dataclass(slots=True, eq=False)
class _PartitionReply:
    """One partition's part of the reply."""

    operation: _Produce
    response: PartitionProduceResponse

    def appended(self, base_offset: int, log_start: int) -> None:
        self.response.base_offset = base_offset
        self.response.log_start_offset = log_start
        self.operation.done()

    def refused(self, code: ErrorCode, message: str) -> None:
        self.response.error_code = code
        self.response.error_message = message or None
        self.operation.has_error = True
        self.operation.done()

    def refused_for_keys(self, keys: Keys) -> None:
        """No record of the batch is taken; those without a key are named, the first of them at least (KIP-467)."""
        if keys.damage is not None:
            self.refused(ErrorCode.INVALID_RECORD, f"the records cannot be read: {keys.damage}")
            return
        self.response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=NO_KEY) for index in keys.keyless
        ]
        self.refused(
            ErrorCode.INVALID_RECORD,
            "the topic is compacted, and keeps the newest record of each key, but of the batch's records "
            f"{keys.keyless_count} have none: give every record a key, or set cleanup.policy=delete",
        )


@dataclass(slots=True, eq=False)
class _QuickReply:
    """The reply to a call that was taken quickly."""

    call: Call
    target: single_produce.Target

    def appended(self, base_offset: int, log_start: int) -> None:
        call = self.call
        written = self.target.reply.write(call.correlation_id, base_offset, -1, log_start)
        call.connection.reply_written(call, [written])

    def refused(self, code: ErrorCode, message: str) -> None:
        # The request's bytes may be gone by now.
        _, topic, index, _ = self.target
        response = PartitionProduceResponse(index=index, error_code=code, error_message=message or None, base_offset=-1)
        answer = TopicProduceResponse(partition_responses=[response])
        if isinstance(topic, str):
            answer.name = topic
        else:
            answer.topic_id = topic
        self.call.reply(ProduceResponse(responses=[answer]))
