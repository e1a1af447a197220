"""`LoneReader` reads topics without a group: all of their partitions, and those that are added later."""

import asyncio
import re

from penstock.client.cluster.cluster import Cluster
from penstock.client.cluster.retries import TRIES_FOR_UNKNOWN, may_pass
from penstock.client.errors import ClientError
from penstock.client.group.membership import Owner
from penstock.client.group.missing_topics import MissingTopics
from penstock.client.group.protocol import Wanted
from penstock.client.group.topic_finder import TopicFinder
from penstock.client.metadata import Topic, TopicPartition
from penstock.client.settings import ConsumerSettings


class LoneReader:
    """Stands in for a `Membership`, with the methods that `ConsumerParts` calls."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings, owner: Owner) -> None:
        self._finder = TopicFinder(cluster, settings)
        self._owner = owner
        self._missing = MissingTopics("a consumer", owner.failed, raises=settings.on_missing_topic != "warn")
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._look_for_ever())
        self._task.add_done_callback(self._ended)

    def rejoin(self) -> None:
        """The subscription has changed."""
        self._changed.set()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def leave(self, reason: str) -> None:
        """Do nothing: there is no group to leave."""

    async def _look_for_ever(self) -> None:
        while True:
            self._changed.clear()
            wanted = self._owner.wanted
            is_complete = wanted is None or await self._look(wanted)
            try:
                async with asyncio.timeout(self._finder.wait_seconds(is_complete=is_complete)):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _look(self, wanted: Wanted) -> bool:
        """Whether everything is there that is wanted."""
        is_complete = True
        topics: list[Topic] = []
        try:
            for name, found in (await self._finder.topics(wanted)).items():
                if isinstance(found, Topic):
                    topics.append(found)
                    self._missing.found(name)
                else:
                    is_complete = False
                    self._missing.report(name, found)
        except ClientError as error:
            if not may_pass(error, TRIES_FOR_UNKNOWN, repeatable=True):
                self._owner.failed(error)
            return False
        owned = self._owner.owned
        is_wanted = wanted.fullmatch if isinstance(wanted, re.Pattern) else wanted.__contains__
        if gone := frozenset(key for key in owned if not is_wanted(key.topic)):
            await self._owner.revoked(gone)
        keys = frozenset(TopicPartition(topic.name, each.index) for topic in topics for each in topic.partitions)
        if added := keys - owned:
            await self._owner.assigned(added)
        return is_complete

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._owner.failed(error)
