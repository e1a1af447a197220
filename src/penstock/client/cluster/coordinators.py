"""`Coordinators` knows which broker coordinates which group: it asks once, and forgets an answer that led to the wrong
broker."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.client.cluster.connection import Connection
from penstock.client.errors import ClientError, broker_error, unanswered
from penstock.client.metadata import Broker
from penstock.protocol.schemas.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

# From this version on a request asks for many groups.
MANY_FROM: Final = 4


class Coordinators:
    def __init__(self) -> None:
        self._known: dict[str, Broker] = {}

    def recall(self, groups: Iterable[str]) -> dict[str, Broker | ClientError]:
        """The coordinators that are known."""
        return {group: broker for group in groups if (broker := self._known.get(group)) is not None}

    def forget(self, group: str, broker: Broker) -> None:
        """Forget only what led to the wrong broker: another request may have learned better meanwhile."""
        if self._known.get(group) == broker:
            del self._known[group]

    async def find(
        self, groups: Sequence[str], connection: Connection, timeout_ms: int
    ) -> dict[str, Broker | ClientError]:
        """Ask any broker for the coordinators of groups."""
        found: dict[str, Broker | ClientError] = {}
        if connection.version_for(FindCoordinatorRequest) >= MANY_FROM:
            request = FindCoordinatorRequest(coordinator_keys=groups)
            response: FindCoordinatorResponse = await connection.request(request, timeout_ms=timeout_ms)
            answers = {told.key: told for told in response.coordinators}
            found = {
                group: _read(group, answers[group]) if group in answers else unanswered(f"group {group!r}")
                for group in groups
            }
        else:
            async with asyncio.TaskGroup() as tasks:
                asked = {group: tasks.create_task(_find_one(group, connection, timeout_ms)) for group in groups}
            found = {group: task.result() for group, task in asked.items()}
        self._known |= {group: broker for group, broker in found.items() if isinstance(broker, Broker)}
        return found


async def _find_one(group: str, connection: Connection, timeout_ms: int) -> Broker | ClientError:
    try:
        told: FindCoordinatorResponse = await connection.request(
            FindCoordinatorRequest(key=group), timeout_ms=timeout_ms
        )
    except ClientError as error:
        return error
    return _read(group, told)


def _read(group: str, told: Coordinator | FindCoordinatorResponse) -> Broker | ClientError:
    if told.error_code:
        return broker_error(told.error_code, f"the coordinator of group {group!r}", told.error_message)
    return Broker(told.node_id, told.host, told.port)
