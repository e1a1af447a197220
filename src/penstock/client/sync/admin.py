"""`Admin` is for callers that block: its methods wait for those of `penstock.client.Admin`."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Unpack

from penstock.client.admin import admin as asynchronous
from penstock.client.admin.brokers import ClusterDescription
from penstock.client.admin.configs import Config
from penstock.client.admin.group_offsets import CommittedOffset
from penstock.client.admin.groups import GroupDescription, GroupListing
from penstock.client.admin.lag import GroupLag
from penstock.client.admin.log_dirs import LogDir
from penstock.client.admin.reassignments import Reassignment
from penstock.client.admin.topics import CreatedTopic, NewTopic
from penstock.client.cluster.outages import ConnectionListener
from penstock.client.errors import ClientError
from penstock.client.keywords import ClientKeywords
from penstock.client.loop_thread import LoopThread
from penstock.client.metadata import Topic, TopicPartition
from penstock.client.settings import ClientSettings
from penstock.client.stats import ClientStats
from penstock.client.sync.blocking import Blocking


class Admin(Blocking):
    """Looks at a cluster and changes it; see `penstock.client.Admin`.

    Example:
        import penstock.client.sync

        with penstock.client.sync.Admin("localhost:9092") as admin:
            admin.create_topic("orders", 3)
            print(admin.end_offsets("orders"))
    """

    def __init__(
        self,
        bootstrap: str | Mapping[str, Any] | None = None,
        /,
        *,
        on_connection: ConnectionListener | None = None,
        **settings: Unpack[ClientKeywords],
    ) -> None:
        """`on_connection` is called in the client's own thread."""
        self._thread = LoopThread("penstock-admin")
        try:
            self._inner = self._thread.call(
                lambda: asynchronous.Admin(bootstrap, on_connection=on_connection, **settings)
            )
        except BaseException:
            self._thread.close()
            raise

    @property
    def settings(self) -> ClientSettings:
        return self._inner.settings

    def stats(self) -> ClientStats:
        """What the client knows about its connections now, and the last error."""
        return self._thread.call(self._inner.stats)

    def close(self) -> None:
        """Close all connections, and end the thread. Closing again does nothing."""
        if self._thread.is_open:
            try:
                self._thread.run(self._inner.close())
            finally:
                self._thread.close()

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> CreatedTopic:
        """Create a topic; -1 leaves a number to the broker."""
        made = self._inner.create_topic(
            name, partitions, replication_factor=replication_factor, configs=configs, exist_ok=exist_ok
        )
        return self._thread.run(made)

    def create_topics(self, topics: Iterable[NewTopic]) -> dict[str, CreatedTopic | ClientError]:
        return self._thread.run(self._inner.create_topics(topics))

    def delete_topic(self, name: str, *, missing_ok: bool = False) -> None:
        self._thread.run(self._inner.delete_topic(name, missing_ok=missing_ok))

    def topics(self) -> list[Topic]:
        return self._thread.run(self._inner.topics())

    def topic(self, name: str) -> Topic:
        return self._thread.run(self._inner.topic(name))

    def add_partitions(self, name: str, total: int) -> None:
        self._thread.run(self._inner.add_partitions(name, total))

    def alter_replication_factor(self, topic: str, factor: int) -> None:
        self._thread.run(self._inner.alter_replication_factor(topic, factor))

    def reassignments(self) -> dict[TopicPartition, Reassignment]:
        return self._thread.run(self._inner.reassignments())

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return self._thread.run(self._inner.delete_records(offsets))

    def beginning_offsets(self, topic: str) -> dict[TopicPartition, int]:
        return self._thread.run(self._inner.beginning_offsets(topic))

    def end_offsets(self, topic: str) -> dict[TopicPartition, int]:
        return self._thread.run(self._inner.end_offsets(topic))

    def offsets_at(self, topic: str, time: int | datetime) -> dict[TopicPartition, int | None]:
        return self._thread.run(self._inner.offsets_at(topic, time))

    def configs(self, topic: str) -> dict[str, Config]:
        return self._thread.run(self._inner.configs(topic))

    def set_configs(self, topic: str, values: Mapping[str, str | None]) -> None:
        self._thread.run(self._inner.set_configs(topic, values))

    def cluster(self) -> ClusterDescription:
        return self._thread.run(self._inner.cluster())

    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> list[TopicPartition]:
        return self._thread.run(self._inner.elect_leaders(partitions, unclean=unclean))

    def log_dirs(self) -> dict[int, list[LogDir]]:
        return self._thread.run(self._inner.log_dirs())

    def groups(self) -> list[GroupListing]:
        return self._thread.run(self._inner.groups())

    def group(self, name: str) -> GroupDescription:
        return self._thread.run(self._inner.group(name))

    def delete_group(self, name: str) -> None:
        self._thread.run(self._inner.delete_group(name))

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        return self._thread.run(self._inner.committed(group))

    def commit(self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]) -> None:
        self._thread.run(self._inner.commit(group, offsets))

    def lag(self, group: str) -> GroupLag:
        return self._thread.run(self._inner.lag(group))
