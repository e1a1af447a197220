"""Random programs against a log, and the list of batches that the log should be."""

import itertools
import random
from dataclasses import dataclass, field
from functools import cache

from penstock.protocol.batch import BatchHeader, read_header, split, stamp
from penstock.protocol.compression import Codec
from penstock.protocol.records import NewRecord, build
from penstock.storage.data_directory import DataDirectory
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.flusher import FlushRound
from penstock.storage.log.log import Log, LogConfig
from tests.storage.store import delete_expired

FOLDER = "/data"
TOPIC = "orders"
IDENTITY = b"0123456789abcdef"
START_MS = 1_000_000
CONFIG = LogConfig(
    segment_bytes=1500, segment_ms=5_000, retention_bytes=-1, retention_ms=60_000, index_interval_bytes=300
)


@cache
def _pool() -> list[bytes]:
    """Batches to append: of different sizes, counts and timestamps, so that programs need not build any."""
    rng = random.Random(7)
    batches = []
    for number in range(120):
        count = rng.choice([1, 1, 2, 5])
        base = START_MS + number * 1000 + rng.randint(-3000, 3000)
        records = [
            NewRecord(
                key=b"%d" % rng.randint(0, 9), value=rng.randbytes(rng.choice([0, 5, 40, 150])), timestamp=base + i
            )
            for i in range(count)
        ]
        batches.append(bytes(build(records, codec=Codec.GZIP if number % 7 == 0 else Codec.NONE)))
    return batches


def random_batch(rng: random.Random, now_ms: int) -> bytearray:
    """A batch from about the time `now_ms`, early or late by a bit."""
    number = (now_ms - START_MS) // 1000 + rng.randint(-2, 2)
    return bytearray(_pool()[number % len(_pool())])


@dataclass(slots=True)
class Expected:
    """What the log should be: a list of batches, by header and bytes, and where it starts."""

    batches: list[tuple[BatchHeader, bytes]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    flushed: int = 0

    def append(self, views: list[bytearray]) -> None:
        for view in views:
            self.batches.append((read_header(view), bytes(view)))
        self.end = self.batches[-1][0].next_offset

    def holding(self, offset: int) -> int:
        """The number of the batch that holds an offset."""
        return next(i for i, (header, _) in enumerate(self.batches) if header.last_offset >= offset)

    def truncate(self, offset: int) -> None:
        if offset < self.end:
            del self.batches[self.holding(offset) :]
            self.end = max(self.batches[-1][0].next_offset if self.batches else 0, self.start)
            self.flushed = min(self.flushed, self.end)

    def advance_start(self, offset: int) -> None:
        self.start = max(self.start, offset)

    def visible(self) -> list[tuple[BatchHeader, bytes]]:
        return [(header, data) for header, data in self.batches if header.last_offset >= self.start]


class Program:
    """Runs random steps on a log and on the list. Before a step it notes what the step is about to do, so that whoever
    crashes it knows which outcomes are right."""

    def __init__(self, seed: int, files: MemoryFiles, config: LogConfig = CONFIG) -> None:
        self.rng = random.Random(seed)
        self.files = files
        self.config = config
        self.now_ms = START_MS
        self.epoch = 0
        self.expected = Expected()
        self.truncating_to: int | None = None
        self.starting_at: int | None = None
        self.history: dict[int, set[bytes]] = {}
        self.snapshots: dict[int, set[bytes]] = {}
        # Where the batch before one with this offset ended.
        self.holes: dict[int, set[int]] = {}
        self.transcript: list[str] = []
        self.is_running = False
        self.round: FlushRound | None = None
        self.is_synced = False
        self.directory: DataDirectory
        self.log: Log

    def open(self) -> None:
        self.is_running = False
        self.round = None
        self.directory = DataDirectory(FOLDER, self.files, cluster_id="test")
        self.log = self.directory.log(TOPIC, 0, self.config, identity=IDENTITY)
        self.is_running = True

    def run(self, steps: int) -> None:
        self.open()
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        weights = {
            self.append: 40,
            self.flush: 12,
            self.continue_round: 24,
            self.truncate: 6,
            self.advance_start: 5,
            self.retain: 5,
            self.roll: 4,
            self.elect: 4,
            self.snapshot: 4,
            self.save_recovery_points: 6,
            self.reopen: 3,
            self.reopen_unclean: 3,
        }
        action = self.rng.choices(list(weights), list(weights.values()))[0]
        self.now_ms += self.rng.choice([0, 10, 500, 2000])
        self.transcript.append(f"{action.__name__} at {self.now_ms} [{self.log.start_offset}, {self.log.end_offset})")
        action()

    def append(self) -> None:
        views = [random_batch(self.rng, self.now_ms) for _ in range(self.rng.choice([1, 1, 1, 3]))]
        batches = [pair for view in views for pair in split(view)]
        # The bytes are noted before they are written: in a crash they may be there or not.
        offset = self.log.end_offset
        for header, view in batches:
            stamped = bytearray(view)
            stamped[:8] = offset.to_bytes(8, "big")
            stamped[12:16] = self.epoch.to_bytes(4, "big")
            self.history.setdefault(offset, set()).add(bytes(stamped))
            offset += header.record_count
        self.log.append(batches, leader_epoch=self.epoch, now_ms=self.now_ms)
        self.expected.append(views)

    def flush(self) -> None:
        self.finish_round()
        self.directory.flusher.flush()
        assert self.log.flushed_offset == self.expected.end
        self.expected.flushed = self.expected.end

    def continue_round(self) -> None:
        """One of the three steps of a flush, so that anything may happen between them."""
        if self.round is None:
            self.round, self.is_synced = self.directory.flusher.begin(), False
        elif not self.is_synced:
            try:
                self.round.sync()
            except OSError as error:
                self.directory.flusher.end(self.round, error)
                self.round = None
                raise
            self.is_synced = True
        else:
            self.directory.flusher.end(self.round)
            self.round = None
            self.expected.flushed = self.log.flushed_offset

    def finish_round(self) -> None:
        while self.round is not None:
            self.continue_round()

    def save_recovery_points(self) -> None:
        self.directory.flusher.save_recovery_points(self.now_ms)

    def truncate(self) -> None:
        self.truncating_to = self.rng.randint(self.expected.start, self.expected.end)
        self.log.truncate(self.truncating_to)
        self.expected.truncate(self.truncating_to)
        self.truncating_to = None

    def advance_start(self) -> None:
        self.starting_at = self.rng.randint(self.expected.start, self.expected.end)
        self.log.advance_start(self.starting_at)
        self.expected.advance_start(self.starting_at)
        self.starting_at = None

    def retain(self) -> None:
        self.starting_at = self.log.end_offset
        before = self.log.segments
        delete_expired(self.log, self.now_ms)
        self.expected.advance_start(self.log.start_offset)
        self.starting_at = None
        gone = [segment for segment in before if segment not in self.log.segments and segment.size]
        limit = self.now_ms - self.config.retention_ms
        for header, _ in self.expected.batches:
            if any(segment.base_offset <= header.base_offset < segment.end_offset for segment in gone):
                assert header.max_timestamp < limit, "retention took a batch that is not old"
        oldest = self.log.segments[0]
        if oldest.size and oldest is not self.log.segments[-1] and oldest.end_offset <= self.log.flushed_offset:
            assert oldest.newest_ms >= limit, "retention left an old segment"

    def roll(self) -> None:
        self.now_ms += self.config.segment_ms
        self.log.roll_if_due(self.now_ms)

    def elect(self) -> None:
        self.epoch += 1
        self.log.begin_epoch(self.epoch)

    def snapshot(self) -> None:
        if self.log.end_offset:
            data = self.rng.randbytes(8)
            self.snapshots.setdefault(self.log.end_offset, set()).add(data)
            self.log.save_snapshot(data, version=1)

    def reopen(self) -> None:
        self.finish_round()
        self.is_running = False
        is_marked = self.directory.close(broker_epoch=self.epoch)
        self.expected.flushed = self.expected.end
        self.open()
        if is_marked:
            assert self.directory.was_clean
            assert self.directory.reports[f"{TOPIC}-0"].scanned_bytes == 0, "a clean stop needs no scan"

    def reopen_unclean(self) -> None:
        self.restart()
        self.expected.flushed = self.expected.end

    def restart(self) -> None:
        """The process dies, the machine does not: all that was written is there, but has to be checked."""
        self.files.kill_process()
        self.open()


class FollowerProgram(Program):
    """Appends what a leader has left after compaction: between batches, and before the first one, offsets are
    missing."""

    def append(self) -> None:
        views, offset = [], self.log.end_offset
        for _ in range(self.rng.choice([1, 1, 1, 3])):
            view = random_batch(self.rng, self.now_ms)
            missing = self.rng.choice([0, 0, 1, 2, 7, 300])
            self.holes.setdefault(offset + missing, set()).add(offset)
            stamp(view, offset + missing, self.epoch)
            self.history.setdefault(offset + missing, set()).add(bytes(view))
            views.append(view)
            offset = read_header(view).next_offset
        self.log.append_replicated([pair for view in views for pair in split(view)], now_ms=self.now_ms)
        self.expected.append(views)

    def flush(self) -> None:
        self.finish_round()
        self.directory.flusher.flush()
        if self.log.flushed_offset < self.expected.end:
            # There was no room to write holes down, and now there is.
            self.directory.flusher.flush()
        assert self.log.flushed_offset == self.expected.end
        self.expected.flushed = self.expected.end

    def reopen(self) -> None:
        self.finish_round()
        self.is_running = False
        self.directory.close(broker_epoch=self.epoch)
        self.open()
        self._expect_what_is_known()

    def reopen_unclean(self) -> None:
        self.restart()
        self._expect_what_is_known()

    def _expect_what_is_known(self) -> None:
        """A hole is known once it is flushed: what comes after one that is not is cut off."""
        assert self.log.end_offset >= self.expected.flushed
        if self.log.end_offset < self.expected.end:
            self.expected.truncate(self.log.end_offset)
            assert self.log.end_offset == self.expected.end
        self.expected.flushed = self.expected.end


def check_reads(log: Log, expected: Expected, rng: random.Random, rounds: int) -> None:
    """The log is the list: its ends, reads from random places, and searches by time."""
    assert (log.start_offset, log.end_offset) == (expected.start, expected.end)
    visible = expected.visible()
    assert list(log.headers(log.start_offset)) == [header for header, _ in visible]
    for _ in range(rounds):
        _check_read(log, expected, rng)
        _check_timestamp(log, expected, rng)


def _check_read(log: Log, expected: Expected, rng: random.Random) -> None:
    offset = rng.randint(expected.start, expected.end)
    max_bytes = rng.choice([1, 100, 700, 5000])
    bound = rng.choice([None, rng.randint(expected.start, expected.end)])
    found = log.read(offset, max_bytes=max_bytes, upper_bound=bound)
    limit = expected.end if bound is None else bound
    following = [pair for pair in expected.batches if pair[0].last_offset >= offset]
    fitting: list[bytes] = []
    reached = 0
    for header, data in following:
        # A segment begins where the one before it ends, also where its first batch has a hole before it.
        is_next = any(reached <= segment.base_offset <= header.base_offset for segment in log.segments)
        if header.next_offset > limit or (fitting and is_next):
            break
        if fitting and sum(map(len, fitting)) + len(data) > max_bytes:
            break
        fitting.append(data)
        reached = header.next_offset
    if offset >= limit or not fitting:
        assert found is None
    else:
        assert found is not None
        with found:
            data, whole = found.read(), b"".join(fitting)
            if data != whole:
                # A read may end where the index knows a batch to begin, if little is left out by that.
                assert whole.startswith(data)
                assert len(data) >= max_bytes - max_bytes // 8
                assert len(data) in itertools.accumulate(map(len, fitting))


def _check_timestamp(log: Log, expected: Expected, rng: random.Random) -> None:
    # Exactly the time of a batch as often as any other time: that is where searches go wrong.
    exact = [header.max_timestamp for header, _ in expected.batches]
    timestamp = rng.choice([START_MS + rng.randint(-5000, 130_000), *exact[-3:]])
    newer = [header for header, _ in expected.visible() if header.max_timestamp >= timestamp]
    assert log.find_timestamp(timestamp) == (newer[0] if newer else None)
