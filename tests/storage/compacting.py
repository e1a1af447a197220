"""Random programs against a compacted log, and the records that it should hold."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from penstock.machines.producers import Producers
from penstock.protocol.batch import BatchHeader, read_header, split
from penstock.protocol.compression import Codec
from penstock.protocol.control import ControlType, build_end_marker, read_control
from penstock.protocol.records import NewRecord, Record, build, iterate
from penstock.storage.compaction.clean import CleanedSegment, CleaningDone, SourceChangedError, clean
from penstock.storage.compaction.plan import plan
from penstock.storage.data_directory import DataDirectory
from penstock.storage.files import Files
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.log.compaction_state import CompactionConfig
from penstock.storage.log.log import Log, LogConfig
from tests.storage.store import FOLDER, TOPIC, batches_of

START_MS = 1_000_000_000
DELETE_RETENTION_MS = 4_000
COMPACTION = CompactionConfig(min_dirty_ratio=0.3, delete_retention_ms=DELETE_RETENTION_MS)
CONFIG = LogConfig(
    segment_bytes=1500, segment_ms=10_000, retention_ms=-1, index_interval_bytes=300, compaction=COMPACTION
)
KEYS = [b"%d" % number for number in range(8)] + [b"long" * 20 + b"%d" % number for number in range(3)]
LEFTOVERS = (".cleaned", ".swap", ".deleted", ".tmp")


def run_round(
    log: Log,
    files: Files,
    *,
    now_ms: int,
    upper_bound: int | None = None,
    max_keys: int = 1000,
    at: Callable[[str], None] = lambda stage: None,
    ahead: bool = False,
) -> CleaningDone | None:
    """A whole round, if one is due, with something else happening `at` its stages; `ahead` cleans everything before the
    first swap. None if none was due, or if it came to nothing."""
    bound = log.flushed_offset if upper_bound is None else upper_bound
    job = plan(log, upper_bound=bound, now_ms=now_ms, max_keys=max_keys)
    at("planned")
    if job is None:
        return None
    try:
        results: Iterator[CleanedSegment | CleaningDone] = clean(files, job)
        for result in list(results) if ahead else results:
            at("cleaned")
            if isinstance(result, CleaningDone):
                log.finish_round(result, now_ms)
                log.compaction.save()
                return result
            if not swap_in(log, result, at):
                break
    except SourceChangedError:
        pass
    log.discard_cleaned()
    return None


def swap_in(log: Log, cleaned: CleanedSegment, at: Callable[[str], None] = lambda stage: None) -> bool:
    swap = log.begin_swap(cleaned)
    if swap is None:
        return False
    at("begun")
    swap.perform()
    at("performed")
    return log.end_swap(swap)


@dataclass(slots=True)
class Truth:
    """All that was ever appended, batch by batch."""

    batches: list[tuple[BatchHeader, list[Record]]] = field(default_factory=list)

    def append(self, view: bytearray) -> None:
        self.batches.append((read_header(view), list(iterate(view))))

    def cut(self, end_offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch[0].next_offset <= end_offset]

    def records(self) -> dict[int, Record]:
        return {
            record.offset: record for header, records in self.batches if not header.is_control for record in records
        }

    def committed(self) -> list[Record]:
        """The records that count, in their order."""
        found: list[Record] = []
        open_: dict[int, list[Record]] = {}
        for header, records in self.batches:
            if header.is_control:
                if read_control(records[0]).type is ControlType.COMMIT:
                    found += open_.get(header.producer_id, [])
                open_.pop(header.producer_id, None)
            elif header.is_transactional:
                open_.setdefault(header.producer_id, []).extend(records)
            else:
                found += records
        return sorted(found)

    def first_undecided(self, start: int) -> int | None:
        """Where the first transaction begins, behind the start of the log, that has not ended."""
        open_: dict[int, int] = {}
        for header, _ in self.batches:
            if header.is_control:
                open_.pop(header.producer_id, None)
            elif header.is_transactional and header.last_offset >= start:
                open_.setdefault(header.producer_id, header.base_offset)
        return min(open_.values(), default=None)

    def latest(self) -> dict[bytes, Record]:
        return {record.key: record for record in self.committed() if record.key is not None}

    def producers(self, start: int) -> dict[int, tuple[int, int]]:
        """Epoch and last sequence of each producer."""
        data = [header for header, _ in self.batches if header.base_sequence >= 0 and header.last_offset >= start]
        return {
            header.producer_id: (header.producer_epoch, header.base_sequence + header.last_offset_delta)
            for header in data
        }


def check_log(log: Log, truth: Truth, *, now_ms: int, clean_since: dict[int, int]) -> None:
    """The log is what the truth leaves of it: nothing moved or changed, and every latest value is there."""
    found = list(batches_of(log))
    assert log.end_offset == (found[-1][0].next_offset if found else log.start_offset)
    originals, records = truth.records(), []
    position = -1
    for header, data in found:
        assert header.base_offset > position
        position = header.last_offset
        assert header.record_count > 0, "some clients do not live well with empty batches"
        if not header.is_control:
            inside = list(iterate(data))
            records += inside
            if not header.is_log_append_time:
                assert header.max_timestamp == max(record.timestamp for record in inside)
    for record in records:
        assert record == originals[record.offset]
    assert [record.offset for record in records] == sorted({record.offset for record in records})
    counting = {record.offset for record in truth.committed()}
    seen = {record.key: record for record in records if record.offset in counting and record.offset >= log.start_offset}
    for key, record in truth.latest().items():
        if record.offset < log.start_offset:
            continue
        may_be_gone = (
            record.value is None and now_ms >= clean_since.get(record.offset, now_ms + 1) + DELETE_RETENTION_MS
        )
        assert seen.get(key) == record or (key not in seen and may_be_gone), f"{key!r} should be {record}"
    check_producers(log, truth, now_ms)


def check_producers(log: Log, truth: Truth, now_ms: int) -> None:
    """What is folded from headers alone."""
    folded = Producers()
    folded.fold(log.headers(log.start_offset), now_ms=0)
    last = {number: (p.epoch, p.batches[-1].last_sequence) for number, p in folded._producers.items()}
    expected = truth.producers(log.start_offset)
    forgotten = log.compaction.clean_since(now_ms - log.longest_wait_ms)
    for number in set(expected) - set(last):
        assert all(h.base_offset < forgotten for h, _ in truth.batches if h.producer_id == number and not h.is_control)
    assert last == {number: value for number, value in expected.items() if number in last}


def check_clean(log: Log, truth: Truth) -> None:
    """Below the first dirty offset every key has one record at most, and none was aborted."""
    counting = {record.offset for record in truth.committed()}
    keys = []
    for header, data in batches_of(log):
        if not header.is_control and header.next_offset <= log.compaction.first_dirty_offset:
            offsets = {record.offset for record in iterate(data)}
            assert offsets <= counting, "aborted"
            # What the log's start has cut through stays as it is for a while.
            keys += [record.key for record in iterate(data) if record.offset >= log.start_offset]
    assert None not in keys
    assert len(keys) == len(set(keys))


def check_places(log: Log, rng: random.Random) -> None:
    """Readers that go on anywhere, also where records are missing, and searches by time."""
    found = list(batches_of(log))
    for _ in range(5):
        offset = rng.randint(log.start_offset, log.end_offset)
        here = [pair for pair in found if pair[0].last_offset >= offset]
        read = log.read(offset, max_bytes=rng.choice([1, 200, 5000]))
        assert (read is None) == (not here)
        if read is not None:
            with read:
                assert b"".join(data for _, data in here).startswith(read.read())
        timestamp = START_MS + rng.randint(0, 40_000)
        newer = [header for header, _ in found if header.max_timestamp >= timestamp]
        assert log.find_timestamp(timestamp) == (newer[0] if newer else None)
    assert list(log.headers(log.start_offset)) == [header for header, _ in found]
    for header, _ in found:
        assert log.epochs.at(header.last_offset) == header.leader_epoch


class Program:
    """Random steps on a compacted log; the truth is noted before each of them."""

    def __init__(self, seed: int, files: MemoryFiles, config: LogConfig = CONFIG) -> None:
        self.rng = random.Random(seed)
        self.files = files
        self.config = config
        self.now_ms = START_MS
        self.epoch = 0
        self.truth = Truth()
        self.sequences: dict[int, tuple[int, int]] = {}
        self.in_transaction: set[int] = set()
        # Up to where a crash leaves everything.
        self.certain = 0
        # Up to where something may have been compacted: no follower diverges there.
        self.touched = 0
        # When the rounds began that made an offset clean: tombstones have to stay from then on.
        self.clean_since: dict[int, int] = {}
        # A round that is under way, by its time and its bound: if it is cut short, it may have counted or not.
        self.cleaning: tuple[int, int] | None = None
        self.rounds = 0
        self.transcript: list[str] = []
        self.directory: DataDirectory
        self.log: Log

    def open(self) -> None:
        self.directory = DataDirectory(FOLDER, self.files, cluster_id="test")
        self.log = self.directory.log(TOPIC, 0, self.config)

    def fork(self, files: MemoryFiles) -> "Program":
        """The same program, before it goes on with another disk."""
        other = Program(0, files, self.config)
        other.rng.setstate(self.rng.getstate())
        other.now_ms, other.epoch, other.touched = self.now_ms, self.epoch, self.touched
        other.truth = Truth(self.truth.batches.copy())
        other.sequences, other.in_transaction = self.sequences.copy(), self.in_transaction.copy()
        other.clean_since, other.transcript = self.clean_since.copy(), self.transcript.copy()
        return other

    def come_back(self, files: MemoryFiles) -> "Program":
        """The program as it finds the disk after a crash. Nothing that was flushed for good is missing, nothing is left
        that has no use."""
        other = self.fork(files)
        other.open()
        assert not leftovers(files)
        assert other.log.end_offset >= self.certain, "flushed records are lost"
        other.cut_truth()
        other.cleaning = self.cleaning
        other.count_what_was_cut_short()
        other.check()
        return other

    def count_what_was_cut_short(self) -> None:
        """A round that was cut short may have come to its end."""
        if self.cleaning is not None:
            now_ms, bound = self.cleaning
            for offset in range(bound):
                self.clean_since.setdefault(offset, now_ms)
            self.cleaning = None

    def step(self) -> None:
        weights: dict[Callable[[], object], int] = {
            self.append: 40,
            self.append_idempotent: 20,
            self.append_transactional: 15,
            self.end_transaction: 10,
            self.flush: 20,
            self.compact: 15,
            self.roll: 4,
            self.advance_start: 2,
            self.truncate: 2,
            self.elect: 3,
            self.reopen: 2,
            self.reopen_unclean: 2,
        }
        action = self.rng.choices(list(weights), list(weights.values()))[0]
        self.now_ms += self.rng.choice([0, 10, 300, 1500])
        name = getattr(action, "__name__", "?")
        self.transcript.append(f"{name} at {self.now_ms} [{self.log.start_offset}, {self.log.end_offset})")
        action()

    # Appending

    def append(self) -> None:
        self._append(self._build())

    def append_idempotent(self) -> None:
        self._append_of(self.rng.randrange(3), transactional=False)

    def append_transactional(self) -> None:
        producer = self.rng.randrange(10, 13)
        self._append_of(producer, transactional=True)
        self.in_transaction.add(producer)

    def end_transaction(self) -> None:
        if self.in_transaction:
            producer = self.rng.choice(sorted(self.in_transaction))
            self.in_transaction.discard(producer)
            marker = build_end_marker(
                self.rng.choice([ControlType.COMMIT, ControlType.ABORT]),
                producer_id=producer,
                producer_epoch=self.sequences[producer][0],
                coordinator_epoch=0,
                timestamp=self.now_ms,
            )
            self._append(marker)

    def _append_of(self, producer: int, *, transactional: bool) -> None:
        epoch, sequence = self.sequences.get(producer, (0, 0))
        if producer not in self.in_transaction and self.rng.random() < 0.1:
            epoch, sequence = epoch + 1, 0
        view = self._build(
            producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
        )
        self.sequences[producer] = (epoch, sequence + read_header(view).record_count)
        self._append(view)

    def _build(self, **fields: int) -> bytearray:
        rng = self.rng
        records = [
            NewRecord(
                key=rng.choice(KEYS) if rng.random() > 0.03 else None,
                value=None if rng.random() < 0.15 else rng.randbytes(rng.choice([0, 5, 60])),
                headers=[("h", b"x")] if rng.random() < 0.1 else [],
                timestamp=self.now_ms + rng.randint(-200, 200),
            )
            for _ in range(rng.choice([1, 1, 2, 4, 7]))
        ]
        codec = rng.choice([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
        append_time = self.now_ms if rng.random() < 0.1 else None
        return build(records, codec=codec, log_append_time=append_time, **fields)  # type: ignore[arg-type]

    def _append(self, view: bytearray) -> None:
        stamped = bytearray(view)
        stamped[:8] = self.log.end_offset.to_bytes(8, "big")
        stamped[12:16] = self.epoch.to_bytes(4, "big")
        self.truth.append(stamped)
        self.log.append(split(view), leader_epoch=self.epoch, now_ms=self.now_ms)

    # Everything else

    def flush(self) -> None:
        self.directory.flusher.flush()
        self.certain = self.log.end_offset
        self.directory.flusher.save_recovery_points(self.now_ms)

    def roll(self) -> None:
        self.now_ms += self.config.segment_ms
        self.log.roll_if_due(self.now_ms)

    def advance_start(self) -> None:
        self.log.advance_start(self.rng.randint(self.log.start_offset, self.log.flushed_offset))

    def truncate(self) -> None:
        low = max(self.log.start_offset, self.touched)
        if low < self.log.end_offset:
            self.certain = min(self.certain, low)
            self.log.truncate(self.rng.randint(low, self.log.end_offset))
            self.cut_truth()

    def cut_truth(self) -> None:
        """To where the log ends now."""
        self.truth.cut(self.log.end_offset)
        open_: set[int] = set()
        self.sequences = {}
        for header, _ in self.truth.batches:
            if header.is_control:
                open_.discard(header.producer_id)
            elif header.producer_id >= 0:
                next_sequence = header.base_sequence + header.record_count
                self.sequences[header.producer_id] = (header.producer_epoch, next_sequence)
                if header.is_transactional:
                    open_.add(header.producer_id)
        self.in_transaction = open_

    def elect(self) -> None:
        self.epoch += 1
        self.log.begin_epoch(self.epoch)

    def reopen(self) -> None:
        self.directory.close()
        self.open()

    def reopen_unclean(self) -> None:
        self.files.kill_process()
        self.open()

    def compact(self, *, max_keys: int | None = None, at: Callable[[str], None] | None = None) -> CleaningDone | None:
        undecided = self.truth.first_undecided(self.log.start_offset)
        bound = self.log.flushed_offset
        if undecided is not None and self.rng.random() < 0.5:
            bound = min(bound, undecided)
        end, clean_before = self.log.end_offset, max(self.log.start_offset, self.log.compaction.first_dirty_offset)
        now_ms = self.now_ms
        self.touched = max(self.touched, min(bound, self.log.recovery_point))
        self.cleaning = (now_ms, bound)
        done = run_round(
            self.log,
            self.files,
            now_ms=now_ms,
            upper_bound=bound,
            max_keys=max_keys or self.rng.choice([1, 5, 1000]),
            at=at or (lambda stage: None),
            ahead=self.rng.random() < 0.3,
        )
        self.cleaning = None
        if done is not None:
            self.rounds += 1
            assert done.cleaned_to <= (end if undecided is None else max(undecided, clean_before))
            for offset in range(self.log.start_offset, done.cleaned_to):
                self.clean_since.setdefault(offset, now_ms)
            if at is None:
                check_clean(self.log, self.truth)
        return done

    def compact_everything(self) -> None:
        """Until there is nothing more to do."""
        while self.in_transaction:
            self.end_transaction()
        self.roll()
        self.flush()
        self.log.config = replace(
            self.config, compaction=CompactionConfig(min_dirty_ratio=0.0, delete_retention_ms=DELETE_RETENTION_MS)
        )
        for _ in range(1000):
            if self.compact(max_keys=5) is None:
                return
        raise AssertionError("it never ends")

    def check(self) -> None:
        check_log(self.log, self.truth, now_ms=self.now_ms, clean_since=self.clean_since)
        check_places(self.log, self.rng)


def leftovers(files: Files) -> list[str]:
    """What should be gone from the folder of a log."""
    return [name for name in files.list(f"{FOLDER}/{TOPIC}-0") if any(part in name for part in LEFTOVERS)]
