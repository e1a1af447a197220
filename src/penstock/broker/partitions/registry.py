"""The registry opens, leads and deletes partitions as the cluster's image says, finds them, and tells them what is
flushed."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol, TypeAlias

from penstock.broker.engine.turn import Turn
from penstock.broker.partitions.disk_space import DiskSpace
from penstock.broker.partitions.partition import Partition
from penstock.broker.partitions.topic_settings import TopicSettings
from penstock.machines.cluster import ClusterImage, ImageChange, PartitionImage, TopicImage
from penstock.machines.cluster_records import NO_LEADER
from penstock.machines.elections import awaits_reports
from penstock.machines.flush_urgency import Urgency
from penstock.machines.log_ends import LogEnd, LogEnds
from penstock.machines.partition_leader import LAG_MS
from penstock.protocol.error_codes import ErrorCode
from penstock.storage.data_directory import DataDirectory
from penstock.storage.errors import CorruptLogError, MetadataBehindError, StorageError
from penstock.storage.flusher import FlushRound
from penstock.storage.log.log import Log

log = logging.getLogger(__name__)

Key: TypeAlias = tuple[str, int]

ASK_AGAIN_SECONDS: Final = 5.0
"""A damaged replica that could not be given up is not asked for again before that."""
MOST_COPIES_AGAIN: Final = 3
"""How often a running broker copies a partition again in which it finds damage. A disk that changes whatever it is
given would come to hold nothing but logs that were set aside."""


class Following(Protocol):
    """What copies the logs of partitions that other brokers lead."""

    def follow(self, partition: Partition) -> None: ...

    def forget(self, partition: Partition) -> None: ...


class Partitions:
    """`recover` what lies in the data folder, `lead_all` once the cluster knows that this broker is there, and follow
    each change of the image. Found are only partitions that this broker leads."""

    def __init__(
        self,
        node_id: int,
        directory: DataDirectory,
        image: ClusterImage,
        settings_of: Callable[[TopicImage], TopicSettings],
        now_ms: Callable[[], int],
        *,
        turn: Turn,
        disk: DiskSpace | None = None,
        broker_epoch: Callable[[], int] = lambda: -1,
        lag_ms: Callable[[], int] = lambda: LAG_MS,
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._lag_ms = lag_ms
        # Told of partitions that this broker follows, or follows no longer, and of led ones that need a look.
        self.replicator: Following | None = None
        self.look_at: Callable[[Partition], None] | None = None
        # Told of a replica whose log is damaged, and the state of its partition.
        self.give_up: Callable[[bytes, PartitionImage], None] | None = None
        self._directory = directory
        self._image = image
        self._settings_of = settings_of
        self._now_ms = now_ms
        self._turn = turn
        self._disk = disk
        self._replicas: dict[Key, Partition] = {}
        self._led: dict[Key, Partition] = {}
        self._by_log: dict[Log, Partition] = {}
        self._may_lead = False
        self._takes_unconfirmed = True
        # Partitions whose log could not be opened, why, and in which epoch of their leader that was tried.
        self.failed: dict[Key, str] = {}
        self._tried_in: dict[Key, int] = {}
        # Those of which the log lacks what it should have, or has something else, whether it is open or not.
        self._damaged: set[Key] = set()
        # Seconds of the turns' clock.
        self._asked_to_give_up: dict[Key, float] = {}
        self._copied_again: Counter[Key] = Counter()

    def __len__(self) -> int:
        return len(self._led)

    def all(self) -> list[Partition]:
        """Those that this broker leads."""
        return list(self._led.values())

    def replicas(self) -> list[Partition]:
        """Those whose logs are open here, led or not."""
        return list(self._replicas.values())

    def replica(self, topic: str, index: int) -> Partition | None:
        return self._replicas.get((topic, index))

    def unknown(self) -> list[str]:
        """The partitions whose folders are here, and that the image does not give to this broker."""
        known = self._replicas.keys() | self.failed.keys()
        return [
            f"{topic}-{index}" for topic, index in sorted(self._directory.partitions()) if (topic, index) not in known
        ]

    def log_ends(self) -> LogEnds:
        """Where the logs end of partitions that were imported and wait for this report. No broker leads them, so that
        nothing is appended, and recovery has made them durable."""
        return {
            (topic.topic_id, image.index): _end_of(partition.log)
            for topic in self._image.topics.values()
            for image in topic.partitions
            if awaits_reports(image)
            and (partition := self._replicas.get((topic.name, image.index))) is not None
            and partition.log.failure is None
        }

    # Finding

    def get(self, topic: str, index: int) -> Partition | ErrorCode:
        """A partition by its topic's name, or the error for asking for it."""
        partition = self._led.get((topic, index))
        if partition is not None:
            return partition
        known = self._image.topics.get(topic)
        if known is None or not 0 <= index < len(known.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if (topic, index) in self.failed and known.partitions[index].leader == self._node_id:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | ErrorCode:
        topic = self._image.topics_by_id.get(topic_id)
        return ErrorCode.UNKNOWN_TOPIC_ID if topic is None else self.get(topic.name, index)

    def find(self, topic: str, topic_id: bytes, index: int, *, by_id: bool) -> Partition | ErrorCode:
        return self.find_by_id(topic_id, index) if by_id else self.get(topic, index)

    # Following the image

    def recover(self, image: ClusterImage) -> Iterator[None]:
        """Open the logs of all partitions of which this broker is a replica, and lead none of them yet; yields after
        each."""
        self._image = image
        for topic in list(image.topics.values()):
            yield from self._follow(topic, range(len(topic.partitions)))

    def lead_all(self) -> Iterator[None]:
        """The cluster knows that this broker is there: lead what the image gives to it, now and from now on. Yields
        after each partition; what changes meanwhile is to be followed afterwards."""
        self._may_lead = True
        yield from self.recover(self._image)

    def image_changed(self, change: ImageChange) -> Iterator[None]:
        """Follow the image, in which this has changed, and yield after each partition that changed with it. Until a
        partition is led here, it has no leader here."""
        for topic in change.deleted.values():
            yield from self._remove(topic)
        for topic_id, indexes in change.partitions.items():
            current = self._image.topics_by_id.get(topic_id)
            if current is not None:
                self._set_aside_older(current, indexes)
                yield from self._follow(current, sorted(indexes))
        for name in list(self._image.topics) if change.configs else change.configured:
            yield from self._configure(name)
        if change.partitions and self._directory.flusher.has_work:
            # Epochs that have begun are to be durable soon, though no client waits for that.
            self._turn.wake_flusher(Urgency.NONE)

    def _remove(self, topic: TopicImage) -> Iterator[None]:
        """Remove what is here of a topic, as it was when it was deleted."""
        for index in range(len(topic.partitions)):
            key = (topic.name, index)
            partition = self._replicas.get(key)
            if partition is not None and partition.topic_id != topic.topic_id:
                continue
            if self._drop(key):
                yield

    def _drop(self, key: Key) -> bool:
        """Have no replica of this partition any more; returns whether there was one."""
        partition = self._replicas.pop(key, None)
        has_failed = self.failed.pop(key, None) is not None
        self._tried_in.pop(key, None)
        self._damaged.discard(key)
        self._asked_to_give_up.pop(key, None)
        self._copied_again.pop(key, None)
        if partition is not None:
            del self._by_log[partition.log]
            self._led.pop(key, None)
            self._forget(partition)
            partition.close()
        if partition is None and not has_failed:
            return False
        self._delete(*key)
        return True

    def _delete(self, topic: str, index: int) -> None:
        try:
            self._directory.delete(topic, index)
        except (OSError, StorageError) as error:
            # The cluster has decided that the topic is gone. The files left have an id that no topic will have again.
            log.error(
                "files of a deleted partition are left", extra={"partition": f"{topic}-{index}", "error": str(error)}
            )

    def _configure(self, name: str) -> Iterator[None]:
        topic = self._image.topics.get(name)
        if topic is None:
            return
        found = (self._replicas.get((name, index)) for index in range(len(topic.partitions)))
        if here := [partition for partition in found if partition is not None]:
            settings, min_isr = self._settings_of(topic), self._image.min_isr(topic)
            for partition in here:
                partition.configure(settings)
                if partition.is_led:
                    partition.state_changed(topic.partitions[partition.index], min_isr)
            yield

    def _follow(self, topic: TopicImage, indexes: Iterable[int]) -> Iterator[None]:
        """Make of these partitions what the image says: led here, or a replica that is not led here."""
        settings: TopicSettings | None = None
        for index in indexes:
            image, key = topic.partitions[index], (topic.name, index)
            partition = self._replicas.get(key)
            if self._node_id not in image.replicas:
                # The cluster has decided that other brokers have this partition, and they have everything.
                if not self._drop(key):
                    continue
            elif partition is not None and not self._let_go_of_damaged(key, partition, image):
                self._take_part(key, partition, image, self._image.min_isr(topic))
            elif self._set_aside(key, image) or self._tried_in.get(key) != image.leader_epoch:
                settings = settings or self._settings_of(topic)
                self._open(topic, image, settings)
            else:
                continue
            yield

    def _open(self, topic: TopicImage, image: PartitionImage, settings: TopicSettings) -> None:
        key = (topic.name, image.index)
        try:
            opened = self._directory.log(*key, settings.log, identity=topic.topic_id)
            if opened.epochs.latest > image.leader_epoch and not awaits_reports(image):
                raise MetadataBehindError(opened.name, opened.epochs.latest, image.leader_epoch)
            partition = Partition(
                topic.name,
                topic.topic_id,
                image.index,
                opened,
                settings,
                turn=self._turn,
                now_ms=self._now_ms(),
                disk=self._disk,
                high_watermark=self._known_high_watermark(key, image),
            )
        except (OSError, StorageError) as error:
            self._failed(key, image, error)
            return
        partition.takes_unconfirmed = self._takes_unconfirmed
        partition.when_grown, partition.when_damaged = self.look_at, self.found_damage
        self._replicas[key] = self._by_log[opened] = partition
        # Its next turn to lead or to follow says whether it is of use again.
        self._tried_in.pop(key, None)
        self._take_part(key, partition, image, self._image.min_isr(topic))

    def found_damage(self, partition: Partition) -> None:
        """A batch of an open log cannot be read. It is never served; where enough other replicas are in sync, this one
        is given up, to be copied again. Where they are not, that is asked for when the damage is found once more."""
        key = (partition.topic, partition.index)
        topic = self._image.topics_by_id.get(partition.topic_id)
        if topic is None or self._replicas.get(key) is not partition or not 0 <= key[1] < len(topic.partitions):
            return
        state = topic.partitions[partition.index]
        if self.give_up is None or len(state.replicas) == 1 or self._copied_again[key] >= MOST_COPIES_AGAIN:
            return
        self._damaged.add(key)
        now = self._turn.seconds()
        # Every reader that comes there finds it.
        if now - self._asked_to_give_up.get(key, -ASK_AGAIN_SECONDS) >= ASK_AGAIN_SECONDS:
            self._asked_to_give_up[key] = now
            self.give_up(topic.topic_id, state)

    def found_damage_in(self, name: str) -> None:
        """The log with this name has a batch that cannot be read."""
        for partition in self.replicas():
            if partition.log.name == name:
                self.found_damage(partition)

    def _let_go_of_damaged(self, key: Key, partition: Partition, image: PartitionImage) -> bool:
        """Close the log of a replica that has been given up, to be copied again, if it may go now: it is neither in
        sync nor eligible, and nothing was fetched to it in this leader epoch, so it will not be. Returns whether."""
        follower = partition.follower
        epoch = partition.leader_epoch if follower is None else follower.leader_epoch
        if not self._is_spare(key, image) or image.leader_epoch <= epoch:
            return False
        if self._led.pop(key, None) is not None:
            partition.resign(self._now_ms())
        self._forget(partition)
        del self._replicas[key], self._by_log[partition.log]
        partition.close()
        self._copied_again[key] += 1
        return True

    def _is_spare(self, key: Key, image: PartitionImage) -> bool:
        """Whether a log is damaged, and others have everything."""
        others_have_it = image.leader not in (self._node_id, NO_LEADER) and self._node_id not in image.isr + image.elr
        return key in self._damaged and self._may_lead and others_have_it

    def _set_aside_older(self, topic: TopicImage, indexes: Iterable[int]) -> None:
        """What lies here of a partition that this broker gets only now is from before an import of older metadata, or
        from before the broker was away: its offsets may be of other records. It is kept for the operator."""
        for index in indexes:
            key, image = (topic.name, index), topic.partitions[index]
            if key in self._replicas or key in self.failed or self._node_id not in image.replicas:
                continue
            # Nothing is lost by it: all replicas of a new partition are empty, and one that is added has to copy.
            begins_empty = image.partition_epoch == 0 or self._node_id not in image.isr + image.elr
            if not begins_empty or not self._directory.has_unopened(*key):
                continue
            try:
                place = self._directory.set_aside(*key)
            except (OSError, StorageError) as error:
                self._failed(key, image, error)
                continue
            facts = {"partition": f"{topic.name}-{index}", "kept_in": place}
            log.warning("a log from before the cluster gave its partition to this broker is set aside", extra=facts)

    def _set_aside(self, key: Key, image: PartitionImage) -> bool:
        """Begin again with an empty log in place of a damaged one, if others have everything and this one is not
        counted on; the damaged files are kept for the operator."""
        if not self._is_spare(key, image):
            return False
        try:
            place = self._directory.set_aside(*key)
        except (OSError, StorageError) as error:
            self._failed(key, image, error)
            return False
        self._damaged.discard(key)
        facts = {"partition": f"{key[0]}-{key[1]}", "kept_in": place, "leader": image.leader}
        log.warning("a damaged log is set aside, and copied again from its leader", extra=facts)
        return True

    def _known_high_watermark(self, key: Key, image: PartitionImage) -> int | None:
        """How far the partition was committed when this broker last heard of it; None if it is the only replica, which
        has committed all that it has."""
        return self._directory.high_watermarks.get(*key) or 0 if len(image.replicas) > 1 else None

    def _take_part(self, key: Key, partition: Partition, image: PartitionImage, min_isr: int | None) -> None:
        """Lead, follow, or neither. Between two epochs another broker may have led, so that the first ends here too."""
        leads = self._may_lead and image.leader == self._node_id
        if partition.is_led:
            if leads and partition.leader_epoch == image.leader_epoch:
                partition.state_changed(image, min_isr)
                self._look_at(partition)
                return
            del self._led[key]
            partition.resign(self._now_ms())
        follows = self._may_lead and image.leader not in (self._node_id, NO_LEADER)
        follower = partition.follower
        if follower is not None and not (
            follows and (follower.leader_id, follower.leader_epoch) == (image.leader, image.leader_epoch)
        ):
            self._forget(partition)
        if self._tried_in.get(key) == image.leader_epoch:
            return
        try:
            if leads:
                self._lead(key, partition, image, min_isr)
            elif follows and partition.follower is None:
                partition.follow(image.leader, image.leader_epoch)
                if self.replicator is not None:
                    self.replicator.follow(partition)
        except (OSError, StorageError) as error:
            self._failed(key, image, error)
            return
        self.failed.pop(key, None)
        self._tried_in.pop(key, None)

    def _lead(self, key: Key, partition: Partition, image: PartitionImage, min_isr: int | None) -> None:
        partition.lead(
            image,
            broker_epoch=self._broker_epoch(),
            min_isr=min_isr,
            now_ms=int(self._turn.seconds() * 1000),
            lag_ms=self._lag_ms(),
        )
        self._led[key] = partition
        self._look_at(partition)

    def _look_at(self, partition: Partition) -> None:
        if self.look_at is not None and len(partition.leader.replicas) > 1:
            self.look_at(partition)

    def _forget(self, partition: Partition) -> None:
        """Follow no longer."""
        partition.follower = None
        if self.replicator is not None:
            self.replicator.forget(partition)

    def _failed(self, key: Key, image: PartitionImage, error: Exception) -> None:
        """The other partitions are sound: this one stays offline, and the log line is for the operator. Its next leader
        epoch tries again."""
        log.error("partition is offline", extra={"partition": f"{key[0]}-{key[1]}", "error": str(error)})
        self.failed[key] = str(error)
        self._tried_in[key] = image.leader_epoch
        if isinstance(error, CorruptLogError):
            self._damaged.add(key)

    def refuse_unconfirmed(self, refuses: bool) -> None:
        """Whether only what waits for all replicas is taken, as another broker may lead without this one knowing it."""
        self._takes_unconfirmed = not refuses
        for partition in self._replicas.values():
            partition.takes_unconfirmed = not refuses

    # Flushing

    def urgency(self) -> Urgency:
        """How urgent the next flush is."""
        unflushed = (self._by_log.get(written) for written in self._directory.flusher.unflushed_logs)
        return max((partition.urgency for partition in unflushed if partition is not None), default=Urgency.NONE)

    def read_to_end(self, partition: Partition) -> None:
        """A reader has all that is committed of a partition: records that only lack a flush have become urgent."""
        if partition.high_watermark < partition.log.end_offset:
            self._turn.wake_flusher(Urgency.READER)

    def flushed(self, round: FlushRound) -> None:
        for written, _ in round.work:
            partition = self._by_log.get(written)
            if partition is not None:
                try:
                    partition.flushed()
                except Exception as error:
                    partition.broke(error)

    def disk_changed(self) -> None:
        """The disk has become full, or has room again."""
        for partition in self._led.values():
            partition.disk_changed()

    def disk_failed(self, message: str) -> None:
        """Take all partitions offline with their data folder: waiters and later requests get an error."""
        partitions, self._replicas = self._replicas, {}
        for partition in partitions.values():
            self._forget(partition)
        self._led.clear()
        self._by_log.clear()
        self.failed |= dict.fromkeys(partitions, message)
        for partition in partitions.values():
            partition.went_offline(message)


def _end_of(opened: Log) -> LogEnd:
    newest = opened.epochs.latest
    is_empty = opened.start_offset == opened.end_offset
    return LogEnd(newest if is_empty else opened.last_record_epoch, opened.end_offset, newest)
