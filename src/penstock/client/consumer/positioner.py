"""The positioner finds where to begin: the offset that the group has committed, or else the one that the settings or
the user ask for."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from penstock.client.admin.offsets import LATEST, ListedOffset, list_offsets
from penstock.client.cluster.cluster import Cluster
from penstock.client.cluster.retries import TRIES_FOR_UNKNOWN, may_pass
from penstock.client.consumer.fetcher import RESETS, RETRY_MS
from penstock.client.consumer.subscription import COMMITTED, PartitionCursor, Subscription
from penstock.client.errors import ClientError, NoPositionError, UnknownTopicError
from penstock.client.group.committer import Committer
from penstock.client.metadata import TopicPartition
from penstock.client.settings import ConsumerSettings

_NOTHING: Final = -1


class Positioner:
    """Looks positions up whenever it is woken and some are missing; `found` is called when one is known, and when it
    cannot be."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        subscription: Subscription,
        *,
        committer: Committer | None,
        found: Callable[[], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._subscription = subscription
        self._committer = committer
        self._found = found
        self._crashed = crashed
        self._is_committed_only = settings.isolation_level == "read_committed"
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def wake(self) -> None:
        if self._task is None and not self._is_closed and self._pending():
            self._task = asyncio.get_running_loop().create_task(self._look_up())
            self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offsets for timestamps; where no message is as young as that, the offset after the last one."""
        outcomes = await self._list(timestamps)
        for outcome in outcomes.values():
            if isinstance(outcome, ClientError):
                raise outcome
        return {key: offset for key, offset in outcomes.items() if not isinstance(offset, ClientError)}

    def _pending(self) -> list[PartitionCursor]:
        return [each for each in self._subscription.cursors.values() if each.lookup is not None and each.error is None]

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._crashed(error)
        elif not self._is_closed and self._pending():
            # What failed in a way that may pass is tried again.
            self._timer = asyncio.get_running_loop().call_later(RETRY_MS / 1000, self.wake)

    async def _look_up(self) -> None:
        has_failed = False
        while not has_failed and (pending := self._pending()):
            versions = {cursor: cursor.version for cursor in pending}
            committed = [cursor for cursor in pending if cursor.lookup == COMMITTED]
            others = [cursor for cursor in pending if cursor.lookup != COMMITTED]
            if committed:
                has_failed = not await self._look_up_committed(committed, versions)
            if others:
                has_failed = not await self._look_up_times(others, versions) or has_failed
            self._found()

    async def _look_up_committed(self, cursors: list[PartitionCursor], versions: Mapping[PartitionCursor, int]) -> bool:
        reset = RESETS[self._settings.auto_offset_reset]
        offsets = {}
        if self._committer is not None:
            try:
                keys = [cursor.key for cursor in cursors]
                offsets = await self._committer.fetch(keys, stable=self._is_committed_only)
            except ClientError as error:
                self._failed(cursors, versions, error)
                return False
        for cursor in cursors:
            if cursor.version != versions[cursor] or cursor.is_revoked:
                continue
            committed = offsets.get(cursor.key)
            if committed is not None:
                self._subscription.seek(cursor, committed.offset, committed.leader_epoch)
                cursor.committed = committed.offset
            elif reset is not None:
                self._subscription.look_up(cursor, reset)
            else:
                group = self._settings.group_id
                nothing = f"group {group!r} has committed nothing" if group else "there is no group that could commit"
                cursor.error = NoPositionError(
                    f"{cursor.key}: {nothing}, and auto.offset.reset=none: `seek`, or say by earliest or latest where "
                    "to begin",
                    cursor.key,
                )
        return True

    async def _look_up_times(self, cursors: list[PartitionCursor], versions: Mapping[PartitionCursor, int]) -> bool:
        timestamps = {cursor.key: cursor.lookup for cursor in cursors if cursor.lookup is not None}
        outcomes = await self._list(timestamps)
        is_complete = True
        for cursor in cursors:
            outcome = outcomes[cursor.key]
            if isinstance(outcome, ClientError):
                self._failed([cursor], versions, outcome)
                is_complete = False
            elif cursor.version == versions[cursor] and not cursor.is_revoked:
                self._subscription.seek(cursor, outcome)
        return is_complete

    async def _list(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | ClientError]:
        listed = await list_offsets(self._cluster, timestamps, read_committed=self._is_committed_only)
        younger = [key for key, told in listed.items() if isinstance(told, ListedOffset) and told.offset == _NOTHING]
        if younger:
            ends = dict.fromkeys(younger, LATEST)
            listed |= await list_offsets(self._cluster, ends, read_committed=self._is_committed_only)
        return {key: told.offset if isinstance(told, ListedOffset) else told for key, told in listed.items()}

    def _failed(
        self, cursors: list[PartitionCursor], versions: Mapping[PartitionCursor, int], error: ClientError
    ) -> None:
        """An outage may be over soon, and a group finds out by itself that a topic is gone."""
        is_for_group = isinstance(error, UnknownTopicError) and self._subscription.wanted is not None
        if is_for_group or may_pass(error, TRIES_FOR_UNKNOWN, repeatable=True):
            return
        for cursor in cursors:
            if cursor.version == versions[cursor]:
                cursor.error = error
