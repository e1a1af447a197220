"""Handlers of JoinGroup 0 to 9, SyncGroup 0 to 5, Heartbeat 0 to 4 and LeaveGroup 0 to 5 serve members of a group.

JoinGroup adds the rebalance timeout in version 1 (KIP-62), has a new member come back with its id from 4 on (KIP-394),
and adds the instance id in 5 (KIP-345), the protocol's type in 7 (KIP-559), a reason in 8 (KIP-800), and a way to skip
the assignment in 9 (KIP-814). LeaveGroup takes many members from 3 on (KIP-345).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.broker.network.call import Call
from penstock.broker.router import LATER, Router
from penstock.broker.services import Services
from penstock.protocol.schema import Message
from penstock.protocol.schemas.groups import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

router = Router()


@dataclass(slots=True, eq=False)
class _Member:
    """Waits for the other members of its group, which is no part of the time that serving it takes."""

    services: Services
    call: Call

    def reply(self, response: Message) -> None:
        self.call.waited(self.services.loop.time() - self.call.received_at)
        self.call.reply(response)

    def when_gone(self, forget: Callable[[Any], None]) -> None:
        self.call.when_gone(lambda _: forget(self))


@router.handles(JoinGroupRequest, versions=(0, 9))
def join_group(services: Services, call: Call, request: JoinGroupRequest) -> object:
    # Chance is drawn here: the rules for groups know none.
    new_member_id = "" if request.member_id else services.draw_member_id()
    services.groups.submit(request.group_id, request, call, waiter=_Member(services, call), new_member_id=new_member_id)
    return LATER


@router.handles(SyncGroupRequest, versions=(0, 5))
def sync_group(services: Services, call: Call, request: SyncGroupRequest) -> object:
    services.groups.submit(request.group_id, request, call, waiter=_Member(services, call))
    return LATER


@router.handles(HeartbeatRequest, versions=(0, 4))
def heartbeat(services: Services, call: Call, request: HeartbeatRequest) -> object:
    services.groups.submit(request.group_id, request, call)
    return LATER


@router.handles(LeaveGroupRequest, versions=(0, 5))
def leave_group(services: Services, call: Call, request: LeaveGroupRequest) -> object:
    services.groups.submit(request.group_id, request, call)
    return LATER
