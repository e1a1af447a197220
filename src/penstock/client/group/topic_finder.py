"""The topic finder finds the topics that a consumer wants: by name, or all whose whole name matches a pattern."""

import re
from collections.abc import Collection, Mapping

from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.group.protocol import Wanted
from penstock.client.metadata import Topic
from penstock.client.settings import ConsumerSettings
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic

MISSING_TOPIC_MS = 1_000
"""How often a topic that does not exist yet is looked for."""


class TopicFinder:
    def __init__(self, cluster: Cluster, settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self._creates = settings.allow_auto_create_topics
        self._age_ms = settings.metadata_max_age_ms

    def wait_seconds(self, *, is_complete: bool) -> float:
        """How long the topics that were found may be used before they are looked for again."""
        return (self._age_ms if is_complete else min(self._age_ms, MISSING_TOPIC_MS)) / 1000

    async def names(self, wanted: Wanted) -> frozenset[str]:
        """The existing topics that match a pattern; otherwise exactly the names that are wanted."""
        if isinstance(wanted, re.Pattern):
            return frozenset(await self._matching(wanted))
        await self._create(wanted)
        return wanted

    async def topics(self, wanted: Wanted) -> Mapping[str, Topic | ClientError]:
        if isinstance(wanted, re.Pattern):
            return await self._matching(wanted)
        await self._create(wanted)
        return await self._cluster.topics(wanted, fresh=True)

    async def counts(self, names: Collection[str]) -> dict[str, int]:
        """How many partitions each has, without those that do not exist."""
        found = await self._cluster.topics(names, fresh=True)
        return {name: len(topic.partitions) for name, topic in found.items() if isinstance(topic, Topic)}

    async def _matching(self, pattern: re.Pattern[str]) -> dict[str, Topic]:
        topics = await self._cluster.all_topics()
        return {each.name: each for each in topics if pattern.fullmatch(each.name) and not each.is_internal}

    async def _create(self, names: frozenset[str]) -> None:
        """Ask for topics so that brokers create them, if the settings of both sides allow that."""
        if self._creates:
            topics = [MetadataRequestTopic(name=name) for name in sorted(names)]
            await self._cluster.request(MetadataRequest(topics=topics, allow_auto_topic_creation=True))
