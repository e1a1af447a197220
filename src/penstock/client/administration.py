"""`Admin`: topics, configs, offsets and groups of a cluster. What fails is raised."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from penstock.client import admin, configs, groups
from penstock.client.admin import ClusterDescription, CreatedTopic, LogDir, NewTopic
from penstock.client.cluster import Cluster
from penstock.client.configs import Config, ConfigChange, Operation, Resource, ResourceType
from penstock.client.errors import BrokerError, ClientError, unwrap
from penstock.client.groups import CommittedOffset, GroupDescription, GroupListing
from penstock.client.lag import GroupLag, LagMeter
from penstock.client.metadata import Topic, TopicPartition
from penstock.client.opening import given_settings, open_cluster, to_milliseconds
from penstock.client.settings import ClientSettings, read_settings
from penstock.protocol.error_codes import ErrorCode


class Admin:
    """Looks at a cluster and changes it. What changes the cluster is never sent twice: when it is unknown whether a
    broker has carried it out, the error's `outcome_unknown` says so.

    Example:
        async with Admin("localhost:9092") as admin:
            await admin.create_topic("orders", 3, configs={"retention.ms": "3600000"})
            print(await admin.end_offsets("orders"))
    """

    def __init__(self, bootstrap: str | Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        self.settings = read_settings(ClientSettings, given_settings(bootstrap), settings)
        self._cluster: Cluster = open_cluster(self.settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._cluster.close()

    # Topics

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> CreatedTopic:
        """Make a topic; -1 leaves a number to the broker. With `exist_ok` one that is there is as good as a new one,
        whatever its partitions and configs are."""
        new = NewTopic(
            name=name, partitions=partitions, replication_factor=replication_factor, configs=dict(configs or {})
        )
        try:
            return unwrap(await admin.create_topics(self._cluster, [new]))[name]
        except BrokerError as error:
            if not exist_ok or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        topic = await self.topic(name)
        replicas = len(topic.partitions[0].replicas) if topic.partitions else -1
        return CreatedTopic(name, topic.topic_id, len(topic.partitions), replicas)

    async def create_topics(self, topics: Iterable[NewTopic]) -> dict[str, CreatedTopic | ClientError]:
        """Make many; tells the outcome of each, which for a failed one is its error."""
        return await admin.create_topics(self._cluster, topics)

    async def delete_topic(self, name: str, *, missing_ok: bool = False) -> None:
        """Delete a topic with all that is in it."""
        try:
            unwrap(await admin.delete_topics(self._cluster, [name]))
        except BrokerError as error:
            if not missing_ok or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise

    async def topics(self) -> list[Topic]:
        """All topics that we may see, by name, internal ones too."""
        return await admin.list_topics(self._cluster)

    async def topic(self, name: str) -> Topic:
        """A topic as it is now: its id and its partitions, with their leaders and replicas."""
        return unwrap(await admin.describe_topics(self._cluster, [name]))[name]

    async def add_partitions(self, name: str, total: int) -> None:
        """Give a topic so many partitions in all. Keys may then go to other partitions than before."""
        unwrap(await admin.add_partitions(self._cluster, {name: total}))

    async def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete what lies before an offset (-1: everything); tells the first offset that is left."""
        return unwrap(await admin.delete_records(self._cluster, offsets))

    # Offsets

    async def beginning_offsets(self, topic: str) -> dict[TopicPartition, int]:
        """The first offset that each partition of a topic has."""
        return await self._offsets(topic, admin.EARLIEST)

    async def end_offsets(self, topic: str) -> dict[TopicPartition, int]:
        """The offset behind the last message of each partition."""
        return await self._offsets(topic, admin.LATEST)

    async def offsets_at(self, topic: str, time: int | datetime) -> dict[TopicPartition, int | None]:
        """The offset of the first message of each partition that is not older than a time (milliseconds since 1970, or
        a datetime); None if there is none."""
        found = await self._offsets(topic, to_milliseconds(time))
        return {key: None if offset < 0 else offset for key, offset in found.items()}

    async def _offsets(self, topic: str, timestamp: int) -> dict[TopicPartition, int]:
        partitions = (await self.topic(topic)).partitions
        keys = {TopicPartition(topic, each.index): timestamp for each in partitions}
        return {key: each.offset for key, each in unwrap(await admin.list_offsets(self._cluster, keys)).items()}

    # Configs

    async def configs(self, topic: str) -> dict[str, Config]:
        """All configs of a topic, with where each value comes from."""
        resource = Resource(ResourceType.TOPIC, topic)
        return unwrap(await configs.describe_configs(self._cluster, [resource]))[resource]

    async def set_configs(self, topic: str, values: Mapping[str, str | None]) -> None:
        """Set configs of a topic, all or none; None goes back to the default."""
        changes = [
            ConfigChange(name, value, Operation.DELETE if value is None else Operation.SET)
            for name, value in values.items()
        ]
        unwrap(await configs.alter_configs(self._cluster, {Resource(ResourceType.TOPIC, topic): changes}))

    # The cluster

    async def cluster(self) -> ClusterDescription:
        """Its id, its controller and its brokers."""
        return await admin.describe_cluster(self._cluster)

    async def log_dirs(self) -> dict[int, list[LogDir]]:
        """The data folders of each broker, with the sizes of the partitions in them."""
        return unwrap(await admin.describe_log_dirs(self._cluster))

    # Groups

    async def groups(self) -> list[GroupListing]:
        """All groups that the brokers coordinate, by name."""
        listed = await groups.list_groups(self._cluster)
        unwrap(listed)
        return groups.all_listed(listed)

    async def group(self, name: str) -> GroupDescription:
        """Who is in a group, and which partitions each member has."""
        return unwrap(await groups.describe_groups(self._cluster, [name]))[name]

    async def delete_group(self, name: str) -> None:
        """Delete a group without members, and the offsets that it has committed."""
        unwrap(await groups.delete_groups(self._cluster, [name]))

    async def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """All offsets that a group has committed."""
        return unwrap(await groups.group_offsets(self._cluster, [group]))[group]

    async def commit(self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]) -> None:
        """Move a group that has no members; a group that does not exist is made by it."""
        wanted = {
            key: offset if isinstance(offset, CommittedOffset) else CommittedOffset(offset)
            for key, offset in offsets.items()
        }
        unwrap(await groups.commit_offsets(self._cluster, group, wanted))

    async def lag(self, group: str) -> GroupLag:
        """How far a group is behind, in messages and in seconds."""
        return await LagMeter(self._cluster, group).measure()
