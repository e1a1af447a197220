"""`GroupRequests` sends a member's requests to its coordinator: join, sync, heartbeat and leave.

It finds the coordinator again when another broker, or none, coordinates the group. All other answers are for the member
to judge.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final

from penstock.client.admin.group_offsets import COORDINATION, Identity
from penstock.client.assignments import CONSUMER
from penstock.client.cluster.cluster import Cluster, Terms
from penstock.client.errors import ClientError, broker_error
from penstock.client.settings import ConsumerSettings
from penstock.protocol.schema import Message, Versions
from penstock.protocol.schemas.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

logger = logging.getLogger(__name__)

LANE: Final = "group"
"""The coordinator holds replies to joins back, so no other request may wait for them."""
LEAVE_TIMEOUT_MS: Final = 3_000
GRACE_MS: Final = 5_000
"""What a coordinator may need beyond the time that it was asked to wait."""


class GroupRequests:
    def __init__(self, cluster: Cluster, group: str, settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self._group = group
        self._settings = settings
        # A coordinator waits for the slowest member, as long as its application may take to poll again.
        hold_ms = settings.max_poll_interval_ms + GRACE_MS
        self._patient = Terms(lane=LANE, hold_ms=hold_ms, timeout_ms=hold_ms + cluster.timeout_ms)

    async def join(self, member_id: str, protocols: Sequence[JoinGroupRequestProtocol]) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.max_poll_interval_ms,
            member_id=member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=CONSUMER,
            protocols=protocols,
        )
        response: JoinGroupResponse = await self._ask(request, self._patient)
        return response

    async def sync(
        self, identity: Identity, protocol: str | None, plan: Sequence[SyncGroupRequestAssignment]
    ) -> SyncGroupResponse:
        """Ask for the assignment; the leader sends the plan with it."""
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            protocol_type=CONSUMER,
            protocol_name=protocol,
            assignments=plan,
        )
        response: SyncGroupResponse = await self._ask(request, self._patient)
        return response

    async def beat(self, identity: Identity) -> int:
        """The error code that a heartbeat is answered with."""
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
        )
        terms = Terms(timeout_ms=self._settings.session_timeout_ms)
        response: HeartbeatResponse = await self._ask(request, terms)
        return response.error_code

    async def leave(self, member_id: str, reason: str) -> None:
        """Leave the group. A failure does not matter: the session ends by itself."""
        request = LeaveGroupRequest(group_id=self._group, members=[MemberIdentity(member_id=member_id, reason=reason)])
        try:
            await self._ask(request, Terms(versions=Versions(3, 5), timeout_ms=LEAVE_TIMEOUT_MS))
        except ClientError as error:
            logger.warning("could not leave group %r, which will wait for the session to end: %s", self._group, error)

    async def _ask(self, request: Message, terms: Terms) -> Any:
        def read(response: Any) -> Any:
            if response.error_code in COORDINATION:
                raise broker_error(response.error_code, f"group {self._group!r}")
            return response

        return await self._cluster.request_to_coordinator(self._group, request, read, terms=terms)
