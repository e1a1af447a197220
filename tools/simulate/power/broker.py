"""A broker below its sockets, on a disk in memory: registry, flusher, rules and log are those of production, and are
driven call by call, so that the power can go at every one."""

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol, cast

from penstock.broker.engine.turn import Turn
from penstock.broker.partitions.partition import Partition
from penstock.broker.partitions.registry import Partitions
from penstock.broker.partitions.replica_reads import look
from penstock.broker.partitions.topic_settings import TopicSettings
from penstock.machines.partition_follower import Append, FetchFrom, StartAt, Truncate, Wait
from penstock.machines.replica_sessions import Position
from penstock.protocol.batch import BatchHeader, split
from penstock.protocol.error_codes import ErrorCode
from penstock.storage.compaction.clean import CleanedSegment, clean
from penstock.storage.compaction.plan import plan
from penstock.storage.data_directory import DataDirectory
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.files.sync_threads import SyncThreads
from penstock.storage.flusher import FlushRound
from penstock.storage.log.log import Log
from penstock.storage.log.restart import FILE_NAME as RESTART_FILE
from penstock.storage.log.swap import SWAP_FILE
from tools.simulate.power.metadata import TOPIC, TOPIC_ID, Metadata

FOLDER: Final = "/data"
LOG_FOLDER: Final = f"{FOLDER}/{TOPIC}-0"
LAG_MS: Final = 8_000
"""After so long without everything a follower is not in sync any more."""


class Surroundings(Protocol):
    """What a broker knows of the world it is in, and what it reports there."""

    metadata: Metadata
    settings: TopicSettings
    now_ms: int
    brokers: "list[SimulatedBroker]"
    cuts_many: bool

    def reach(self, state: str) -> None: ...

    def recovered(self, broker: "SimulatedBroker") -> None:
        """Its log is open, before it takes part in anything."""

    def asks(self, broker: "SimulatedBroker", offset: int) -> None:
        """It is about to tell its leader what it has."""

    def cuts(self, broker: "SimulatedBroker", offset: int) -> None:
        """It is about to cut its log."""

    def begins_anew(self, broker: "SimulatedBroker", offset: int) -> None:
        """It is about to throw its log away."""

    def learned(self, broker: "SimulatedBroker") -> None:
        """It has followed the metadata log, and may have committed by that."""

    def flushed(self, broker: "SimulatedBroker") -> None:
        """It has flushed its log, and commits by that if it leads."""


@dataclass(slots=True, frozen=True)
class Answer:
    """What a leader has answered to a fetch."""

    error: ErrorCode
    diverging: tuple[int, int] | None = None
    high_watermark: int = -1
    log_start: int = -1
    records: bytes = b""


class SimulatedBroker:
    """What a process forgets when it dies is made anew by `start`."""

    def __init__(self, world: Surroundings, broker_id: int, files: MemoryFiles) -> None:
        self.world = world
        self.broker_id = broker_id
        self.files = files
        self.is_up = False
        self.disks = 0
        self.doing = ""
        """What it was about when the power went."""
        self.broker_epoch = -1
        self.session = 0
        self.asked: tuple[FetchFrom, Answer] | None = None
        self._round: FlushRound | None = None

    # Its life

    def start(self) -> None:
        """In the order of production: open the folder, recover, register, take part."""
        self.open()
        self.is_up = True
        self.register(was_clean=self.directory.was_clean)
        self._catch_up()
        _exhaust(self.partitions.lead_all())
        self.doing = ""

    def open(self) -> None:
        """Recover what lies on the disk."""
        world = self.world
        self.doing = "a start"
        self.asked = self._round = None
        self._is_synced = False
        self._turn = Turn(cast(AbstractEventLoop, _ManualLoop(world)), lambda: world.now_ms)
        self._look_at_leftovers()
        folder_id = f"{self.broker_id:016}{self.disks:016}"
        self.directory = DataDirectory(FOLDER, self.files, cluster_id="simulated", folder_id=folder_id)
        self.directory.flusher._threads = _InTurn(self.files)
        self.image = world.metadata.image.copy()
        self.position = len(world.metadata.entries)
        self.partitions = Partitions(
            self.broker_id,
            self.directory,
            self.image,
            lambda topic: world.settings,
            lambda: world.now_ms,
            turn=self._turn,
            broker_epoch=lambda: self.broker_epoch,
            lag_ms=lambda: LAG_MS,
        )
        self.partitions.replicator = self
        _exhaust(self.partitions.recover(self.image))
        world.recovered(self)

    def _look_at_leftovers(self) -> None:
        """What the process before has begun, and this one has to finish."""
        if self.files.stat(LOG_FOLDER) is not None:
            names = self.files.list(LOG_FOLDER)
            if RESTART_FILE in names:
                self.world.reach("a start anew was finished by the next start")
            if any(name.endswith(SWAP_FILE) for name in names):
                self.world.reach("a swap was finished by the next start")

    def register(self, *, was_clean: bool = False) -> None:
        """At a start, or since the session with the metadata store was lost."""
        self.broker_epoch = self.world.metadata.register(self.broker_id, self.directory.folder_id, was_clean=was_clean)

    def _catch_up(self) -> None:
        for entry in self.world.metadata.entries[self.position :]:
            self.image.apply_all(entry)
        self.position = len(self.world.metadata.entries)

    def stop(self) -> None:
        """In order, as production stops."""
        self.doing = "a stop"
        self.world.metadata.lose(self.broker_id)
        self.learn_all()
        self.doing = "a stop"
        self._turn.settle()
        while self._round is not None or self.directory.flusher.has_work:
            self.continue_flush()
        self.save_high_watermark()
        self.doing = "a stop"
        for partition in self.partitions.replicas():
            partition.prepare_stop()
        self.directory.close(broker_epoch=self.broker_epoch)
        self.is_up = False
        self.doing = ""

    def kill(self) -> None:
        """The process dies, and all that it has written stays."""
        self.files.kill_process()
        self.is_up = False

    # Finding

    @property
    def replica(self) -> Partition | None:
        return self.partitions.replica(TOPIC, 0) if self.is_up else None

    @property
    def led(self) -> Partition | None:
        replica = self.replica
        return replica if replica is not None and replica.is_led else None

    @property
    def has_work(self) -> bool:
        """Whether it would do something if it were let to."""
        return self._round is not None or self.directory.flusher.has_work or self.asked is not None or self.is_behind

    @property
    def is_behind(self) -> bool:
        return self.position < len(self.world.metadata.entries)

    # What it does by itself

    def work(self, rng: Random) -> None:
        """One of the things that its tasks would do next."""
        choices: list[Callable[[], None]] = []
        if self.is_behind:
            choices += [self.learn, self.learn]
        if self._round is not None or self.directory.flusher.has_work:
            choices += [self.continue_flush, self.continue_flush]
        if self.asked is not None:
            choices += [self.take, self.take]
        replica = self.replica
        if replica is not None and replica.follower is not None and self.asked is None:
            choices.append(lambda: self.ask(rng.choice([1, 400, 5000])))
        if replica is not None and replica.is_led:
            choices.append(self.propose)
        if choices:
            rng.choice(choices)()

    def learn(self) -> None:
        """Follow the next entry of the metadata log."""
        self.doing = "a change of leader"
        change = self.image.apply_all(self.world.metadata.entries[self.position])
        self.position += 1
        _exhaust(self.partitions.image_changed(change))
        self.world.learned(self)
        self.doing = ""

    def learn_all(self) -> None:
        while self.is_behind:
            self.learn()

    def end_turn(self) -> None:
        self.doing = "an append"
        self._turn.settle()
        self.doing = ""

    def continue_flush(self) -> None:
        """The next of the three steps of a flush, so that anything may happen between them."""
        flusher, now_ms = self.directory.flusher, self.world.now_ms
        self.doing = "a flush"
        if self._round is None:
            if flusher.has_work:
                self._round, self._is_synced = flusher.begin(), False
        elif not self._is_synced:
            self._round.sync()
            self._is_synced = True
        else:
            ended, self._round = self._round, None
            flusher.end(ended)
            self.partitions.flushed(ended)
            self.world.flushed(self)
            if flusher.recovery_points_are_due(now_ms):
                self.doing = "a save of recovery points"
                flusher.save_recovery_points(now_ms)
        self.doing = ""

    def flush(self) -> None:
        while self._round is not None or self.directory.flusher.has_work:
            self.continue_flush()

    def save_high_watermark(self) -> None:
        self.doing = "a save of the high watermark"
        for partition in self.partitions.replicas():
            self.directory.high_watermarks.set(TOPIC, 0, partition.high_watermark)
        self.directory.high_watermarks.save()
        self.doing = ""

    def save_recovery_points(self) -> None:
        self.doing = "a save of recovery points"
        self.directory.flusher.save_recovery_points(self.world.now_ms)
        self.doing = ""

    def delete_before(self, offset: int) -> None:
        assert self.led is not None
        self.doing = "a deletion"
        self.led.delete_before(offset)
        self.doing = ""

    def roll(self) -> None:
        if (replica := self.replica) is not None:
            self.doing = "a roll"
            replica.log.roll_if_due(self.world.now_ms + replica.log.config.segment_ms)
            self.doing = ""

    def compact(self) -> bool:
        """A round of compaction, as the compactor does it. False if nothing was to be done."""
        replica = self.replica
        if replica is None or not replica.is_compacted:
            return False
        return self.compact_log(replica.log, replica.high_watermark)

    def compact_log(self, log: Log, upper_bound: int) -> bool:
        now_ms = self.world.now_ms
        self.doing = "a compaction"
        job = plan(log, upper_bound=upper_bound, now_ms=now_ms, max_keys=100)
        if job is None:
            self.doing = ""
            return False
        for result in clean(self.files, job):
            if not isinstance(result, CleanedSegment):
                log.finish_round(result, now_ms)
                log.compaction.save()
            elif (swap := log.begin_swap(result)) is not None:
                swap.perform()
                log.end_swap(swap)
            else:
                log.discard_cleaned()
                break
        self.doing = ""
        return True

    def propose(self) -> None:
        """As a leader, have the controller decide who is in sync."""
        partition = self.led
        assert partition is not None
        leader = partition.leader
        leader.broker_epoch = self.broker_epoch
        proposal = leader.next_proposal(self.world.now_ms, partition.log.end_offset)
        if proposal is not None:
            answer = self.world.metadata.alter(self.broker_id, self.broker_epoch, proposal)
            leader.answered(proposal, answer, now_ms=self.world.now_ms)

    # Following, as the replicator does it

    def follow(self, partition: Partition) -> None:
        self.asked = None
        self.session += 1

    def forget(self, partition: Partition) -> None:
        self.asked = None

    def ask(self, max_bytes: int = 5000) -> None:
        """Fetch from the leader, which answers at once; the answer waits to be taken."""
        partition = self.replica
        if partition is None or partition.follower is None or self.asked is not None:
            return
        if not partition.is_copied_durably or partition.log.failure is not None:
            return
        log, follower = partition.log, partition.follower
        fetch = follower.fetch(
            durable_end=log.end_offset, last_record_epoch=log.last_record_epoch, log_start=log.start_offset
        )
        assert fetch is not None
        self.world.asks(self, fetch.offset)
        answer = self.world.brokers[follower.leader_id].answer(self, fetch, max_bytes)
        if answer is None:
            follower.lost(fetch)
        else:
            self.asked = fetch, answer

    def answer(self, asking: "SimulatedBroker", fetch: FetchFrom, max_bytes: int) -> Answer | None:
        """As the leader: what there is for a follower; None if this broker is not there."""
        if not self.is_up:
            return None
        partition = self.partitions.find_by_id(TOPIC_ID, 0)
        if isinstance(partition, ErrorCode):
            return Answer(partition)
        position = Position(fetch.offset, fetch.leader_epoch, fetch.last_fetched_epoch, fetch.log_start, max_bytes)
        found = look(partition, position, asking.broker_id, max_bytes=0, at_least_one=False)
        if not found.error and found.diverging is None:
            partition.follower_fetched(
                _SILENT,
                asking.broker_id,
                broker_epoch=asking.broker_epoch,
                session=asking.session,
                offset=fetch.offset,
                log_start=fetch.log_start,
                now_ms=self.world.now_ms,
            )
            found = look(partition, position, asking.broker_id, max_bytes=max_bytes, at_least_one=True)
        records = b""
        if found.records is not None:
            with found.records:
                found.records.verify()
                records = bytes(found.records.read())
        return Answer(found.error, found.diverging, found.high_watermark, found.log_start, records)

    def take(self) -> None:
        """Do what the answer asks for."""
        partition = self.replica
        assert self.asked is not None
        (fetch, answer), self.asked = self.asked, None
        if partition is None or partition.follower is None:
            return
        if not answer.error and answer.diverging is None and not answer.records:
            partition.follower.lost(fetch)
            self._hear(partition, answer)
            return
        step = partition.follower.answered(
            fetch,
            error=answer.error,
            diverging=answer.diverging,
            leader_log_start=answer.log_start,
            epochs=partition.log.epochs,
            log_start=partition.log.start_offset,
            log_end=partition.log.end_offset,
        )
        match step:
            case Append():
                self._copy(partition, answer)
            case Truncate():
                self._cut(partition, step.offset)
            case StartAt():
                self.world.begins_anew(self, step.offset)
                self.doing = "a start anew"
                partition.begin_anew(step.offset)
                self.world.reach("a copy was begun anew")
            case Wait():
                pass
        self.doing = ""

    def _copy(self, partition: Partition, answer: Answer) -> None:
        batches, end = split(answer.records), partition.log.end_offset
        if batches[0][0].base_offset < partition.log.start_offset == end:
            self.world.reach("a batch that begins before the start of a log was copied")
        if any(end < header.base_offset for end, (header, _) in zip(_ends(end, batches), batches, strict=True)):
            self.world.reach("a hole was copied")
        self.doing = "a copy"
        partition.append_copied(memoryview(bytearray(answer.records)), self.world.now_ms)
        self.doing = ""
        self._hear(partition, answer)

    def _hear(self, partition: Partition, answer: Answer) -> None:
        if answer.log_start > partition.log.start_offset:
            self.doing = "a deletion"
        partition.leader_told(answer.high_watermark, answer.log_start)
        self.doing = ""

    def _cut(self, partition: Partition, offset: int) -> None:
        if offset < partition.log.end_offset:
            self.world.reach("a copy was cut by leader epoch")
        self.world.cuts(self, offset)
        self.doing = "a cut"
        if self.world.cuts_many:
            self.world.reach("logs were cut together")
            for error in self.directory.truncate_many([(partition.log, offset)]).values():
                raise error
        partition.cut(offset, self.world.now_ms)
        self.doing = ""


class _ManualLoop:
    """As much of an event loop as a turn needs: the turn is settled by hand."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world

    def call_soon(self, callback: Callable[[], None]) -> None:
        pass

    def time(self) -> float:
        return self._world.now_ms / 1000


class _Silent:
    """Followers ask by themselves."""

    def grew(self, partition: Partition) -> None:
        pass

    def has_news(self, partition: Partition) -> None:
        pass

    def is_waited_for(self, partition: Partition) -> None:
        pass

    def was_forgotten(self, partition: Partition) -> None:
        pass


_SILENT: Final = _Silent()


class _InTurn(SyncThreads):
    """Syncs that a broker does side by side, one after the other: so every run makes the same calls."""

    def sync(self, fds: Sequence[int]) -> float:
        for fd in fds:
            self._files.sync(fd)
        return 0.0


def _exhaust(steps: Iterable[None]) -> None:
    deque(steps, maxlen=0)


def _ends(end: int, batches: Sequence[tuple[BatchHeader, memoryview]]) -> list[int]:
    """Where the log ends before each batch."""
    return [end, *(header.next_offset for header, _ in batches[:-1])]
