"""A broker below its sockets, on a disk in memory, and idempotent producers of it: all of them driven call by call, so
that the power can go at every one."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.broker.config.typed import BrokerConfig, TopicConfig
from penstock.broker.partitions.partition import Partition
from penstock.protocol.batch import split
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import iterate
from penstock.storage.data_directory import DataDirectory
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.files.sync_threads import SyncThreads
from penstock.storage.flusher import FlushRound
from tests.broker.engine.stage import manual_turn
from tests.broker.harness import NOW_MS, batch
from tests.broker.partitions.images import sole_replica

FOLDER: Final = "/data/logs"
TOPIC: Final = "orders"
TOPIC_ID: Final = b"0123456789abcdef"
IN_FLIGHT: Final = 5


class BareBroker:
    """One topic. What a process forgets when it dies is made anew by `start`."""

    def __init__(
        self,
        files: MemoryFiles,
        *,
        partitions: int,
        configs: dict[str, str],
        leader_epoch: int = -1,
        now_ms: int = NOW_MS,
    ) -> None:
        self.files = files
        self.leader_epoch = leader_epoch
        self.now_ms = now_ms
        self.partitions: list[Partition] = []
        self._indexes = range(partitions)
        self._settings = TopicConfig(configs, BrokerConfig({})).settings()

    def start(self) -> None:
        self._turn, _ = manual_turn(lambda: self.now_ms)
        self._round: FlushRound | None = None
        self._is_synced = False
        self.partitions = []
        self.directory = DataDirectory(FOLDER, self.files, cluster_id="crashing")
        self.directory.flusher._threads = _InTurn(self.files)
        self.leader_epoch += not self.directory.was_clean
        for index in self._indexes:
            self.partitions.append(self._open(index))
        if self.directory.flusher.has_work:
            self.directory.flusher.flush()

    def _open(self, index: int) -> Partition:
        partition = Partition(
            TOPIC,
            TOPIC_ID,
            index,
            self.directory.log(TOPIC, index, self._settings.log, identity=TOPIC_ID),
            self._settings,
            turn=self._turn,
            now_ms=self.now_ms,
        )
        partition.lead(sole_replica(index, self.leader_epoch), broker_epoch=1, min_isr=None, now_ms=0)
        return partition

    def stop(self) -> None:
        """In order."""
        self.settle()
        for partition in self.partitions:
            partition.prepare_stop()
        self.directory.close()

    def end_turn(self) -> None:
        self._turn.settle()

    def continue_flush(self) -> None:
        """The next of the three steps of a flush, so that anything may happen between them."""
        flusher = self.directory.flusher
        if self._round is None:
            if flusher.has_work:
                self._round, self._is_synced = flusher.begin(), False
        elif not self._is_synced:
            self._round.sync()
            self._is_synced = True
        else:
            ended, self._round = self._round, None
            flusher.end(ended)
            flushed = {log for log, _ in ended.work}
            for partition in self.partitions:
                if partition.log in flushed:
                    partition.flushed()
            if flusher.recovery_points_are_due(self.now_ms):
                flusher.save_recovery_points(self.now_ms)

    def settle(self) -> None:
        """Until nothing is left to be written or flushed."""
        self.end_turn()
        while self._round is not None or self.directory.flusher.has_work:
            self.continue_flush()

    def sweep(self) -> None:
        for partition in self.partitions:
            partition.apply_retention(self.now_ms)

    def read(self, index: int) -> dict[int, bytes]:
        """What readers get of a partition, by offset."""
        partition = self.partitions[index]
        offset = start = partition.log.start_offset
        found: dict[int, bytes] = {}
        while (stretch := partition.locate(offset, 1 << 20, at_least_one=True)) is not None:
            with stretch:
                stretch.verify()
                data = stretch.read()
            for header, view in split(data):
                found.update((record.offset, record.value or b"") for record in iterate(view) if record.offset >= start)
                offset = header.next_offset
        return found


class _InTurn(SyncThreads):
    """Syncs that a broker does side by side, one behind the other: so every run makes the same calls."""

    def sync(self, fds: Sequence[int]) -> float:
        errors = []
        for fd in fds:
            try:
                self._files.sync(fd)
            except BaseException as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return 0.0


@dataclass(slots=True, eq=False)
class Sent:
    """A batch, and where the broker says that it lies."""

    partition: int
    values: list[bytes]
    data: bytes
    base_offset: int | None = None


@dataclass(slots=True, eq=False)
class IdempotentProducer:
    """Numbers what it sends to each partition, has at most five batches in flight there, and sends again, in order,
    what it has no answer to."""

    producer_id: int
    wait_for_all: bool = True
    acknowledged: list[Sent] = field(default_factory=list)
    """All that the broker answered, whether or not the answer was read."""
    _following: dict[int, int] = field(default_factory=dict)
    _in_flight: dict[int, deque[Sent]] = field(default_factory=dict)
    _answers: list[Sent] = field(default_factory=list)
    _connection: object = field(default_factory=object)

    @property
    def unanswered(self) -> int:
        return sum(map(len, self._in_flight.values()))

    def send(self, broker: BareBroker, partition: int, *, records: int, size: int) -> None:
        in_flight = self._in_flight.setdefault(partition, deque())
        if len(in_flight) == IN_FLIGHT:
            return
        first = self._following.get(partition, 0)
        self._following[partition] = first + records
        values = [b"%d %d " % (self.producer_id, first + i) + bytes(size) for i in range(records)]
        data = batch(*values, timestamp=broker.now_ms, producer=(self.producer_id, 0, first))
        in_flight.append(Sent(partition, values, bytes(data)))
        self._transmit(broker, in_flight[-1])

    def receive(self) -> None:
        """Read the answers that are there."""
        for sent in self._answers:
            assert self._in_flight[sent.partition].popleft() is sent, "answers are not in the order of the requests"
        self._answers.clear()

    def reconnect(self, broker: BareBroker) -> None:
        """What was not read is lost, and what has no answer comes again."""
        self._answers.clear()
        self._connection = object()
        for in_flight in self._in_flight.values():
            for sent in in_flight:
                self._transmit(broker, sent)

    def _transmit(self, broker: BareBroker, sent: Sent) -> None:
        [(header, view)] = split(bytearray(sent.data))
        waiter = _Waiter(self, sent, self._connection)
        broker.partitions[sent.partition].append(
            header, view, wait_for_all=self.wait_for_all, waiter=waiter, now_ms=broker.now_ms
        )

    def answered(self, sent: Sent, base_offset: int, connection: object) -> None:
        assert sent.base_offset in (None, base_offset), "a batch that was sent again is said to lie elsewhere"
        if sent.base_offset is None:
            sent.base_offset = base_offset
            self.acknowledged.append(sent)
        if connection is self._connection:
            self._answers.append(sent)


@dataclass(slots=True)
class _Waiter:
    producer: IdempotentProducer
    sent: Sent
    connection: object

    @property
    def deadline(self) -> float:
        return math.inf

    def appended(self, base_offset: int, log_start: int) -> None:
        self.producer.answered(self.sent, base_offset, self.connection)

    def refused(self, code: ErrorCode, message: str, base_offset: int = -1) -> None:
        raise AssertionError(f"{self.sent.partition}: {self.sent.values[0]!r} was refused, {code.name}: {message}")
