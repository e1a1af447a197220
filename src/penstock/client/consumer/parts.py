"""`ConsumerParts` makes the parts of a consumer, connects them, and closes them in reverse order."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from penstock.client.cluster.cluster import Cluster
from penstock.client.consumer.deduplication import Deduplicator
from penstock.client.consumer.deserializers import Deserializers
from penstock.client.consumer.fetched import Rules
from penstock.client.consumer.fetcher import Prefetcher
from penstock.client.consumer.ownership import Listeners, Ownership
from penstock.client.consumer.poller import Holder, Poller
from penstock.client.consumer.positioner import Positioner
from penstock.client.consumer.progress import Progress
from penstock.client.consumer.subscription import Subscription
from penstock.client.corruption import PassedOver
from penstock.client.errors import ClientError, CommitFailedError
from penstock.client.group.committer import Committer, NoMembership
from penstock.client.group.lone_reader import LoneReader
from penstock.client.group.membership import Membership
from penstock.client.settings import ConsumerSettings
from penstock.machines.assignors import Assignor

logger = logging.getLogger(__name__)


class ConsumerParts:
    """The parts of a consumer, from its first use to its end."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        subscription: Subscription,
        *,
        deserializers: Deserializers,
        listeners: Listeners,
        assignors: Sequence[Assignor],
        commits_first: bool,
        passed_over: PassedOver,
        dedup: Deduplicator | None = None,
    ) -> None:
        """`commits_first`: messages are committed before they are returned, and never after."""
        self._cluster = cluster
        self._settings = settings
        self._assignors = assignors
        self._commits_first = commits_first
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self.poller = Poller(subscription, deserializers, room=self._room_was_made, dedup=dedup)
        self._committer: Committer | None = None
        if settings.group_id is not None:
            self._committer = Committer(
                cluster, settings.group_id, group=NoMembership(), still_ours=lambda key: key in subscription.cursors
            )
        self.progress = Progress(settings, subscription, self.poller, None if commits_first else self._committer)
        self.prefetcher = Prefetcher(
            cluster,
            settings,
            subscription,
            rules=Rules(
                settings.check_crcs,
                settings.max_decompressed_bytes,
                passed_over if settings.on_corrupt == "skip" else None,
            ),
            news=self._told,
            lost=self._lost,
            crashed=self.failed,
        )
        self.positioner = Positioner(
            cluster, settings, subscription, committer=self._committer, found=self._found, crashed=self.failed
        )
        self._ownership = Ownership(
            subscription,
            listeners,
            self.progress,
            self.poller,
            changed=self.positions_changed,
        )
        self._reader: Membership | LoneReader | None = None
        self._past_rebalances = 0
        if subscription.wanted is not None:
            self.subscribed()

    @property
    def committer_of_group(self) -> Committer:
        if self._committer is None:
            raise ClientError("a consumer without a group commits nothing: give it a group_id")
        return self._committer

    @property
    def rebalances(self) -> int:
        """How often a group has assigned partitions to the consumer."""
        return self._past_rebalances + (self._reader.rebalances if isinstance(self._reader, Membership) else 0)

    # Calls from the consumer

    def subscribed(self) -> None:
        if self._reader is not None:
            self._reader.rejoin()
            return
        cluster, settings, owner = self._cluster, self._settings, self._ownership
        if self._committer is None:
            self._reader = LoneReader(cluster, settings, owner)
        else:
            self._reader = Membership(cluster, settings, self._assignors, owner=owner, app=self.poller)
            self._committer.group = self._reader
        self._reader.start()

    def positions_changed(self) -> None:
        self.positioner.wake()
        self.prefetcher.wake()
        self._told()

    async def poll(
        self,
        take: Callable[[], Any],
        timeout_ms: float | None,
        *,
        holder: Holder | None = None,
        give_back: Callable[[Any], None] | None = None,
    ) -> Any:
        """Poll, and before anything is returned commit it if that was asked for."""
        give_back = give_back or self.poller.give_all_back
        deadline = None if timeout_ms is None else self._loop.time() + timeout_ms / 1000
        while True:
            left_ms = None if deadline is None else max(0.0, (deadline - self._loop.time()) * 1000)
            taken = await self.poller.poll(take, left_ms, self._while_paused, holder)
            if not taken or self._committer is None or not self._commits_first:
                return taken
            try:
                await self._committer.commit(self.poller.ends())
                return taken
            except CommitFailedError:
                # The member that has the partitions now will get these messages.
                give_back(taken)
            except BaseException:
                give_back(taken)
                raise

    async def until_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    async def end_subscription(self, reason: str) -> None:
        if self._reader is None:
            return
        self._past_rebalances = self.rebalances
        reader, self._reader = self._reader, None
        await reader.stop()
        self.poller.pause_polls(wanted=False)
        await self._ownership.revoked(self._ownership.owned)
        if self._committer is not None:
            await reader.leave(reason)
            self._committer.group = NoMembership()

    async def close(self, *, is_through: bool, timeout_ms: float) -> None:
        """Close the parts in reverse order. `is_through`: the application is done with what it was given. The group is
        informed, if that is possible in time."""
        if is_through:
            self.poller.came_back()
        self.poller.failed_for_good(ClientError("the consumer was closed: make a new one"))
        try:
            await self.prefetcher.close()
            await self.positioner.close()
            await self.progress.close()
            async with asyncio.timeout(timeout_ms / 1000):
                if self._reader is not None:
                    await self.end_subscription("the consumer was closed")
                else:
                    await self.progress.commit()
                if self._committer is not None:
                    await self._committer.drain()
        except TimeoutError:
            logger.warning("the group did not hear within %d ms that its consumer was closed", timeout_ms)
        finally:
            if self._committer is not None:
                await self._committer.close()
            self.poller.close()
            self._told()

    # Calls from the parts

    def failed(self, error: BaseException) -> None:
        self.poller.failed(error)
        self._told()

    def _told(self) -> None:
        self._news.set()
        self.poller.wake()

    def _lost(self) -> None:
        self.positioner.wake()

    def _room_was_made(self) -> None:
        self.prefetcher.wake()

    def _found(self) -> None:
        self.prefetcher.wake()
        self._told()

    async def _while_paused(self) -> None:
        if isinstance(self._reader, Membership):
            self._reader.app_came()
            await self._reader.until_calm()
