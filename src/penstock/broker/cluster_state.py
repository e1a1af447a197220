"""The cluster as this broker knows it: the image, kept up with the metadata log, and the way to change it.

One broker alone is its own controller. In a cluster the others follow the log and send their changes to the one that
holds the lease.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from penstock.machines.cluster import ClusterImage
from penstock.machines.cluster_records import ConfigChanged, PartitionChanged, Record, TopicCreated, TopicDeleted
from penstock.machines.cluster_records import decode as decode_records
from penstock.machines.cluster_records import encode as encode_records
from penstock.machines.config_changes import ConfigRules
from penstock.machines.controller import Controller
from penstock.machines.decisions import Decision
from penstock.metadata.store import MetadataStore, StoreError

log = logging.getLogger(__name__)

SNAPSHOT_EVERY_ENTRIES: Final = 1000
R = TypeVar("R")


class NotControllerError(Exception):
    """Another broker decides for the cluster."""


class ClusterState:
    """`changed` is told the topics that a change was about, after the image has it."""

    def __init__(self, store: MetadataStore, rules: ConfigRules, changed: Callable[[set[str]], None]) -> None:
        self.image = ClusterImage()
        self._store = store
        self._controller = Controller(self.image, rules)
        self._changed = changed
        self._controller_epoch = 0
        self._index = 0
        self._snapshot_index = 0
        self._one_at_a_time = asyncio.Lock()

    async def load(self, broker_id: int) -> None:
        """Take the lease, and build the image from the log."""
        epoch = await self._store.take_controller_lease(broker_id)
        if epoch is None:
            raise NotControllerError("another broker holds the controller's lease on this metadata store")
        self._controller_epoch = epoch
        snapshot = await self._store.load_snapshot()
        if snapshot is not None:
            self._index = self._snapshot_index = snapshot[0]
            self._apply(decode_records(snapshot[1]))
        while entries := await self._store.entries(self._index):
            for index, entry in entries:
                self._apply(decode_records(entry))
                self._index = index

    async def change(self, decide: Callable[[Controller], Decision[R]]) -> R:
        """Let the controller decide, make the decision durable, and then let it be so. `Refused` comes through."""
        # It is seen through, and nobody else decides meanwhile, whatever happens to who asked: a change that was made
        # and not applied would be a lie.
        return await asyncio.shield(self._change(decide))

    async def _change(self, decide: Callable[[Controller], Decision[R]]) -> R:
        async with self._one_at_a_time:
            decision = decide(self._controller)
            if decision.records:
                await self._commit(decision.records)
            return decision.reply

    async def _commit(self, records: tuple[Record, ...]) -> None:
        await self._store.append(self._controller_epoch, self._index + 1, encode_records(records))
        self._index += 1
        topics = self._topics_of(records)
        self._apply(records)
        self._changed(topics | self._topics_of(records))
        if self._index - self._snapshot_index >= SNAPSHOT_EVERY_ENTRIES:
            await self._save_snapshot()

    async def _save_snapshot(self) -> None:
        try:
            await self._store.save_snapshot(self._index, encode_records(self.image.snapshot()))
            self._snapshot_index = self._index
        except StoreError as error:
            # The log has everything; the next start reads more of it.
            log.warning("no metadata snapshot", extra={"error": str(error)})

    def _apply(self, records: Iterable[Record]) -> None:
        for record in records:
            self.image.apply(record)

    def _topics_of(self, records: Iterable[Record]) -> set[str]:
        """The names of the topics that records are about, as far as the image knows them now."""
        names: set[str] = set()
        for record in records:
            match record:
                case TopicCreated() | ConfigChanged(resource="topic"):
                    names.add(record.name)
                case PartitionChanged() | TopicDeleted():
                    topic = self.image.topics_by_id.get(record.topic_id)
                    if topic is not None:
                        names.add(topic.name)
                case ConfigChanged():
                    names |= self.image.topics.keys()
        return names
