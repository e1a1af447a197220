"""Handlers of AlterPartitionReassignments 0 to 1 and ListPartitionReassignments 0 let partitions have more replicas,
and report which of these do not have everything yet.

Version 1 may insist on the number of replicas that there is (KIP-860). Replicas can be added, not removed or moved; to
cancel an addition takes away those that do not have everything yet.
"""

from asyncio import Future
from collections.abc import Iterable
from typing import Final

from penstock.broker.cluster.settling import Settling
from penstock.broker.network.call import Call
from penstock.broker.pacing import Written
from penstock.broker.router import Router
from penstock.broker.services import Services
from penstock.machines.cluster import ClusterImage, PartitionImage, TopicImage
from penstock.machines.controller import Controller
from penstock.machines.decisions import ControllerDecision, Refused
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

router = Router()

# A partition takes a few bytes of a request, and a hundred times as many while it is decided.
AT_ONCE: Final = 50


def _refuse_all(request: AlterPartitionReassignmentsRequest, code: ErrorCode, message: str) -> Message:
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=message)


@router.handles(AlterPartitionReassignmentsRequest, versions=(0, 1), forwarded=_refuse_all)
async def alter_partition_reassignments(
    services: Services, call: Call, request: AlterPartitionReassignmentsRequest
) -> Message | Written:
    pace = services.pacing.pace(call, to_the_end=True)
    asked: Settling[PartitionImage] = Settling(AT_ONCE)
    named: list[tuple[str, int]] = []
    for topic in request.topics:
        for wanted in topic.partitions:
            keeps_factor = not request.allow_replication_factor_change
            await asked.add(_alter(services, topic.name, wanted, keeps_factor))
            named.append((topic.name, wanted.partition_index))
            await pace.spend()
    results: dict[str, list[ReassignablePartitionResponse]] = {}
    for (name, index), outcome in zip(named, await asked.finish(), strict=True):
        results.setdefault(name, []).append(_result(index, outcome if isinstance(outcome, Refused) else None))
        await pace.spend()
    return await pace.reply(
        AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_message=None,
            responses=[
                ReassignableTopicResponse(name=name, partitions=partitions) for name, partitions in results.items()
            ],
        )
    )


def _alter(
    services: Services, name: str, wanted: ReassignablePartition, keeps_factor: bool
) -> "Future[PartitionImage] | Refused":
    replicas, index = wanted.replicas, wanted.partition_index
    if replicas is not None and keeps_factor:
        topic = services.image.topics.get(name)
        count = len(topic.partitions[index].replicas) if topic and 0 <= index < len(topic.partitions) else len(replicas)
        if count != len(replicas):
            message = f"{name}-{index} has {count} replicas, and the request does not allow another number"
            return Refused(ErrorCode.INVALID_REPLICATION_FACTOR, message)

    def decide(controller: Controller) -> ControllerDecision[PartitionImage]:
        if replicas is None:
            return controller.cancel_addition(name, index)
        return controller.add_replicas(name, index, replicas)

    return services.controlling.submit(decide)


def _result(index: int, refused: Refused | None) -> ReassignablePartitionResponse:
    if refused is None:
        return ReassignablePartitionResponse(partition_index=index, error_message=None)
    return ReassignablePartitionResponse(partition_index=index, error_code=refused.code, error_message=refused.message)


@router.handles(ListPartitionReassignmentsRequest, versions=(0, 0))
async def list_partition_reassignments(
    services: Services, call: Call, request: ListPartitionReassignmentsRequest
) -> Message | Written:
    pace = services.pacing.pace(call)
    listed = []
    for topic, indexes in _asked_about(services.image, request.topics):
        ongoing = [
            OngoingPartitionReassignment(
                partition_index=index, replicas=partition.replicas, adding_replicas=partition.adding
            )
            for index in indexes
            if 0 <= index < len(topic.partitions) and (partition := topic.partitions[index]).adding
        ]
        if ongoing:
            listed.append(OngoingTopicReassignment(name=topic.name, partitions=ongoing))
        await pace.spend(len(topic.partitions))
    return await pace.reply(ListPartitionReassignmentsResponse(error_message=None, topics=listed))


def _asked_about(
    image: ClusterImage, topics: Iterable[ListPartitionReassignmentsTopics] | None
) -> list[tuple[TopicImage, Iterable[int]]]:
    """None asks about all of them. What does not exist is not being changed."""
    if topics is None:
        return [(topic, range(len(topic.partitions))) for topic in image.topics.values()]
    return [(image.topics[each.name], each.partition_indexes) for each in topics if each.name in image.topics]
