"""Handlers of Envelope 0, BrokerHeartbeat 0 to 1, AllocateProducerIds 0 and AlterPartition 3 serve the other brokers of
the cluster.

An Envelope has a request that only the controller may answer (KIP-590). A broker asks by its heartbeat to be shut down
(KIP-631); that it is alive it tells the metadata store. Producer ids come in blocks (KIP-730).
The leader of a partition says by AlterPartition who is in sync with it (KIP-497, KIP-903).
"""

import asyncio
from functools import partial
from ipaddress import ip_address
from typing import Final

from penstock.broker.cluster.controlling import NotControllerError
from penstock.broker.network.call import Call
from penstock.broker.network.stand_in import StandIn
from penstock.broker.pacing import Written
from penstock.broker.router import Route, Router
from penstock.broker.services import Services
from penstock.machines.controller import Controller
from penstock.machines.decisions import Refused, refuse
from penstock.machines.partition_leader import Proposal
from penstock.protocol.enclosed import enclose_reply
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError
from penstock.protocol.schema import Message
from penstock.protocol.schemas.replication import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    EnvelopeRequest,
    EnvelopeResponse,
)
from penstock.protocol.session import read_request

router = Router()
PRODUCER_IDS_AT_ONCE: Final = 1000
# A longer request is decoded in a thread.
_DECODED_AT_ONCE_BYTES: Final = 32 * 1024


@router.handles(EnvelopeRequest, versions=(0, 0), brokers_only=True)
async def envelope(services: Services, call: Call, request: EnvelopeRequest) -> Message:
    # What others sent by the same broker need not wait, and shares entries of the metadata log with this.
    call.connection.release(call)
    try:
        inner, route = _open(services, call, request)
        is_short = len(inner.body) <= _DECODED_AT_ONCE_BYTES
        asked = inner.decode() if is_short else await services.loop.run_in_executor(None, inner.decode)
    except DecodeError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    except Refused as refused:
        return EnvelopeResponse(error_code=refused.code)
    try:
        reply = await route.handler(services, inner, asked)  # type: ignore[misc]
    except NotControllerError as error:
        code = ErrorCode.REQUEST_TIMED_OUT if error.outcome_unknown else ErrorCode.NOT_CONTROLLER
        return EnvelopeResponse(error_code=code)
    if isinstance(reply, Written):
        assert reply.response is not None
        response, data = reply.response, b"".join(reply.chunks[1:])
    else:
        response, data = reply, enclose_reply(inner, reply)
    services.meters.requests.replied(inner, response)
    return EnvelopeResponse(response_data=data, metadata_index=services.cluster.index)


def _open(services: Services, call: Call, request: EnvelopeRequest) -> tuple[Call, Route]:
    """The request in an Envelope, as a call, and what answers it."""
    if not services.controlling.is_controller:
        refuse(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
    inner = read_request(memoryview(request.request_data), Call)
    route = services.routes.get(inner.api.key)
    if route is None or route.forwarded is None or (route.brokers_only and not request.of_broker):
        refuse(ErrorCode.INVALID_REQUEST, f"{inner.api.name} is not forwarded")
    if inner.version not in route.versions:
        refuse(ErrorCode.UNSUPPORTED_VERSION, f"{inner.api.name} {inner.version} is not offered")
    stand_in = StandIn(
        listener_name=request.listener_name,
        peer=_peer(request.client_host_address),
        broker=call.connection.broker if request.of_broker else None,
    )
    return stand_in.take(inner, call.received_at), route


def _peer(address: bytes) -> str:
    """A client's address as connections give it; its port is not known here."""
    return f"{ip_address(address)}:0" if len(address) in (4, 16) else "?:0"


def _refuse_heartbeat(request: BrokerHeartbeatRequest, code: ErrorCode, message: str) -> Message:
    return BrokerHeartbeatResponse(error_code=code)


@router.handles(BrokerHeartbeatRequest, versions=(0, 1), forwarded=_refuse_heartbeat, brokers_only=True)
async def broker_heartbeat(services: Services, call: Call, request: BrokerHeartbeatRequest) -> Message:
    try:
        _refuse_stranger(services, call, request.broker_id, request.broker_epoch)
        if request.want_shut_down:
            await services.controlling.change(
                lambda controller: controller.shut_down_broker(request.broker_id, request.broker_epoch)
            )
    except NotControllerError:
        raise
    except Refused as refused:
        return BrokerHeartbeatResponse(error_code=refused.code)
    return BrokerHeartbeatResponse(
        is_caught_up=True,
        is_fenced=not services.image.brokers[request.broker_id].is_alive,
        should_shut_down=request.want_shut_down,
    )


def _refuse_ids(request: AllocateProducerIdsRequest, code: ErrorCode, message: str) -> Message:
    return AllocateProducerIdsResponse(error_code=code)


@router.handles(AllocateProducerIdsRequest, versions=(0, 0), forwarded=_refuse_ids, brokers_only=True)
async def allocate_producer_ids(services: Services, call: Call, request: AllocateProducerIdsRequest) -> Message:
    try:
        _refuse_stranger(services, call, request.broker_id, request.broker_epoch)
        ids = await services.controlling.change(
            lambda controller: controller.allocate_producer_ids(PRODUCER_IDS_AT_ONCE)
        )
    except NotControllerError:
        raise
    except Refused as refused:
        return AllocateProducerIdsResponse(error_code=refused.code)
    return AllocateProducerIdsResponse(producer_id_start=ids.start, producer_id_len=len(ids))


def _refuse_alteration(request: AlterPartitionRequest, code: ErrorCode, message: str) -> Message:
    return AlterPartitionResponse(error_code=code)


@router.handles(AlterPartitionRequest, versions=(3, 3), forwarded=_refuse_alteration, brokers_only=True)
async def alter_partition(services: Services, call: Call, request: AlterPartitionRequest) -> Message:
    try:
        _refuse_stranger(services, call, request.broker_id, request.broker_epoch)
    except Refused as refused:
        return AlterPartitionResponse(error_code=refused.code)
    asked = []
    for topic in request.topics:
        for data in topic.partitions:
            isr = tuple((member.broker_id, member.broker_epoch) for member in data.new_isr_with_epochs)
            decide = partial(
                Controller.alter_partition,
                broker_id=request.broker_id,
                broker_epoch=request.broker_epoch,
                topic_id=topic.topic_id,
                index=data.partition_index,
                proposal=Proposal(data.leader_epoch, data.partition_epoch, isr),
            )
            # All of them share an entry of the metadata log.
            asked.append((topic.topic_id, data.partition_index, services.controlling.submit(decide)))
    topics: dict[bytes, list[AlterPartitionResponsePartitionData]] = {}
    for topic_id, index, decision in asked:
        answer = AlterPartitionResponsePartitionData(partition_index=index)
        try:
            state = await asyncio.shield(decision)
        except NotControllerError:
            raise
        except Refused as refused:
            answer.error_code = refused.code
        else:
            answer.leader_id, answer.leader_epoch = state.leader, state.leader_epoch
            answer.isr, answer.partition_epoch = state.isr, state.partition_epoch
        topics.setdefault(topic_id, []).append(answer)
    return AlterPartitionResponse(
        topics=[
            AlterPartitionResponseTopicData(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ]
    )


def _refuse_stranger(services: Services, call: Call, broker_id: int, broker_epoch: int) -> None:
    """A broker asks for itself, as it is registered now."""
    asking, known = call.connection.broker, services.image.brokers.get(broker_id)
    if asking is None or asking.node_id != broker_id:
        refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"only broker {broker_id} itself may ask for this")
    if known is None or known.broker_epoch != broker_epoch:
        refuse(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered with epoch {broker_epoch}")
