"""The handler of FindCoordinator 0 to 6 names the broker to ask about a group.

Version 1 adds the type of the key, 4 asks for many keys at once (KIP-699), 5 allows a new error of transactions
(KIP-890), and 6 adds share groups (KIP-932). Transactions and share groups have no coordinators yet.
"""

from collections.abc import Sequence
from typing import Final

from penstock.broker.network.call import Call
from penstock.broker.pacing import Pace, Written
from penstock.broker.router import Router
from penstock.broker.services import Services
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

router = Router()
GROUP: Final = 0
# The shard of a group is found by going over the letters of its name, of which there may be a thousand.
_GROUP_ITEMS: Final = 5
_KINDS: Final = {1: "transactions", 2: "share groups"}


@router.handles(FindCoordinatorRequest, versions=(0, 6))
async def find_coordinator(services: Services, call: Call, request: FindCoordinatorRequest) -> Message | Written:
    pace = services.pacing.pace(call)
    # A group that is named twice is answered once.
    keys = list(await pace.count(request.coordinator_keys)) if call.version >= 4 else [request.key]
    if request.key_type == GROUP:
        found = await _find_groups(services, call, keys, pace)
    else:
        found = [_refused(key, ErrorCode.INVALID_REQUEST, _refusal(request.key_type)) for key in keys]
    if call.version >= 4:
        return await pace.reply(FindCoordinatorResponse(coordinators=found))
    [only] = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def _find_groups(services: Services, call: Call, groups: Sequence[str], pace: Pace) -> list[Coordinator]:
    if services.groups.leader_of("") is None:
        # The first request for a group's coordinator has the topic made in which groups are kept.
        refused = await services.groups.create_topic()
        if refused is not None:
            message = f"the topic that groups are kept in could not be made: {refused.message}"
            return [_refused(group, ErrorCode.COORDINATOR_NOT_AVAILABLE, message) for group in groups]
    brokers = {node.broker_id: node for node in services.advertised_brokers(call)}
    found = []
    for group in groups:
        await pace.spend(_GROUP_ITEMS)
        leader = services.groups.leader_of(group)
        node = brokers.get(leader) if leader is not None else None
        if node is None:
            message = "no broker leads the partition that the group is kept in"
            found.append(_refused(group, ErrorCode.COORDINATOR_NOT_AVAILABLE, message))
        else:
            found.append(
                Coordinator(key=group, node_id=node.broker_id, host=node.host, port=node.port, error_message=None)
            )
    return found


def _refused(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)


def _refusal(key_type: int) -> str:
    """The message of a fatal error, since a retry would not help."""
    if key_type in _KINDS:
        return f"{_KINDS[key_type]} are not offered by this broker yet"
    return f"there are no coordinators of type {key_type}"
