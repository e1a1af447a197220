"""`Admin` administers the topics, configs, offsets and groups of a cluster, and raises what fails."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self, Unpack

from penstock.client.admin import configs, group_offsets, groups
from penstock.client.admin.brokers import ClusterDescription, describe_cluster
from penstock.client.admin.configs import Config, ConfigChange, Operation, Resource, ResourceType
from penstock.client.admin.elections import elect_leaders
from penstock.client.admin.group_offsets import CommittedOffset
from penstock.client.admin.groups import GroupDescription, GroupListing
from penstock.client.admin.lag import GroupLag, LagMeter
from penstock.client.admin.log_dirs import LogDir, describe_log_dirs
from penstock.client.admin.offsets import EARLIEST, LATEST, delete_records, list_offsets
from penstock.client.admin.reassignments import (
    Reassignment,
    alter_reassignments,
    list_reassignments,
    plan_replication_factor,
)
from penstock.client.admin.topics import (
    CreatedTopic,
    NewTopic,
    add_partitions,
    create_topics,
    delete_topics,
    describe_topics,
    list_topics,
)
from penstock.client.cluster.cluster import Cluster
from penstock.client.cluster.outages import ConnectionListener
from penstock.client.errors import BrokerError, ClientError, unwrap
from penstock.client.keywords import ClientKeywords
from penstock.client.metadata import Topic, TopicPartition
from penstock.client.opening import given_settings, open_cluster, to_milliseconds
from penstock.client.settings import ClientSettings, read_settings
from penstock.client.stats import ClientStats
from penstock.protocol.error_codes import ErrorCode


class Admin:
    """Looks at a cluster and changes it. What changes the cluster is never sent twice: when it is unknown whether a
    broker has carried it out, the error's `outcome_unknown` says so.

    Example:
        async with Admin("localhost:9092") as admin:
            await admin.create_topic("orders", 3, configs={"retention.ms": "3600000"})
            print(await admin.end_offsets("orders"))
    """

    def __init__(
        self,
        bootstrap: str | Mapping[str, Any] | None = None,
        /,
        *,
        on_connection: ConnectionListener | None = None,
        **settings: Unpack[ClientKeywords],
    ) -> None:
        """`on_connection` is called with a ConnectionEvent when a broker was lost, and when it is back."""
        self.settings = read_settings(ClientSettings, given_settings(bootstrap), settings)
        self._cluster: Cluster = open_cluster(self.settings, on_connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._cluster.close()

    def stats(self) -> ClientStats:
        """What the client knows about its connections now, and the last error."""
        return self._cluster.stats()

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
        """Create a topic; -1 leaves a number to the broker. With `exist_ok` an existing topic is accepted, with the
        partitions and configs that it has."""
        new = NewTopic(
            name=name, partitions=partitions, replication_factor=replication_factor, configs=dict(configs or {})
        )
        try:
            return unwrap(await create_topics(self._cluster, [new]))[name]
        except BrokerError as error:
            if not exist_ok or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        topic = await self.topic(name)
        replicas = len(topic.partitions[0].replicas) if topic.partitions else -1
        return CreatedTopic(name, topic.topic_id, len(topic.partitions), replicas)

    async def create_topics(self, topics: Iterable[NewTopic]) -> dict[str, CreatedTopic | ClientError]:
        """Create several topics; returns the outcome of each, which for a failed one is its error."""
        return await create_topics(self._cluster, topics)

    async def delete_topic(self, name: str, *, missing_ok: bool = False) -> None:
        """Delete a topic with all that is in it."""
        try:
            unwrap(await delete_topics(self._cluster, [name]))
        except BrokerError as error:
            if not missing_ok or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise

    async def topics(self) -> list[Topic]:
        """All topics that the client may see, by name, including internal ones."""
        return await list_topics(self._cluster)

    async def topic(self, name: str) -> Topic:
        """A topic as it is now: its id and its partitions, with their leaders and replicas."""
        return unwrap(await describe_topics(self._cluster, [name]))[name]

    async def add_partitions(self, name: str, total: int) -> None:
        """Raise the number of a topic's partitions to a total. Keys may then go to other partitions than before."""
        unwrap(await add_partitions(self._cluster, {name: total}))

    async def alter_replication_factor(self, topic: str, factor: int) -> None:
        """Let each partition of a topic have this many replicas. The cluster copies them after this has returned:
        `reassignments` has those that are not done. Penstock adds replicas, and cannot remove any yet."""
        targets = await plan_replication_factor(self._cluster, topic, factor)
        if targets:
            unwrap(await alter_reassignments(self._cluster, targets))

    async def reassignments(self) -> dict[TopicPartition, Reassignment]:
        """The partitions whose replicas are being changed."""
        return await list_reassignments(self._cluster)

    async def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before an offset (-1: all of them); returns the first offset that is left."""
        return unwrap(await delete_records(self._cluster, offsets))

    # Offsets

    async def beginning_offsets(self, topic: str) -> dict[TopicPartition, int]:
        """The first offset that each partition of a topic has."""
        return await self._offsets(topic, EARLIEST)

    async def end_offsets(self, topic: str) -> dict[TopicPartition, int]:
        """The offset after the last message of each partition."""
        return await self._offsets(topic, LATEST)

    async def offsets_at(self, topic: str, time: int | datetime) -> dict[TopicPartition, int | None]:
        """The offset of the first message of each partition that is not older than a time (milliseconds since 1970, or
        a datetime); None if there is none."""
        found = await self._offsets(topic, to_milliseconds(time))
        return {key: None if offset < 0 else offset for key, offset in found.items()}

    async def _offsets(self, topic: str, timestamp: int) -> dict[TopicPartition, int]:
        partitions = (await self.topic(topic)).partitions
        keys = {TopicPartition(topic, each.index): timestamp for each in partitions}
        return {key: each.offset for key, each in unwrap(await list_offsets(self._cluster, keys)).items()}

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
        """The cluster's id, its controller and its brokers."""
        return await describe_cluster(self._cluster)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> list[TopicPartition]:
        """Let preferred replicas lead, of these partitions or of all; returns the partitions that have another leader
        now. With `unclean` partitions without a leader get one that may lack committed records, which are lost then:
        for when a replica that has them will not come back."""
        outcomes = unwrap(await elect_leaders(self._cluster, partitions, unclean=unclean))
        return [key for key, is_elected in outcomes.items() if is_elected]

    async def log_dirs(self) -> dict[int, list[LogDir]]:
        """The data folders of each broker, with the sizes of the partitions in them."""
        return unwrap(await describe_log_dirs(self._cluster))

    # Groups

    async def groups(self) -> list[GroupListing]:
        """All groups that the brokers coordinate, by name."""
        listed = await groups.list_groups(self._cluster)
        unwrap(listed)
        return groups.all_listed(listed)

    async def group(self, name: str) -> GroupDescription:
        """The members of a group, and the partitions that each member has."""
        return unwrap(await groups.describe_groups(self._cluster, [name]))[name]

    async def delete_group(self, name: str) -> None:
        """Delete a group without members, and the offsets that it has committed."""
        unwrap(await groups.delete_groups(self._cluster, [name]))

    async def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """All offsets that a group has committed."""
        return unwrap(await group_offsets.group_offsets(self._cluster, [group]))[group]

    async def commit(self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]) -> None:
        """Move a group that has no members; a group that does not exist is created by it."""
        wanted = {
            key: offset if isinstance(offset, CommittedOffset) else CommittedOffset(offset)
            for key, offset in offsets.items()
        }
        unwrap(await group_offsets.commit_offsets(self._cluster, group, wanted))

    async def lag(self, group: str) -> GroupLag:
        """The lag of a group, in messages and in seconds."""
        return await LagMeter(self._cluster, group).measure()
