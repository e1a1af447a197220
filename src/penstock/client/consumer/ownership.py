"""`Ownership` takes partitions over and gives them up as the group decides: it commits their offsets and calls the
user's functions."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isawaitable
from typing import TypeAlias

from penstock.client.consumer.poller import Poller
from penstock.client.consumer.progress import Progress
from penstock.client.consumer.subscription import Subscription
from penstock.client.errors import ClientError
from penstock.client.group.protocol import Wanted
from penstock.client.metadata import TopicPartition

Listener: TypeAlias = Callable[[frozenset[TopicPartition]], Awaitable[None] | None]
"""A function that is called with partitions that come or go; it may be async."""


@dataclass(slots=True)
class Listeners:
    assigned: Listener | None = None
    revoked: Listener | None = None
    lost: Listener | None = None


class Ownership:
    """Takes over and gives up partitions. `changed` is called when the partitions have changed."""

    def __init__(
        self,
        subscription: Subscription,
        listeners: Listeners,
        progress: Progress,
        poller: Poller,
        *,
        changed: Callable[[], None],
    ) -> None:
        self._subscription = subscription
        self._listeners = listeners
        self._progress = progress
        self._poller = poller
        self._changed = changed

    @property
    def wanted(self) -> Wanted | None:
        return self._subscription.wanted

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return frozenset(self._subscription.cursors)

    @property
    def asks_the_user(self) -> bool:
        return self._listeners.assigned is not None

    async def assigned(self, keys: frozenset[TopicPartition]) -> None:
        self._subscription.add(sorted(keys))
        await self._call(self._listeners.assigned, keys)
        self._changed()

    async def revoked(self, keys: frozenset[TopicPartition]) -> None:
        await self._progress.commit()
        if keys:
            await self._call(self._listeners.revoked, keys)
        self._subscription.remove(keys)
        self._changed()

    async def lost(self, keys: frozenset[TopicPartition]) -> None:
        self._subscription.remove(keys)
        if keys:
            await self._call(self._listeners.lost, keys)
        self._changed()

    def failed(self, error: BaseException) -> None:
        self._poller.failed(error)

    def fenced(self, error: ClientError) -> None:
        self._subscription.wanted = None
        self._subscription.remove(list(self._subscription.cursors))
        self._poller.failed_for_good(error)

    async def _call(self, listener: Listener | None, keys: frozenset[TopicPartition]) -> None:
        """What the user's function raises, the next poll raises."""
        if listener is not None:
            try:
                if isawaitable(answer := listener(keys)):
                    await answer
            except Exception as error:
                self.failed(error)
