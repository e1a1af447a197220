"""The handler of ElectLeaders 0 to 2 has the controller elect leaders of partitions.

Version 0 lets preferred replicas lead (KIP-183). From version 1 on an operator may also have a replica lead that may
lack committed records, where a partition has no leader (KIP-460).
"""

import logging
from asyncio import Future
from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import partial

from penstock.broker.cluster.settling import Settling
from penstock.broker.network.call import Call
from penstock.broker.pacing import Written
from penstock.broker.router import Router
from penstock.broker.services import Services
from penstock.machines.cluster import ClusterImage, PartitionImage
from penstock.machines.cluster_records import NO_LEADER
from penstock.machines.decisions import Refused
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.topics import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

log = logging.getLogger(__name__)
router = Router()


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


def _refuse_elections(request: ElectLeadersRequest, code: ErrorCode, message: str) -> Message:
    refused = Refused(code, message)
    results = [
        ReplicaElectionResult(
            topic=topic.topic, partition_result=[_result(index, refused) for index in topic.partitions]
        )
        for topic in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


@router.handles(ElectLeadersRequest, versions=(0, 2), forwarded=_refuse_elections)
async def elect_leaders(services: Services, call: Call, request: ElectLeadersRequest) -> Message | Written:
    pace = services.pacing.pace(call, to_the_end=True)
    if request.election_type not in list(ElectionType):
        message = f"the election type is 0 (preferred) or 1 (unclean), not {request.election_type}"
        return _refuse_elections(request, ErrorCode.INVALID_REQUEST, message)
    is_unclean = request.election_type == ElectionType.UNCLEAN
    asks_for_all = request.topic_partitions is None
    wanted = _needed(services.image, is_unclean) if asks_for_all else _named(request)
    named = await pace.count(wanted)
    asked: Settling[PartitionImage] = Settling()
    for name, index in named:
        await asked.add(_elect(services, name, index, is_unclean))
        await pace.spend()
    results: dict[str, list[PartitionResult]] = {}
    for (name, index), outcome in zip(named, await asked.finish(), strict=True):
        refused = outcome if isinstance(outcome, Refused) else None
        # Of all partitions those are left out that have their leader already, as in Kafka.
        if not (asks_for_all and refused is not None and refused.code == ErrorCode.ELECTION_NOT_NEEDED):
            results.setdefault(name, []).append(_result(index, refused))
        await pace.spend()
    listed = [ReplicaElectionResult(topic=name, partition_result=each) for name, each in results.items()]
    return await pace.reply(ElectLeadersResponse(replica_election_results=listed))


def _named(request: ElectLeadersRequest) -> Iterator[tuple[str, int]]:
    return ((topic.topic, index) for topic in request.topic_partitions or () for index in topic.partitions)


def _needed(image: ClusterImage, is_unclean: bool) -> Iterable[tuple[str, int]]:
    """The partitions that an election could give another leader."""
    return [
        (topic.name, partition.index)
        for topic in image.topics.values()
        for partition in topic.partitions
        if partition.leader != partition.replicas[0] and (partition.leader == NO_LEADER or not is_unclean)
    ]


def _elect(services: Services, name: str, index: int, is_unclean: bool) -> "Future[PartitionImage]":
    asked = services.controlling.submit(lambda controller: controller.elect_leader(name, index, is_unclean=is_unclean))
    if is_unclean:
        # It is told even if the client that asked has gone by then.
        asked.add_done_callback(partial(_tell_of_unclean, services, name))
    return asked


def _tell_of_unclean(services: Services, name: str, asked: "Future[PartitionImage]") -> None:
    if asked.cancelled() or asked.exception() is not None:
        return
    elected = asked.result()
    services.controlling.unclean_elections += 1
    log.warning(
        "an operator had a leader elected that may lack committed records",
        extra={"topic": name, "partition": elected.index, "leader": elected.leader, "epoch": elected.leader_epoch},
    )


def _result(index: int, refused: Refused | None) -> PartitionResult:
    if refused is None:
        return PartitionResult(partition_id=index, error_message=None)
    return PartitionResult(partition_id=index, error_code=refused.code, error_message=refused.message)
