"""`GroupReading` prints messages as a member of a consumer group, and commits what it has printed."""

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Any

from penstock.cli.consume.printing import Printer
from penstock.cli.options import ClientConfig
from penstock.cli.output import warn
from penstock.cli.positions import Position

if TYPE_CHECKING:
    from penstock.client.cluster.cluster import Cluster
    from penstock.client.consumer.consumer import Consumer
    from penstock.client.metadata import TopicPartition

# How often the command looks whether it is through; messages are fetched in the background meanwhile.
POLL_MS = 100


class GroupReading:
    """One run of the command. Unless it follows, it ends where its partitions ended when it got them."""

    def __init__(self, printer: Printer, *, client: ClientConfig, follow: bool, until: Position | None = None) -> None:
        self._printer = printer
        self._client = client
        self._follow = follow
        self._until = until
        self._has_joined = False
        # The partitions that this member has, and where each of them ends.
        self._ends: dict[TopicPartition, int] = {}

    async def run(self, cluster: "Cluster") -> None:
        from penstock.client.consumer.consumer import Consumer
        from penstock.client.errors import CommitFailedError, unwrap

        unwrap(await cluster.topics(self._printer.topics))
        async with Consumer({"enable.auto.commit": False, **self._client}) as consumer:

            async def assigned(keys: "frozenset[TopicPartition]") -> None:
                self._has_joined = True
                self._ends.update(await self._find_ends(cluster, keys))

            consumer.subscribe(self._printer.topics, on_assigned=assigned, on_revoked=self._gave_up)
            while not self._printer.is_full and not await self._is_through(consumer):
                messages = await consumer.poll(timeout_ms=POLL_MS)
                offsets = self._show(messages)
                self._printer.flush()
                if not offsets:
                    continue
                try:
                    await consumer.commit(offsets)
                except CommitFailedError as error:
                    warn(f"{error}: the member that has the partitions now gets these messages again")

    def _show(self, messages: Iterable[Any]) -> "dict[TopicPartition, int]":
        """Print messages; returns what is to be committed."""
        offsets: dict[TopicPartition, int] = {}
        for key, run in groupby(messages, key=lambda message: message.topic_partition):
            if self._printer.is_full:
                break
            end = None if self._follow else self._ends.get(key)
            next_offset = self._printer.show(key.topic, key.partition, run, end)
            if next_offset is not None:
                offsets[key] = next_offset
        return offsets

    async def _find_ends(self, cluster: "Cluster", keys: "frozenset[TopicPartition]") -> "dict[TopicPartition, int]":
        from penstock.cli.partition_ranges import locate, partition_ranges

        if self._follow:
            return {}
        ranges = await partition_ranges(cluster, keys)
        if self._until is None:
            return {key: each.stop for key, each in ranges.items()}
        return await locate(cluster, self._until, ranges)

    def _gave_up(self, keys: "frozenset[TopicPartition]") -> None:
        for key in keys:
            self._ends.pop(key, None)

    async def _is_through(self, consumer: "Consumer[Any, Any]") -> bool:
        if self._follow or not self._has_joined:
            return False
        if not consumer.assignment:
            warn("the other members of the group have all partitions")
            return True
        positions = consumer.positions()
        through = [key for key, end in self._ends.items() if positions.get(key, -1) >= end]
        # What came since is left to the next run, and may not crowd out partitions that are not through.
        if paused := consumer.assignment.intersection(through):
            consumer.pause(*paused)
        return len(through) == len(self._ends)
