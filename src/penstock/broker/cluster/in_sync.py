"""Keeps the in-sync replicas of partitions that are led here: it looks at those with a follower that lacks something,
and has the controller decide what their leaders propose, many in one request. It also asks for replicas of this broker
to be taken out whose logs are damaged."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from penstock.broker.log_rates import RatedLog
from penstock.broker.metrics.in_sync import InSyncMeter
from penstock.broker.partitions.partition import Partition
from penstock.machines.cluster_records import PartitionImage
from penstock.machines.decisions import Refused
from penstock.machines.partition_leader import UNKNOWN as NO_EPOCH
from penstock.machines.partition_leader import Answered, PartitionLeader, Proposal
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.replication import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    BrokerState,
)

log = logging.getLogger(__name__)
rated_log = RatedLog(log)

LOOK_SECONDS: Final = 0.5
TIMEOUT_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.1
# Partitions in one request.
AT_ONCE: Final = 2000
# Partitions that are looked at in one turn of the loop: while a broker is away, those are all that are led here.
LOOKS_AT_ONCE: Final = 500


class Ask(Protocol):
    async def __call__(self, request: Message, *, timeout: float) -> Any: ...


class InSync:
    """`look_at` partitions that may need a proposal, until `close`."""

    def __init__(self, node_id: int, ask: Ask, broker_epoch: Callable[[], int], meter: InSyncMeter) -> None:
        self._node_id = node_id
        self._ask = ask
        self._broker_epoch = broker_epoch
        self._meter = meter
        self._loop = asyncio.get_running_loop()
        # With a follower that lacks something, or is not in sync; and where the log ended when that was said last.
        self._behind: dict[Partition, int] = {}
        # Those of them that are to be looked at now: all of them from time to time, and in between only what may have
        # something to propose.
        self._due: dict[Partition, None] = {}
        # Replicas that are damaged, in the state of their partition that this broker knew then.
        self._given_up: dict[tuple[bytes, int], PartitionImage] = {}
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="penstock-in-sync")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def look_at(self, partition: Partition) -> None:
        """A follower of the partition has something to fetch, or is not in sync."""
        leader, now_ms, end = partition.leader, self._now_ms(), partition.log.end_offset
        before = self._behind.get(partition)
        if before is None:
            leader.fell_behind(now_ms)
        elif end > before:
            # While another follower is away, the partition stays here. One that had everything until now does not lag,
            # however long nothing was written.
            for follower in leader.followers.values():
                if follower.end_offset >= before:
                    follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        self._behind[partition] = end
        if leader.joining(now_ms, end):
            self._due[partition] = None
            self._woken.set()

    def give_up(self, topic_id: bytes, state: PartitionImage) -> None:
        """The log of a replica of this broker is damaged: ask once for it to be neither in sync nor the leader."""
        self._given_up[topic_id, state.index] = state
        self._woken.set()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    async def _run(self) -> None:
        next_look = self._loop.time() + LOOK_SECONDS
        while True:
            try:
                async with asyncio.timeout_at(next_look):
                    await self._woken.wait()
            except TimeoutError:
                next_look = self._loop.time() + LOOK_SECONDS
                self._due |= dict.fromkeys(self._behind)
            self._woken.clear()
            try:
                if self._given_up:
                    await self._ask_without_this_broker()
                while proposals := await self._proposals():
                    await self._propose(proposals)
            except Exception:
                log.exception("in-sync replicas could not be looked at")
                await asyncio.sleep(PAUSE_SECONDS)

    async def _proposals(self) -> list[tuple[Partition, PartitionLeader, Proposal]]:
        now_ms = self._now_ms()
        found = []
        for number, partition in enumerate(list(self._due), 1):
            if number % LOOKS_AT_ONCE == 0:
                await asyncio.sleep(0)
                now_ms = self._now_ms()
            del self._due[partition]
            self._meter.looked_at(1)
            leader = partition.leader
            if not partition.is_led or len(leader.replicas) <= 1:
                self._behind.pop(partition, None)
                continue
            partition.end_overdue(self._loop.time())
            # It may have registered anew, and leads on.
            leader.broker_epoch = self._broker_epoch()
            proposal = leader.next_proposal(now_ms, partition.log.end_offset)
            if proposal is not None:
                found.append((partition, leader, proposal))
                if len(found) == AT_ONCE:
                    break
            elif leader.is_complete(partition.log.end_offset):
                self._behind.pop(partition, None)
        return found

    async def _ask_without_this_broker(self) -> None:
        topics: dict[bytes, list[AlterPartitionRequestPartitionData]] = {}
        for (topic_id, index), state in self._given_up.items():
            others = [replica for replica in state.isr if replica != self._node_id]
            topics.setdefault(topic_id, []).append(
                AlterPartitionRequestPartitionData(
                    partition_index=index,
                    leader_epoch=state.leader_epoch,
                    partition_epoch=state.partition_epoch,
                    new_isr_with_epochs=[BrokerState(broker_id=other, broker_epoch=NO_EPOCH) for other in others],
                )
            )
        count = len(self._given_up)
        self._given_up.clear()
        try:
            response: AlterPartitionResponse = await self._ask(self._request(topics), timeout=TIMEOUT_SECONDS)
            codes = {response.error_code, *(data.error_code for topic in response.topics for data in topic.partitions)}
        except Refused as refused:
            codes = {refused.code}
        if refusals := codes - {ErrorCode.NONE}:
            # What is damaged is found again, and asked for again.
            facts = {"error": ", ".join(sorted(ErrorCode(code).name for code in refusals)), "partitions": count}
            rated_log.warning("damaged replicas were not given up", owner=self, extra=facts)

    def _request(self, topics: dict[bytes, list[AlterPartitionRequestPartitionData]]) -> AlterPartitionRequest:
        return AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            topics=[
                AlterPartitionRequestTopicData(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )

    async def _propose(self, proposals: list[tuple[Partition, PartitionLeader, Proposal]]) -> None:
        topics: dict[bytes, list[AlterPartitionRequestPartitionData]] = {}
        for partition, _, proposal in proposals:
            topics.setdefault(partition.topic_id, []).append(
                AlterPartitionRequestPartitionData(
                    partition_index=partition.index,
                    leader_epoch=proposal.leader_epoch,
                    partition_epoch=proposal.partition_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=broker_id, broker_epoch=epoch) for broker_id, epoch in proposal.isr
                    ],
                )
            )
        request = self._request(topics)
        answers: dict[tuple[bytes, int], int] = {}
        self._meter.proposed(len(proposals))
        code = ErrorCode.NONE
        try:
            response: AlterPartitionResponse = await self._ask(request, timeout=TIMEOUT_SECONDS)
            code = ErrorCode(response.error_code)
            answers = {
                (topic.topic_id, data.partition_index): data.error_code
                for topic in response.topics
                for data in topic.partitions
            }
        except Refused as refused:
            code = refused.code
        finally:
            # Whatever has happened, each of them has an outcome, if only an unknown one.
            for partition, leader, proposal in proposals:
                outcome = answers.get((partition.topic_id, partition.index), ErrorCode.REQUEST_TIMED_OUT)
                self._answer(leader, proposal, ErrorCode(outcome))
                # One whose outcome is unknown is made again.
                self._due[partition] = None
                is_known = Answered.by(ErrorCode(outcome)) is not Answered.UNKNOWN
                code = code or (ErrorCode.NONE if is_known else ErrorCode(outcome))
        if code:
            facts = {"error": code.name, "partitions": len(proposals)}
            rated_log.warning("the controller did not take in-sync replicas", owner=self, extra=facts)
            await asyncio.sleep(PAUSE_SECONDS)

    def _answer(self, leader: PartitionLeader, proposal: Proposal, code: ErrorCode) -> None:
        # The forwarder may have sent it more than once.
        leader.answered(proposal, Answered.by(code), was_repeated=True, now_ms=self._now_ms())
