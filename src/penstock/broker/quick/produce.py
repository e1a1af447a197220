"""The quick way of Produce takes calls whose batches are all sound and welcome; `handlers/produce` takes the others.

It refuses nothing: when it declines a call it has changed nothing. What a batch meets after it was taken is answered as
by the ordinary way.
"""

from collections.abc import Sequence
from typing import Any

from penstock.broker.network.call import Call
from penstock.broker.partitions.partition import Partition
from penstock.broker.partitions.produce_reply import ACKS, ZSTD_SINCE, ProduceReply
from penstock.broker.partitions.record_checking import check_at_once, has_flaws
from penstock.broker.services import Services
from penstock.machines.topic_names import INTERNAL
from penstock.protocol import quick_produce
from penstock.protocol.batch import BatchHeader, read_produced
from penstock.protocol.compression import Codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.produce import PartitionProduceResponse, TopicProduceResponse


def produce_quickly(services: Services, call: Call) -> bool:
    """Takes the call if it brings one sound batch for each of its partitions, as nearly all do; if not, `produce` says
    why."""
    version = call.version
    found = quick_produce.read_single(call.body, version)
    if found is None:
        return _produce_several(services, call)
    target, records = found
    acks, topic, index, _, _ = target
    partitions, now_ms = services.partitions, services.now_ms()
    partition = partitions.get(topic, index) if isinstance(topic, str) else partitions.find_by_id(topic, index)
    if acks not in ACKS or (header := _sound(partition, records, version, now_ms)) is None:
        return False
    assert isinstance(partition, Partition)
    partition.append(
        header, records, wait_for_all=acks == -1, waiter=_QuickReply(services, call, target), now_ms=now_ms
    )
    return True


def _produce_several(services: Services, call: Call) -> bool:
    """Appends nothing unless all batches are sound."""
    version = call.version
    found = quick_produce.read_request(call.body, version)
    if found is None or found[0].acks not in ACKS:
        return False
    asked, records = found
    partitions, now_ms = services.partitions, services.now_ms()
    sound: list[tuple[Partition, BatchHeader, memoryview]] = []
    views = iter(records)
    for topic, indexes, _ in asked.topics:
        for index in indexes:
            view = next(views)
            partition = partitions.get(topic, index) if isinstance(topic, str) else partitions.find_by_id(topic, index)
            if (header := _sound(partition, view, version, now_ms)) is None:
                return False
            assert isinstance(partition, Partition)
            sound.append((partition, header, view))
    operation = _QuickProduce(services, call, asked, len(sound))
    wait_for_all = asked.acks == -1
    for place, (partition, header, view) in enumerate(sound):
        waiter = _QuickPart(operation, place)
        partition.append(header, view, wait_for_all=wait_for_all, waiter=waiter, now_ms=now_ms)
    return True


def _sound(partition: Partition | ErrorCode, records: memoryview, version: int, now_ms: int) -> BatchHeader | None:
    """The header of a batch that the partition takes as it is; None for any other batch, or without a partition."""
    if not isinstance(partition, Partition) or (header := read_produced(records)) is None:
        return None
    settings = partition.settings
    if (
        len(records) > settings.max_message_bytes
        or settings.log_append_time
        or header.max_timestamp - now_ms > settings.timestamp_after_max_ms
        or now_ms - header.base_timestamp > settings.timestamp_before_max_ms
        or partition.topic in INTERNAL
        or (version < ZSTD_SINCE and header.attributes == Codec.ZSTD)
        or (settings.looks_inside and has_flaws(check_at_once(header, records), settings))
    ):
        return None
    return header


class _QuickReply:
    """The reply to a call for one partition that was taken quickly."""

    __slots__ = ("_call", "_services", "_target")

    def __init__(self, services: Services, call: Call, target: quick_produce.Target) -> None:
        self._services = services
        self._call = call
        self._target = target

    @property
    def deadline(self) -> float:
        return self._call.received_at + self._target.timeout_ms / 1000

    def appended(self, base_offset: int, log_start: int) -> None:
        call, (acks, _, _, form, _) = self._call, self._target
        if acks:
            call.connection.reply_written(call, [form.write(call.correlation_id, base_offset, log_start)])
        else:
            call.reply(None)

    def refused(self, code: ErrorCode, message: str, base_offset: int = -1) -> None:
        # The request's bytes may be gone by now.
        acks, topic, index, _, _ = self._target
        refusal = _refusal(index, code, message, base_offset)
        _reply_with_errors(self._services, self._call, acks, [(topic, [refusal])])


class _QuickProduce:
    """The reply to a call for several partitions that was taken quickly, when the last of them is done."""

    __slots__ = ("_asked", "_call", "_numbers", "_outstanding", "_refusals", "_services")

    def __init__(self, services: Services, call: Call, asked: quick_produce.Asked, count: int) -> None:
        self._call = call
        self._services = services
        self._asked = asked
        self._outstanding = count
        self._numbers: list[tuple[int, int]] = [(-1, -1)] * count
        self._refusals: dict[int, tuple[ErrorCode, str, int]] = {}

    @property
    def deadline(self) -> float:
        return self._call.received_at + self._asked.timeout_ms / 1000

    def appended(self, place: int, base_offset: int, log_start: int) -> None:
        self._numbers[place] = (base_offset, log_start)
        self._done()

    def refused(self, place: int, code: ErrorCode, message: str, base_offset: int) -> None:
        self._refusals[place] = (code, message, base_offset)
        self._done()

    def _done(self) -> None:
        self._outstanding -= 1
        if self._outstanding:
            return
        call, asked = self._call, self._asked
        if self._refusals:
            _reply_with_errors(self._services, call, asked.acks, self._topics())
        elif asked.acks:
            written = quick_produce.write_reply(call.version, call.correlation_id, asked, self._numbers)
            call.connection.reply_written(call, [written])
        else:
            call.reply(None)

    def _topics(self) -> "list[tuple[str | bytes, list[PartitionProduceResponse]]]":
        topics, place = [], 0
        for topic, indexes, _ in self._asked.topics:
            responses = []
            for index in indexes:
                if (refusal := self._refusals.get(place)) is not None:
                    responses.append(_refusal(index, *refusal))
                else:
                    base_offset, log_start = self._numbers[place]
                    responses.append(
                        PartitionProduceResponse(index=index, base_offset=base_offset, log_start_offset=log_start)
                    )
                place += 1
            topics.append((topic, responses))
        return topics


class _QuickPart:
    """One partition of several."""

    __slots__ = ("_operation", "_place")

    def __init__(self, operation: _QuickProduce, place: int) -> None:
        self._operation = operation
        self._place = place

    @property
    def deadline(self) -> float:
        return self._operation.deadline

    def appended(self, base_offset: int, log_start: int) -> None:
        self._operation.appended(self._place, base_offset, log_start)

    def refused(self, code: ErrorCode, message: str, base_offset: int = -1) -> None:
        self._operation.refused(self._place, code, message, base_offset)


def _refusal(index: int, code: ErrorCode, message: str, base_offset: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=code, error_message=message or None, base_offset=base_offset
    )


def _reply_with_errors(
    services: Services,
    call: Call,
    acks: int,
    topics: "Sequence[tuple[str | bytes, list[PartitionProduceResponse]]]",
) -> None:
    """Reply to a call of which a batch met an error after it was taken."""
    operation = ProduceReply(services, call, acks)
    operation.has_error = True
    for topic, responses in topics:
        names: dict[str, Any] = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
        operation.topics.append(TopicProduceResponse(**names, partition_responses=responses))
    operation.all_expected()
