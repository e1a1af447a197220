"""JoinGroup 0 to 9, SyncGroup 0 to 5, Heartbeat 0 to 4, LeaveGroup 0 to 5: what members of a group send."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.broker.call import Call
from penstock.broker.router import LATER, Router
from penstock.protocol.schema import Message
from penstock.protocol.schemas.groups import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

router = Router()


@dataclass(slots=True, eq=False)
class _Member:
    """Waits for the other members of its group, which is no part of the time that it takes to serve it."""

    broker: "Broker"
    call: Call

    def reply(self, response: Message) -> None:
        self.call.waited(self.broker.loop.time() - self.call.received_at)
        self.call.reply(response)

    def when_gone(self, forget: Callable[[Any], None]) -> None:
        self.call.when_gone(lambda _: forget(self))


@router.handles(JoinGroupRequest, versions=(0, 9))
def join_group(broker: "Broker", call: Call, request: JoinGroupRequest) -> object:
    # Chance is drawn here: the rules for groups know none.
    new_member_id = "" if request.member_id else broker.draw_member_id()
    broker.groups.submit(request.group_id, request, call, waiter=_Member(broker, call), new_member_id=new_member_id)
    return LATER


@router.handles(SyncGroupRequest, versions=(0, 5))
def sync_group(broker: "Broker", call: Call, request: SyncGroupRequest) -> object:
    broker.groups.submit(request.group_id, request, call, waiter=_Member(broker, call))
    return LATER


@router.handles(HeartbeatRequest, versions=(0, 4))
def heartbeat(broker: "Broker", call: Call, request: HeartbeatRequest) -> object:
    broker.groups.submit(request.group_id, request, call)
    return LATER


@router.handles(LeaveGroupRequest, versions=(0, 5))
def leave_group(broker: "Broker", call: Call, request: LeaveGroupRequest) -> object:
    broker.groups.submit(request.group_id, request, call)
    return LATER
