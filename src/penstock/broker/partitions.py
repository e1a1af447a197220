"""The partitions that this broker has: made and unmade as the image of the cluster says."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from penstock.broker.disk_space import DiskSpace
from penstock.broker.partition import Partition
from penstock.broker.topic_settings import TopicSettings
from penstock.machines.cluster import ClusterImage, TopicImage
from penstock.protocol.error_codes import ErrorCode
from penstock.storage.data_directory import DataDirectory
from penstock.storage.errors import StorageError
from penstock.storage.flusher import FlushRound
from penstock.storage.log import Log
from penstock.storage.segment import CutBackError

log = logging.getLogger(__name__)

NO_ID: Final = bytes(16)
# A turn of the loop in which no more connections than this bring records is not worth waiting for.
FEW_READS: Final = 2
PROBE_EVERY: Final = 64


class Partitions:
    def __init__(
        self,
        node_id: int,
        directory: DataDirectory,
        image: ClusterImage,
        settings_of: Callable[[TopicImage], TopicSettings],
        now_ms: Callable[[], int],
        *,
        after_writes: Callable[[bool], None],
        is_reading: Callable[[], bool] = lambda: False,
        disk_broke: Callable[[OSError], None] = lambda error: None,
        disk: DiskSpace | None = None,
    ) -> None:
        self._node_id = node_id
        self._directory = directory
        self._image = image
        self._settings_of = settings_of
        self._now_ms = now_ms
        self._after_writes = after_writes
        self._is_reading = is_reading
        self._disk_broke = disk_broke
        self._disk = disk
        self._loop = asyncio.get_running_loop()
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._by_log: dict[Log, Partition] = {}
        self._to_write: list[Partition] = []
        self._is_write_scheduled = False
        # Whether it pays to wait for what other connections bring in the same turn, and what tells.
        self._is_gathering = True
        self._reads = 0
        self._lone_writes = 0
        # Partitions whose log could not be opened, and why.
        self.failed: dict[tuple[str, int], str] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def all(self) -> list[Partition]:
        return list(self._partitions.values())

    # Finding

    def get(self, topic: str, index: int) -> Partition | ErrorCode:
        """A partition by its topic's name, or what is wrong with asking for it."""
        partition = self._partitions.get((topic, index))
        if partition is not None:
            return partition
        known = self._image.topics.get(topic)
        if known is None or not 0 <= index < len(known.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if (topic, index) in self.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | ErrorCode:
        topic = self._image.topics_by_id.get(topic_id)
        return ErrorCode.UNKNOWN_TOPIC_ID if topic is None else self.get(topic.name, index)

    def find(self, topic: str, topic_id: bytes, index: int, *, by_id: bool) -> Partition | ErrorCode:
        return self.find_by_id(topic_id, index) if by_id else self.get(topic, index)

    # Following the image

    def image_changed(self, topics: set[str]) -> None:
        """The image has changed for these topics: become what it says."""
        for name in topics:
            topic = self._image.topics.get(name)
            if topic is None or self._was_recreated(topic):
                self._remove(name)
            if topic is not None:
                self._follow(topic)

    def open_all(self) -> None:
        """At the start: everything that the image gives to this broker."""
        for topic in self._image.topics.values():
            self._follow(topic)

    def _was_recreated(self, topic: TopicImage) -> bool:
        partition = self._partitions.get((topic.name, 0))
        return partition is not None and partition.topic_id != topic.topic_id

    def _remove(self, name: str) -> None:
        for key in [key for key in self._partitions if key[0] == name]:
            partition = self._partitions.pop(key)
            del self._by_log[partition.log]
            partition.close()
            self._delete(*key)
        for key in [key for key in self.failed if key[0] == name]:
            del self.failed[key]
            self._delete(*key)

    def _delete(self, topic: str, index: int) -> None:
        try:
            self._directory.delete(topic, index)
        except (OSError, StorageError) as error:
            # The cluster has decided: it is gone. What is left of it has an id that no topic will have again.
            log.error(
                "files of a deleted partition are left", extra={"partition": f"{topic}-{index}", "error": str(error)}
            )

    def _follow(self, topic: TopicImage) -> None:
        settings = self._settings_of(topic)
        for image in topic.partitions:
            key = (topic.name, image.index)
            partition = self._partitions.get(key)
            if partition is not None:
                partition.settings = settings
                partition.log.config = settings.log
            elif image.leader == self._node_id and key not in self.failed:
                self._open(topic, image.index, image.leader_epoch, settings)

    def _open(self, topic: TopicImage, index: int, leader_epoch: int, settings: TopicSettings) -> None:
        try:
            opened = self._directory.log(topic.name, index, settings.log, identity=topic.topic_id)
            partition = Partition(
                topic.name,
                topic.topic_id,
                index,
                opened,
                settings,
                leader_epoch=leader_epoch,
                now_ms=self._now_ms(),
                write_later=self._write_later,
                disk=self._disk,
            )
        except (OSError, StorageError) as error:
            # The others are sound: this one stays away, and the operator is told.
            log.error("partition is offline", extra={"partition": f"{topic.name}-{index}", "error": str(error)})
            self.failed[topic.name, index] = str(error)
            return
        self._partitions[topic.name, index] = partition
        self._by_log[opened] = partition

    # Writing and flushing

    def _write_later(self, partition: Partition) -> None:
        if not self._to_write and (self._is_gathering or not self._is_reading()):
            self._is_write_scheduled = True
            self._loop.call_soon(self._end_turn)
        self._to_write.append(partition)

    def end_of_read(self) -> None:
        """A connection has handed in all that it read. Where connections hardly ever come together it is written now,
        which saves a turn of the loop; now and then it is looked whether that is still so."""
        if self._is_write_scheduled:
            self._reads += 1
        elif self._to_write:
            self._lone_writes += 1
            self._is_gathering = self._lone_writes % PROBE_EVERY == 0
            self.write_staged()

    def _end_turn(self) -> None:
        self._is_write_scheduled = False
        reads, self._reads = self._reads, 0
        self._is_gathering = reads > FEW_READS
        self.write_staged()

    def write_staged(self) -> None:
        """Write what was brought, each partition's with one call."""
        partitions, self._to_write = self._to_write, []
        now_ms = self._now_ms()
        is_waited_for = False
        for partition in partitions:
            partition.write_staged(now_ms)
            is_waited_for = is_waited_for or partition.leader.has_waiters
            if isinstance(failure := partition.log.failure, CutBackError):
                # What neither takes a write nor lets itself be cut is no disk any more.
                self._disk_broke(failure)
        self._after_writes(is_waited_for)

    def somebody_waits(self) -> bool:
        """Whether anybody waits for what the next flush would bring."""
        dirty = (self._by_log.get(written) for written in self._directory.flusher.dirty_logs)
        return any(partition is not None and partition.leader.has_waiters for partition in dirty)

    def flushed(self, round: FlushRound) -> None:
        for written, _ in round.work:
            partition = self._by_log.get(written)
            if partition is not None:
                partition.flushed()

    def disk_failed(self, message: str) -> None:
        """The data folder is offline, and all its partitions with it: whoever waits or asks is told so."""
        partitions, self._partitions = self._partitions, {}
        self._by_log.clear()
        self.failed |= dict.fromkeys(partitions, message)
        for partition in partitions.values():
            partition.went_offline(message)
