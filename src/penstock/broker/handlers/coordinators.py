"""FindCoordinator 0 to 6, honestly: groups have no coordinator yet, transactions and share groups do not exist."""

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
def find_coordinator(broker: "Broker", call: Call, request: FindCoordinatorRequest) -> Message:
    code, message = _refusal(request.key_type)
    if call.version < 4:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
            for key in request.coordinator_keys
        ]
    )


def _refusal(key_type: int) -> tuple[ErrorCode, str]:
    """Retriable for what a client may wait for, fatal for what will not come however long it tries."""
    if key_type == GROUP:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, "consumer groups are not offered by this broker yet"
    if key_type in _KINDS:
        return ErrorCode.INVALID_REQUEST, f"{_KINDS[key_type]} are not offered by this broker yet"
    return ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {key_type}"
