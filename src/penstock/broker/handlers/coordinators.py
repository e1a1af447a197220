"""FindCoordinator 0 to 6: which broker to ask about a group. Transactions and share groups have none yet."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.broker.call import Call
from penstock.broker.router import Router
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

router = Router()
GROUP: Final = 0
_KINDS: Final = {1: "transactions", 2: "share groups"}


@router.handles(FindCoordinatorRequest, versions=(0, 6))
async def find_coordinator(broker: "Broker", call: Call, request: FindCoordinatorRequest) -> Message:
    keys = request.coordinator_keys if call.version >= 4 else [request.key]
    if request.key_type == GROUP:
        found = await _find_groups(broker, call, keys)
    else:
        found = [_refused(key, ErrorCode.INVALID_REQUEST, _refusal(request.key_type)) for key in keys]
    if call.version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    [only] = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def _find_groups(broker: "Broker", call: Call, groups: Sequence[str]) -> list[Coordinator]:
    if broker.groups.leader_of("") is None:
        # The first who looks for a group's coordinator has the topic made in which groups are kept.
        refused = await broker.groups.create_topic()
        if refused is not None:
            message = f"the topic that groups are kept in could not be made: {refused.message}"
            return [_refused(group, ErrorCode.COORDINATOR_NOT_AVAILABLE, message) for group in groups]
    brokers = {node.broker_id: node for node in broker.advertised_brokers(call)}
    found = []
    for group in groups:
        leader = broker.groups.leader_of(group)
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
    """Fatal, since these will not come however long a client tries."""
    if key_type in _KINDS:
        return f"{_KINDS[key_type]} are not offered by this broker yet"
    return f"there are no coordinators of type {key_type}"
