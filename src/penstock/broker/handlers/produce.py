"""The handler of Produce 3 to 13 checks a batch by its header and checksum, and hands it to its partition.

Versions 0 to 2 carry older message formats. They are advertised, since some clients stop compressing without them, and
close the connection. Version 3 adds record batches (KIP-98), 5 the log's start in the reply, 7 zstd (KIP-110), 8 the
records that are wrong (KIP-467), 10 the addresses of new leaders (KIP-951), 11 and 12 changes of transactions
(KIP-890), and 13 topics by id (KIP-516).

A topic may ask for a look at its records (`penstock.validate`), and a compacted one always does. Where that takes
longer than a turn of the loop, the connection makes no other call until the batches have their place in the log.
"""

import logging
from collections.abc import Mapping
from typing import Final

from penstock.broker.helper.task import HelperError
from penstock.broker.log_rates import RatedLog
from penstock.broker.network.call import Call
from penstock.broker.partitions.partition import Partition
from penstock.broker.partitions.produce_reply import ACKS, ZSTD_SINCE, PartitionReply, ProduceReply
from penstock.broker.partitions.record_checking import check_at_once, has_flaws
from penstock.broker.quick.produce import produce_quickly
from penstock.broker.router import LATER, Router
from penstock.broker.services import Services
from penstock.machines.topic_names import INTERNAL
from penstock.protocol.batch import (
    BatchHeader,
    check_produced,
    read_header,
    split,
    stamp_log_append_time,
    verify,
)
from penstock.protocol.compression import Codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError
from penstock.protocol.record_checks import Findings
from penstock.protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceResponse,
)

log = RatedLog(logging.getLogger(__name__))

router = Router()
# The findings for batches that are not looked into.
_SOUND: Final = Findings()


@router.handles(ProduceRequest, versions=(3, 13), advertised=(0, 13), quick=produce_quickly)
def produce(services: Services, call: Call, request: ProduceRequest) -> object:
    operation = ProduceReply(services, call, request.acks, request.timeout_ms)
    if request.acks not in ACKS:
        operation.refuse_all(request, ErrorCode.INVALID_REQUIRED_ACKS, "acks must be -1 (all), 0 or 1")
    elif request.transactional_id is not None:
        operation.refuse_all(
            request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not offered by this broker yet"
        )
    else:
        findings, large = _look_inside(services, call, request)
        if large:
            _copy_records(request)
            return _produce_later(services, request, operation, findings, large)
        _append_all(services, request, operation, findings)
    operation.all_expected()
    return LATER


def _look_inside(
    services: Services, call: Call, request: ProduceRequest
) -> "tuple[dict[int, Findings | None], list[PartitionProduceData]]":
    """What is found in the batches of topics that ask for it, each under its identity, and those that take longer than
    a turn of the loop."""
    found: dict[int, Findings | None] = {}
    large = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            partition = services.partitions.find(topic.name, topic.topic_id, data.index, by_id=call.version >= 13)
            if isinstance(partition, Partition) and partition.settings.looks_inside and data.records:
                assert isinstance(data.records, memoryview)
                try:
                    findings = check_at_once(read_header(data.records), data.records)
                except DecodeError:
                    # There is not even a header: `_append` refuses the batch for that.
                    continue
                if findings is not None:
                    found[id(data)] = findings
                elif len(data.records) <= partition.settings.max_message_bytes:
                    large.append(data)
    return found, large


def _copy_records(request: ProduceRequest) -> None:
    """Copy the records, since the receive buffer is used again after this turn."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records:
                assert isinstance(data.records, memoryview)
                data.records = memoryview(bytearray(data.records))


async def _produce_later(
    services: Services,
    request: ProduceRequest,
    operation: ProduceReply,
    findings: "dict[int, Findings | None]",
    large: list[PartitionProduceData],
) -> object:
    for data in large:
        assert isinstance(data.records, memoryview)
        try:
            findings[id(data)] = await services.record_checking.check(data.records)
        except HelperError as error:
            log.warning("records could not be checked", owner=services, extra={"error": str(error)})
            findings[id(data)] = None
    _append_all(services, request, operation, findings)
    operation.all_expected()
    operation.call.connection.release(operation.call)
    return LATER


def _append_all(
    services: Services, request: ProduceRequest, operation: ProduceReply, findings: "Mapping[int, Findings | None]"
) -> None:
    now_ms, version = services.now_ms(), operation.call.version
    for topic in request.topic_data:
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        replies = []
        for data in topic.partition_data:
            reply = operation.expect(data.index)
            replies.append(reply.response)
            partition = services.partitions.find(topic.name, topic.topic_id, data.index, by_id=version >= 13)
            if isinstance(partition, ErrorCode):
                reply.refused(partition, "")
            elif partition.topic in INTERNAL:
                message = f"{partition.topic} is internal: the cluster itself writes it, and clients may read it"
                reply.refused(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
            else:
                found = findings.get(id(data), _SOUND)
                _append(partition, data, reply, version=version, now_ms=now_ms, findings=found)
        answer.partition_responses = replies
        operation.topics.append(answer)


def _append(
    partition: Partition,
    data: PartitionProduceData,
    reply: PartitionReply,
    *,
    version: int,
    now_ms: int,
    findings: Findings | None,
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
    if has_flaws(findings, partition.settings):
        reply.refused_for(findings)
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
    if header.codec is Codec.ZSTD and version < ZSTD_SINCE:
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
