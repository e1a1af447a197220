"""A partition of which this broker is a replica owns its log and the rules for it: those of its leader while it is led
here, with those who wait for what it does next, and those of a follower while another broker leads it."""

import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from penstock.broker.engine import AppendWaiter, Staged
from penstock.broker.engine import Partition as State
from penstock.broker.engine.turn import Turn
from penstock.broker.log_rates import RatedLog
from penstock.broker.partitions.disk_space import DiskSpace
from penstock.broker.partitions.topic_settings import TopicSettings
from penstock.machines.cluster_records import PartitionImage
from penstock.machines.flush_urgency import Urgency
from penstock.machines.partition_follower import PartitionFollower
from penstock.machines.partition_leader import LAG_MS, PartitionLeader
from penstock.machines.producers import SNAPSHOT_VERSION, Producers
from penstock.machines.topic_names import INTERNAL
from penstock.protocol.batch import BatchHeader, read_header, split, verify
from penstock.protocol.error_codes import ErrorCode
from penstock.storage.compaction.plan import Dirtiness, dirtiness
from penstock.storage.compaction.rewriting import build_filler, is_filler
from penstock.storage.errors import LogOfflineError, StorageError
from penstock.storage.files import lacks_space
from penstock.storage.log.file_range import FileRange
from penstock.storage.log.log import Log

log_ = logging.getLogger(__name__)
rated_log = RatedLog(log_)

NOT_LED: Final = "this broker does not lead the partition any more: ask for its leader"
UNCONFIRMED: Final = (
    "this broker is out of contact with the metadata store of its cluster, so that another one may lead the partition: "
    "only acks=all is taken"
)
TOO_FEW: Final = (
    "fewer replicas are in sync than min.insync.replicas: acks=all is taken again once enough brokers are back and "
    "have caught up"
)
TOO_FEW_AFTER: Final = (
    "fewer replicas are in sync than min.insync.replicas: the records are written and may yet be committed; to send "
    "them again does no harm with an idempotent producer"
)
# At a stop producers are saved if more than this would have to be walked at the next start.
SNAPSHOT_BYTES = 16 * 1024 * 1024
# The epoch of a replica that has not led since it was opened.
NO_EPOCH: Final = -1


class ReplicaReader(Protocol):
    """The session of a follower, which is told of partitions that it has not read to their end."""

    def grew(self, partition: "Partition") -> None:
        """There is more to read."""

    def has_news(self, partition: "Partition") -> None:
        """The high watermark or the start of the log has moved: to be told when something else is."""

    def is_waited_for(self, partition: "Partition") -> None:
        """A client waits until the follower has heard where the log begins: to be told now."""

    def was_forgotten(self, partition: "Partition") -> None:
        """Replicas have left the in-sync ones, and what they have counts only once they are heard of again."""


class DeletionWaiter(Protocol):
    """Waits until the logs of all replicas that may lead begin at an offset or later. It gets one call."""

    @property
    def offset(self) -> int: ...

    def ended(self, code: ErrorCode) -> None: ...


class Partition(State):
    """A replica of a partition, which `lead` and `follow` make the leader or a follower, and `resign` neither. To what
    the data path knows of it come its settings, its history, and what is to be done when its disk, its topic or the
    lead goes."""

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log,
        settings: TopicSettings,
        *,
        turn: Turn,
        now_ms: int,
        disk: DiskSpace | None = None,
        high_watermark: int | None = None,
    ) -> None:
        self._disk = disk
        self._offline_because: str | None = None
        self.is_led = False
        self.follower: PartitionFollower | None = None
        # The sessions of followers, while it is led here.
        self.replica_readers: dict[ReplicaReader, None] = {}
        self._deletion_waiters: dict[DeletionWaiter, None] = {}
        # Called when more of a followed log is flushed.
        self.when_flushed: Callable[[Partition], None] | None = None
        # Called, of a led one with followers, when its end has moved, and when its leader may have to propose.
        self.when_grown: Callable[[Partition], None] | None = None
        self.when_damaged: Callable[[Partition], None] | None = None
        # The error for asking for a partition that is not led here.
        self.absence = ErrorCode.NOT_LEADER_OR_FOLLOWER
        super().__init__(topic, topic_id, index, log, turn=turn, leader_epoch=NO_EPOCH)
        known = log.flushed_offset if high_watermark is None else high_watermark
        self.high_watermark = max(log.start_offset, min(known, log.end_offset))
        self.leader = PartitionLeader(NO_EPOCH, log.end_offset, self.high_watermark)
        self.producers = self._load_producers(now_ms)
        self.configure(settings)
        self._active_base = log.segments[-1].base_offset

    # Leading

    def lead(
        self, image: PartitionImage, *, broker_epoch: int, min_isr: int | None, now_ms: int, lag_ms: int = LAG_MS
    ) -> None:
        """Lead from now on, in an epoch that begins at the end of the log. The next flush makes that durable, before
        any record of the epoch is committed."""
        assert not self.is_led, "it resigns from an epoch before the next begins"
        self.follower = None
        self.unstage()
        self.log.begin_epoch(image.leader_epoch)
        self.leader = PartitionLeader.elected(
            broker_id=image.leader,
            broker_epoch=broker_epoch,
            leader_epoch=image.leader_epoch,
            partition_epoch=image.partition_epoch,
            replicas=image.replicas,
            isr=image.isr,
            adding=image.adding,
            min_isr=min_isr,
            log_start=self.log.start_offset,
            log_end=self.log.end_offset,
            durable_end=self._durable_end,
            high_watermark=self.high_watermark,
            now_ms=now_ms,
            lag_ms=lag_ms,
        )
        self.leader_epoch, self.high_watermark = image.leader_epoch, self.leader.high_watermark
        self.is_led = True
        self.takes_all = self.leader.takes_all
        self._choose_when_to_commit()
        self.disk_changed()

    def state_changed(self, image: PartitionImage, min_isr: int | None) -> None:
        """There are other replicas, or others are in sync, or another number of them is needed, in the same epoch."""
        # What was committed as it was written, while there were no followers, the leader has not heard of.
        self.leader.log_advanced(self._durable_end)
        high_watermark = self.leader.state_changed(
            image.isr, image.partition_epoch, min_isr, replicas=image.replicas, adding=image.adding
        )
        self._commit(high_watermark)
        self._choose_when_to_commit()
        self.takes_all = self.leader.takes_all
        for reader in self.replica_readers:
            reader.was_forgotten(self)
        if not self.takes_all:
            self.refuse_hurried(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, TOO_FEW_AFTER)
        self._end_deletions()

    def resign(self, now_ms: int) -> None:
        """Lead no longer: those that wait for a commit or for more to read are sent to the new leader. Batches of this
        turn are written first, since they are counted among those of their producers."""
        self.write_staged(now_ms)
        self._stop_leading(ErrorCode.NOT_LEADER_OR_FOLLOWER, NOT_LED)

    def close(self) -> None:
        """The topic was deleted: all waiters are refused."""
        self.absence = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.follower = None
        self._stop_leading(self.absence, "the topic was deleted", self.unstage())

    def _stop_leading(self, code: ErrorCode, message: str, others: Iterable[AppendWaiter] = ()) -> None:
        self.is_led = self.takes_appends = False
        self.refuse_waiting(code, message, others)
        self._refuse_deletions(code)
        self.wake_fetches()
        readers, self.replica_readers = self.replica_readers, {}
        for reader in readers:
            reader.grew(self)

    @property
    def is_replicated(self) -> bool:
        """Whether other brokers have a copy."""
        return self.follower is not None or len(self.leader.replicas) > 1

    @property
    def _durable_end(self) -> int:
        """The end that counts for what is committed."""
        return self.log.flushed_offset if self.settings.flush_before_commit else self.log.end_offset

    def _choose_when_to_commit(self) -> None:
        """Without followers a topic that leaves flushes to the system commits what it writes, at once."""
        self.commits_on_write = not self.settings.flush_before_commit and len(self.leader.replicas) <= 1

    def follower_fetched(
        self,
        reader: ReplicaReader,
        broker_id: int,
        *,
        broker_epoch: int,
        session: int,
        offset: int,
        log_start: int,
        now_ms: int,
    ) -> None:
        """A follower, whose log agrees with this one up to an offset, fetches from there."""
        self.replica_readers[reader] = None
        leader = self.leader
        if leader.follower_fetched(
            broker_id,
            broker_epoch=broker_epoch,
            session=session,
            offset=offset,
            log_start=log_start,
            leader_end=self.log.end_offset,
            now_ms=now_ms,
        ):
            self._commit(leader.high_watermark)
            self._end_deletions()
            if broker_id not in leader.isr and self.when_grown is not None:
                self.when_grown(self)

    def _commit(self, high_watermark: int) -> None:
        if high_watermark > self.high_watermark:
            self.advance(high_watermark)
            for reader in self.replica_readers:
                reader.has_news(self)

    # Following

    def follow(self, leader_id: int, leader_epoch: int) -> None:
        """Copy the log of another broker from now on. Elections here that brought no record are forgotten."""
        assert not self.is_led, "it resigns first"
        self.log.truncate(self.log.end_offset)
        self.follower = PartitionFollower(leader_id, leader_epoch, self.high_watermark)

    @property
    def is_copied_durably(self) -> bool:
        """Whether a follower may say that it has what its log has."""
        return self._durable_end >= self.log.end_offset

    def append_copied(self, data: memoryview, now_ms: int) -> None:
        """Write batches of the leader as they are, and count them among those of their producers. Raises DecodeError
        for what is damaged: none of them is written then."""
        batches = split(data)
        for header, view in batches:
            verify(header, view)
        if batches:
            batches[0] = self._without_overlap(*batches[0])
        self.log.append_replicated(batches, now_ms=now_ms)
        producers = self.producers
        for header, _ in batches:
            if header.producer_id >= 0:
                producers.appended(header, header.base_offset, now_ms)
        self.appended_bytes += len(data)
        self.appended_batches += len(batches)
        self.wrote(len(data))

    def _without_overlap(self, header: BatchHeader, view: memoryview) -> tuple[BatchHeader, memoryview]:
        """Compaction at the leader may have left nothing around the end of this log but a filler that begins before it:
        then a shorter one takes its place here."""
        end = self.log.end_offset
        if header.base_offset < end < header.next_offset and is_filler(header) and header.producer_id < 0:
            view = memoryview(build_filler(end, header.next_offset, header.leader_epoch))
            header = read_header(view)
        return header, view

    def cut(self, offset: int, now_ms: int) -> None:
        """Cut off what the leader does not have."""
        self.log.truncate(offset)
        self.truncated(self.log.end_offset, self._load_producers(now_ms))

    def begin_anew(self, offset: int) -> None:
        """Throw away the log, of which the leader has nothing."""
        self.log.start_at(offset)
        self._snapshot_offset = self._bytes_since_snapshot = 0
        self.high_watermark = offset
        self.truncated(offset, Producers())

    def leader_told(self, high_watermark: int, log_start: int) -> None:
        """How far the leader has committed, and from where on it has records."""
        assert self.follower is not None
        self.high_watermark = max(self.log.start_offset, self.follower.committed(high_watermark, self.log.end_offset))
        if log_start > self.log.start_offset:
            self.delete_before(min(log_start, self.log.end_offset))

    def configure(self, settings: TopicSettings) -> None:
        self.settings = settings
        self.log.config = settings.log
        self._choose_when_to_commit()
        self.disk_changed()

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def is_internal(self) -> bool:
        """Whether the topic is the broker's own: it may use the reserve of a disk that is full for other topics."""
        return self.topic in INTERNAL

    @property
    def last_stable_offset(self) -> int:
        """Without transactions everything committed is stable."""
        return self.high_watermark

    def may_append(self) -> tuple[ErrorCode, str] | None:
        """The reason for which any batch would be refused now; None if there is none."""
        takes = self.takes_appends and self.takes_all and self.log.failure is None
        return None if takes else self.refusal(wait_for_all=True)

    def refusal(self, wait_for_all: bool = False, *, is_written: bool = False) -> tuple[ErrorCode, str]:
        if not self.is_led:
            return self.absence, NOT_LED
        if self.takes_appends and wait_for_all and not self.takes_all and self.log.failure is None:
            if is_written:
                return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, TOO_FEW_AFTER
            return ErrorCode.NOT_ENOUGH_REPLICAS, TOO_FEW
        if self.takes_appends and not self.takes_unconfirmed and self.log.failure is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, UNCONFIRMED
        if self._disk is not None and self._disk.is_low and not self.is_internal and self.log.failure is None:
            return self._disk.refusal
        return ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is offline after: {self.log.failure}"

    # What happens to it

    def disk_changed(self) -> None:
        """The disk has become full, or has room again. A log that has failed refuses by itself."""
        self.takes_appends = self.is_led and (self._disk is None or not self._disk.is_low or self.is_internal)

    def flushed(self) -> None:
        """The flusher has flushed the log: records up to its flushed end are durable here."""
        if self.is_led:
            # A topic that does not wait for flushes has waiters, too, if that setting was changed while they waited.
            self._commit(self.leader.log_advanced(self.log.flushed_offset))
        elif self.when_flushed is not None:
            self.when_flushed(self)

    def went_offline(self, message: str) -> None:
        """The disk failed: all waiters are refused, and the log is not read any more."""
        self._offline_because = message
        self.refuse_waiting(ErrorCode.KAFKA_STORAGE_ERROR, message)
        self._refuse_deletions(ErrorCode.KAFKA_STORAGE_ERROR)
        self.wake_fetches()

    def broke(self, error: Exception, unanswered: Iterable[AppendWaiter] = ()) -> None:
        """Something raised an error that is a fault of ours: what is in the log is in doubt until it is recovered, so
        this partition takes nothing more. Those that wait are refused, and the other partitions go on."""
        log_.error("a partition is offline after an internal error", extra={"partition": self.name}, exc_info=error)
        self.log.fail(error)
        message = f"{self.name} is offline after an internal error: {error!r}; restart the broker to recover it"
        self.refuse_waiting(ErrorCode.KAFKA_STORAGE_ERROR, message, [*unanswered, *self.unstage()])

    def write_failed(self, staged: list[Staged], error: Exception, now_ms: int) -> None:
        is_fault = not isinstance(error, (OSError, StorageError))
        facts = {"partition": self.name, "error": str(error)}
        rated_log.error("append failed", owner=self, extra=facts, exc_info=error if is_fault else None)
        if is_fault:
            # Only recovery can find out how far the write got.
            self.log.fail(error)
        lost_meanwhile = self.unstage()
        end = self.log.end_offset
        # They were counted when their order was fixed; the log knows what is really there.
        written = [item for item in staged if item.end_offset <= end and not is_fault]
        lost = staged[len(written) :]
        if any(item.is_idempotent for item in lost):
            try:
                self.producers = self._load_producers(now_ms)
            except (OSError, StorageError) as unreadable:
                # A gap in what we know would pass a lost batch for a duplicate: nothing more is taken.
                self.log.fail(unreadable)
        message = f"the batch could not be written: {error}"
        if self._disk is not None and lacks_space(error):
            self._disk.ran_out()
            message += f". {self._disk.refusal[1]}"
        if written:
            self.written(written)
        code, refused = ErrorCode.KAFKA_STORAGE_ERROR, [*(item.waiter for item in lost), *lost_meanwhile]
        if self.log.failure is not None:
            self.refuse_waiting(code, message, refused)
        else:
            self.refuse(refused, code, message)

    def wrote(self, size: int) -> None:
        self._bytes_since_snapshot += size
        if self.is_led and len(self.leader.replicas) > 1:
            self._grew()
        if self.log.segments[-1].base_offset != self._active_base:
            self._active_base = self.log.segments[-1].base_offset
            self._save_producers_if_possible()

    def _grew(self) -> None:
        """Followers have more to read."""
        if not self.settings.flush_before_commit:
            self._commit(self.leader.log_advanced(self.log.end_offset))
        for reader in self.replica_readers:
            reader.grew(self)
        if self.when_grown is not None:
            self.when_grown(self)

    @property
    def urgency(self) -> Urgency:
        """The leader waits for what its followers have to flush, and producers for that."""
        if self.follower is not None:
            return Urgency.NONE if self.is_copied_durably else Urgency.PRODUCER
        return super().urgency

    # Reading

    def locate_for_replica(self, offset: int, max_bytes: int, *, at_least_one: bool) -> FileRange | None:
        """Batches from an offset on, whether they are committed or not; OffsetOutOfRangeError outside the log."""
        if self._offline_because is not None:
            raise LogOfflineError(self._offline_because)
        return self.log.locate(offset, max_bytes=max_bytes, at_least_one=at_least_one)

    def locate(self, offset: int, max_bytes: int, *, at_least_one: bool) -> FileRange | None:
        """Committed batches from an offset on; OffsetOutOfRangeError outside the log."""
        if self._offline_because is not None:
            raise LogOfflineError(self._offline_because)
        return self.log.locate(offset, max_bytes=max_bytes, upper_bound=self.high_watermark, at_least_one=at_least_one)

    # History

    def delete_before(self, offset: int) -> None:
        if len(self.producers) and max(self._snapshot_offset, self.log.start_offset) < offset <= self.log.end_offset:
            # A snapshot has to keep what these batches say about their producers.
            self._save_producers_if_possible(offset)
        self.log.advance_start(offset)
        self.leader.records_deleted(self.log.start_offset)
        # What was deleted is committed.
        self.high_watermark = max(self.high_watermark, self.log.start_offset)
        for reader in self.replica_readers:
            reader.has_news(self)

    def await_deletion(self, waiter: DeletionWaiter) -> None:
        """Call the waiter when all replicas that may lead have deleted, as the leader has, what lies before its
        offset."""
        self._deletion_waiters[waiter] = None
        for reader in self.replica_readers:
            reader.is_waited_for(self)

    def forget_deletion(self, waiter: DeletionWaiter) -> None:
        self._deletion_waiters.pop(waiter, None)

    def _end_deletions(self) -> None:
        if self._deletion_waiters:
            for waiter in [waiter for waiter in self._deletion_waiters if self.leader.has_deleted(waiter.offset)]:
                del self._deletion_waiters[waiter]
                waiter.ended(ErrorCode.NONE)

    def _refuse_deletions(self, code: ErrorCode) -> None:
        waiters, self._deletion_waiters = self._deletion_waiters, {}
        for waiter in waiters:
            waiter.ended(code)

    def apply_retention(self, now_ms: int, *, held_from: int | None = None) -> int:
        """Delete old segments; none with records at or above `held_from`, which a group still needs."""
        if self.log.failure is not None:
            return 0
        self.log.config = self.settings.log
        self.log.roll_if_due(now_ms)
        if not self.settings.deletes_old:
            return 0
        bound = self.high_watermark if held_from is None else min(self.high_watermark, held_from)
        gone = self.log.find_expired(now_ms, upper_bound=bound)
        if gone:
            self.delete_before(gone[-1].end_offset)
        return len(gone)

    # Compaction

    @property
    def is_compacted(self) -> bool:
        """Whether compaction may run now: the topic or the lead may be gone, its policy changed, its log offline."""
        takes_part = self.is_led or self.follower is not None
        return takes_part and self.log.failure is None and self.log.config.compaction is not None

    def dirtiness(self, now_ms: int) -> Dirtiness | None:
        """How much of the log waits for compaction; None if it is not compacted."""
        return dirtiness(self.log, upper_bound=self.high_watermark, now_ms=now_ms) if self.is_compacted else None

    # Producer state

    def save_producers(self, at_least: int = 0) -> None:
        """So that the next start need not read the whole log for them, whether there are any or not. They are saved as
        of what is flushed, since a snapshot beyond the end that a crash leaves is lost, or of an offset beyond that."""
        offset = max(self.log.flushed_offset, self.log.start_offset, at_least)
        self.log.save_snapshot(self.producers.snapshot(offset), version=SNAPSHOT_VERSION, offset=offset)
        self._snapshot_offset = offset
        self._bytes_since_snapshot = 0

    def prepare_stop(self) -> None:
        if self._bytes_since_snapshot > SNAPSHOT_BYTES and self.log.failure is None:
            self._save_producers_if_possible(self.log.end_offset)

    def _save_producers_if_possible(self, at_least: int = 0) -> None:
        try:
            self.save_producers(at_least)
        except (OSError, LogOfflineError) as error:
            # Without a snapshot more of the log is read at the next start; nothing is lost.
            log_.warning("no producer snapshot", extra={"partition": self.name, "error": str(error)})

    def _load_producers(self, now_ms: int) -> Producers:
        snapshot = self.log.latest_snapshot(version=SNAPSHOT_VERSION)
        self._snapshot_offset, producers = 0, Producers()
        # By a snapshot from before the log's start, producers would seem to have stopped where the snapshot ends.
        if snapshot is not None and snapshot[0] >= self.log.start_offset:
            self._snapshot_offset, producers = snapshot[0], Producers.restore(snapshot[1])
        self._bytes_since_snapshot = 0
        for header in self.log.headers(self._snapshot_offset):
            if header.base_offset >= self._snapshot_offset:
                producers.appended(header, header.base_offset, now_ms)
                self._bytes_since_snapshot += header.size
        return producers
