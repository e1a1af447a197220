"""Crashes and failures at every step of random programs, and what corruption may never do."""

import errno
import random
from dataclasses import dataclass
from functools import lru_cache

import pytest

from penstock.protocol.batch import BatchHeader, split, stamp
from penstock.storage.data_directory import DataDirectory
from penstock.storage.errors import CorruptLogError, LogOfflineError
from penstock.storage.files.memory import Crashed, Damage, MemoryFiles
from penstock.storage.log.log import Log, LogConfig
from tests.storage.programs import (
    CONFIG,
    FOLDER,
    IDENTITY,
    TOPIC,
    Expected,
    FollowerProgram,
    Program,
    check_reads,
    random_batch,
)
from tests.storage.store import Store, batches_of, claiming, contents, new_batch, overwrite, read_one

PROGRAMS = 50
STEPS = 14


PROGRAM_KINDS: dict[str, type[Program]] = {"leader": Program, "follower": FollowerProgram}


@lru_cache(maxsize=1)
def crashed(seed: int, kind: str) -> list[Program]:
    """A program that lost power at each of its steps in turn. What each kind of damage leaves of it is asked of the
    same programs, one seed after the other."""
    dry_run = PROGRAM_KINDS[kind](seed, MemoryFiles(seed=seed))
    dry_run.run(STEPS)
    total = dry_run.files.steps
    assert total > STEPS, "a program does something"
    programs = []
    for step in range(1, total + 1):
        files = MemoryFiles(seed=seed)
        files.crash_at(step)
        program = PROGRAM_KINDS[kind](seed, files)
        with pytest.raises(Crashed):
            program.run(STEPS)
        programs.append(program)
    return programs


@pytest.mark.parametrize("damage", Damage)
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_crash_at_any_step_loses_nothing_flushed_and_invents_nothing(seed: int, damage: Damage) -> None:
    check_crashes(seed, damage, "leader")


@pytest.mark.parametrize("damage", Damage)
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_crash_of_a_follower_at_any_step_loses_nothing_flushed_though_its_leader_has_holes(
    seed: int, damage: Damage
) -> None:
    check_crashes(seed, damage, "follower")


def check_crashes(seed: int, damage: Damage, kind: str) -> None:
    for step, program in enumerate(crashed(seed, kind), 1):
        rng = random.Random(f"{seed} {step} {damage}")
        try:
            check_recovered(program, program.files.after_crash(damage, rng), rng)
        except Exception as error:
            raise AssertionError(
                f"seed {seed}, crash at step {step}, {damage}\n" + "\n".join(program.transcript)
            ) from error


def check_recovered(program: Program, files: MemoryFiles, rng: random.Random) -> None:
    directory = DataDirectory(FOLDER, files, cluster_id="test")
    log = directory.log(TOPIC, 0, CONFIG, identity=IDENTITY)
    now_expected = check_restarted(program, log)
    check_reads(log, now_expected, rng, rounds=6)
    check_epochs(log, now_expected.batches)
    check_snapshots(program, log)
    check_usable(program, directory, files, now_expected, rng)


def check_restarted(program: Program, log: Log) -> Expected:
    """Nothing that was certain is lost; returns what is expected from now on."""
    expected = program.expected
    certain = expected.flushed
    if program.truncating_to is not None:
        certain = min(certain, batch_start(expected, program.truncating_to))
    assert log.end_offset >= certain, "flushed records are lost"
    assert log.start_offset >= expected.start, "the start of the log went back"
    assert log.start_offset <= max(expected.start, program.starting_at or 0)
    found = list(batches_of(log))
    check_nothing_is_invented(program, log, found)
    return Expected(found, log.start_offset, log.end_offset, log.end_offset)


def batch_start(expected: Expected, offset: int) -> int:
    """Where the log ends once it is truncated to an offset: after the batch before the one that holds it."""
    if offset >= expected.end:
        return offset
    number = expected.holding(offset)
    return expected.batches[number - 1][0].next_offset if number else 0


def check_nothing_is_invented(program: Program, log: Log, found: list[tuple[BatchHeader, bytes]]) -> None:
    position = None
    for header, data in found:
        assert data in program.history[header.base_offset], "a batch that nobody appended"
        holes = program.holes.get(header.base_offset, set())
        assert position in (None, header.base_offset, *holes), "offsets are missing that the leader has"
        position = header.next_offset
    # Below the flushed end there is one truth, not just anything that was ever appended there.
    limit = min(program.expected.flushed, log.end_offset)
    if program.truncating_to is None:
        truth = {header.base_offset: data for header, data in program.expected.batches}
        for header, data in found:
            if header.next_offset <= limit:
                assert data == truth[header.base_offset]


def check_epochs(log: Log, found: list[tuple[BatchHeader, bytes]]) -> None:
    entries = log.epochs.entries
    assert entries == tuple(sorted(entries))
    for header, _ in found:
        began = [epoch for epoch, start in entries if start <= max(header.base_offset, log.start_offset)]
        assert began[-1:] == [header.leader_epoch], f"{entries} for a batch of {header.leader_epoch}"


def check_snapshots(program: Program, log: Log) -> None:
    latest = log.latest_snapshot(version=1)
    if latest is not None:
        assert latest[0] <= log.end_offset
        assert latest[1] in program.snapshots[latest[0]]


def check_usable(
    program: Program, directory: DataDirectory, files: MemoryFiles, expected: Expected, rng: random.Random
) -> None:
    """What came out of the crash goes on like any other log, and opens again without a scan."""
    log = directory.log(TOPIC, 0, CONFIG, identity=IDENTITY)
    view = random_batch(rng, program.now_ms)
    log.append(split(view), leader_epoch=program.epoch + 1, now_ms=program.now_ms)
    expected.append([view])
    directory.close()
    again = DataDirectory(FOLDER, files, cluster_id="test")
    check_reads(again.log(TOPIC, 0, CONFIG, identity=IDENTITY), expected, rng, rounds=2)
    assert again.reports[f"{TOPIC}-0"].scanned_bytes == 0
    again.close()


FAILING_PROGRAMS = 6
CALLS = ["open", "pwritev", "truncate", "sync", "sync_directory", "rename", "unlink", "make_directory"]


@pytest.mark.parametrize("kind", PROGRAM_KINDS)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_loses_nothing_flushed_and_leaves_a_log_that_is_right_or_offline(
    call: str, kind: str
) -> None:
    failures = 0
    for seed in range(FAILING_PROGRAMS):
        nth, has_failed = 0, True
        while has_failed:
            nth += 1
            error = OSError(errno.EIO if nth % 2 else errno.ENOSPC, f"call {nth} of {call} fails")
            check_failure(kind, seed, call, nth, error)
            has_failed = error.__traceback__ is not None
            failures += has_failed
    assert failures > FAILING_PROGRAMS, "the programs make this call"


def check_failure(kind: str, seed: int, call: str, nth: int, error: OSError) -> None:
    files = MemoryFiles(seed=seed)
    files.fail(call, nth, error, after_bytes=nth % 150)
    program = PROGRAM_KINDS[kind](seed, files)
    rng = random.Random(f"{seed} {call} {nth}")
    try:
        run_in_spite_of_failures(program)
        check_recovered(program, files.after_crash(rng.choice(list(Damage)), rng), rng)
    except Exception as wrong:
        raise AssertionError(f"seed {seed}, {error}\n" + "\n".join(program.transcript)) from wrong


def run_in_spite_of_failures(program: Program) -> None:
    """As a broker does: an operation that fails is told, and a log that is offline waits for the next start."""
    started_at: list[int] = []
    try:
        program.open()
    except OSError:
        program.restart()
    for _ in range(STEPS):
        end = program.log.end_offset
        try:
            program.step()
        except (OSError, LogOfflineError) as error:
            program.transcript[-1] += f" fails: {error}"
            started_at += [] if program.starting_at is None else [program.starting_at]
            if program.is_running and program.log.failure is None:
                check_unharmed(program, end)
            else:
                check_offline(program)
                program.restart()
                program.expected = check_restarted(program, program.log)
                program.truncating_to = None
        # A start that could not be saved may be there after a restart.
        if program.log.start_offset <= max(started_at, default=0):
            program.expected.advance_start(program.log.start_offset)
    program.starting_at = max([*started_at, program.starting_at or 0])


def check_unharmed(program: Program, end: int) -> None:
    assert program.log.end_offset == end
    program.truncating_to = None
    program.expected.advance_start(program.log.start_offset)
    check_reads(program.log, program.expected, program.rng, rounds=2)


def check_offline(program: Program) -> None:
    if program.is_running:
        with pytest.raises(LogOfflineError):
            program.append()


@dataclass(slots=True)
class Damaged:
    """A log of two segments that was flushed and closed, batch by batch."""

    store: Store
    batches: list[tuple[BatchHeader, bytes]]
    """In order of their offsets."""
    places: list[tuple[str, int]]
    """Path and position of each."""
    intervals: list[int]
    """Which stretch between two index entries each lies in."""

    def copy(self, *, clean: bool) -> MemoryFiles:
        files = self.store.memory.copy()
        if not clean:
            files.unlink(f"{FOLDER}/clean-shutdown")
        return files

    def logs(self, files: MemoryFiles) -> list[bytes]:
        return [contents(files, path) for path in dict(self.places)]


@pytest.fixture(scope="module")
def closed() -> Damaged:
    store = Store(config=LogConfig(segment_bytes=430, index_interval_bytes=160))
    for number, count in enumerate([1, 3, 2, 1, 1, 2, 4, 1]):
        store.append(*[b"value %d" % number] * count, epoch=number // 3, timestamp=1000 + number)
    batches = list(batches_of(store.log))
    places, intervals = [], []
    for number, segment in enumerate(store.log.segments):
        for batch in segment.batches(0, segment.size):
            places.append((segment.path, batch.position))
            intervals.append(number * 100 + segment.index.floor_of_position(batch.position)[0])
    assert len(store.log.segments) == 2
    assert len(set(intervals)) > 3
    store.stop()
    return Damaged(store, batches, places, intervals)


class TestAFlippedBitBelowTheRecoveryPoint:
    """It is reported: by the open or by every read of its batch, which is never served and never cut away."""

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("number", range(8))
    def test_is_reported_and_never_served_or_silently_cut(self, closed: Damaged, number: int, clean: bool) -> None:
        path, start = closed.places[number]
        for position in range(len(closed.batches[number][1])):
            # The first 27 bytes say where a batch ends, in the file and in offsets; one bit of each other byte will do.
            for bit in range(8) if position < 27 else [position % 8]:
                files = closed.copy(clean=clean)
                files.flip_bit(path, start + position, bit)
                before = closed.logs(files)
                try:
                    self.check(closed, files, number)
                except AssertionError as error:
                    raise AssertionError(f"batch {number}, byte {position}, bit {bit}") from error
                assert closed.logs(files) == before, "nothing is cut"

    def check(self, closed: Damaged, files: MemoryFiles, number: int) -> None:
        try:
            store = Store(files, closed.store.config)
        except CorruptLogError:
            return
        log = store.log
        assert log.end_offset == closed.batches[-1][0].next_offset
        assert store.report.cut_bytes == 0
        for other, (header, data) in enumerate(closed.batches):
            for offset in range(header.base_offset, header.next_offset):
                self.check_read(log, offset, data, may_fail=closed.intervals[other] == closed.intervals[number])
                if other == number:
                    with pytest.raises(CorruptLogError):
                        log.read(offset, max_bytes=1)
                    with pytest.raises(CorruptLogError):
                        log.read(offset, max_bytes=10_000)
        with pytest.raises(CorruptLogError):
            list(log.headers(0))

    def check_read(self, log: Log, offset: int, data: bytes, *, may_fail: bool) -> None:
        try:
            found = log.read(offset, max_bytes=1)
        except CorruptLogError:
            assert may_fail, f"a batch elsewhere cannot be read: {offset}"
        else:
            assert found is not None, "what is there passes for missing"
            with found:
                assert found.read() == data

    @pytest.mark.parametrize("bit", range(3))
    @pytest.mark.parametrize("damaged", range(8))
    def test_an_offset_that_still_fits_below_it_is_no_hole(self, damaged: int, bit: int) -> None:
        store = Store()
        for number in range(8):
            store.append(b"%d" % number)
        store.stop()
        store.files.unlink(f"{FOLDER}/clean-shutdown")
        size = len(new_batch(b"0"))
        store.memory.flip_bit(f"{store.path}/{0:020}.log", damaged * size + 7, bit)
        with pytest.raises(CorruptLogError):
            store.open()
        assert len(contents(store.files, f"{store.path}/{0:020}.log")) == 8 * size

    def test_does_not_pass_for_a_batch_that_goes_beyond_the_upper_bound(self) -> None:
        store = Store(config=LogConfig(index_interval_bytes=1))
        for number in range(8):
            store.append(b"%d" % number)
        store.stop()
        store.memory.flip_bit(f"{store.path}/{0:020}.log", 26, 1)
        store.open()
        with pytest.raises(CorruptLogError):
            store.log.read(0, max_bytes=1000, upper_bound=1)

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("damage", ["missing", "shortened", "emptied", "without its last batch", "with zeros"])
    def test_a_damaged_file_is_reported_too(self, closed: Damaged, damage: str, clean: bool) -> None:
        for path in dict(closed.places):
            files = closed.copy(clean=clean)
            data = contents(files, path)
            match damage:
                case "missing":
                    files.unlink(path)
                case "shortened":
                    overwrite(files, path, data[:-10])
                case "emptied":
                    overwrite(files, path, b"")
                case "without its last batch":
                    overwrite(files, path, data[: max(at for name, at in closed.places if name == path)])
                case "with zeros":
                    overwrite(files, path, data[:-10] + bytes(10))
            rest = [other for other in dict(closed.places) if other != path]
            before = [contents(files, other) for other in rest]
            try:
                store = Store(files, closed.store.config)
            except CorruptLogError:
                assert [contents(files, other) for other in rest] == before
                continue
            assert clean or damage == "with zeros", "a file that ends elsewhere is noticed at once"
            assert store.log.end_offset == closed.batches[-1][0].next_offset
            with pytest.raises(CorruptLogError):
                list(batches_of(store.log))
            with pytest.raises(CorruptLogError):
                list(store.log.headers(0))

    def test_a_missing_segment_in_the_middle_is_reported(self) -> None:
        store = Store(config=LogConfig(segment_bytes=150))
        for number in range(6):
            store.append(b"%d" % number)
        store.flush(save_recovery_points=True)
        names = store.names(".log")
        assert len(names) == 3
        store.kill()
        for name in names:
            files = store.memory.copy()
            files.unlink(f"{store.path}/{name}")
            with pytest.raises(CorruptLogError, match=f"{store.path}.*restore this partition"):
                Store(files, store.config)

    def test_a_whole_folder_that_is_gone_is_reported(self) -> None:
        store = Store()
        store.append(b"x")
        store.stop()
        files = store.memory.copy()
        for name in files.list(store.path):
            files.unlink(f"{store.path}/{name}")
        files.remove_directory(store.path)
        with pytest.raises(CorruptLogError, match=r"it ends at offset 0, but was flushed up to 1"):
            Store(files)


class TestTheTail:
    """What was perhaps never flushed is checked, and cut where it is not sound."""

    def store(self) -> Store:
        """Two flushed batches, and three of which nobody knows."""
        store = Store(config=LogConfig(segment_bytes=4 * len(new_batch(b"0"))))
        store.append(b"0", epoch=1)
        store.append(b"1", epoch=1)
        store.flush(save_recovery_points=True)
        for number in (2, 3, 4):
            store.append(b"%d" % number, epoch=1)
        return store

    def test_is_kept_if_it_is_sound(self) -> None:
        store = self.store()
        store.reopen(clean=False)
        assert store.values() == [b"0", b"1", b"2", b"3", b"4"]
        assert (store.report.cut_bytes, store.report.cut_reason) == (0, None)
        assert store.report.scanned_bytes > 0

    @pytest.mark.parametrize("damaged", [2, 3])
    def test_is_cut_at_the_first_batch_that_is_not_sound_and_that_is_reported(self, damaged: int) -> None:
        size = len(new_batch(b"0"))
        path = f"{self.store().path}/00000000000000000000.log"
        # Not the epoch: a newer one may begin with any batch.
        for position in [*range(12), *range(16, size)]:
            store = self.store()
            store.memory.flip_bit(path, damaged * size + position, position % 8)
            store.reopen(clean=False)
            assert store.values() == [b"%d" % number for number in range(damaged)], f"byte {position}"
            assert store.report.cut_bytes == (5 - damaged) * size
            assert (store.report.cut_reason or "").startswith(f"00000000000000000000.log, byte {damaged * size}: ")
            assert store.names(".log") == ["00000000000000000000.log"], "what came behind it is cut too"
            assert store.append(b"new", epoch=1) == damaged
            store.reopen()
            assert store.values()[-1] == b"new"

    def test_a_segment_that_lost_its_predecessor_is_cut(self) -> None:
        store = Store(config=LogConfig(segment_bytes=len(new_batch(b"0"))))
        store.append(b"0")
        store.flush(save_recovery_points=True)
        for number in (1, 2, 3):
            store.append(b"%d" % number)
        store.files.unlink(f"{store.path}/{2:020}.log")
        store.reopen(clean=False)
        assert store.values() == [b"0", b"1"]
        assert store.report.cut_reason == "offset 3 where 2 should be"

    @pytest.mark.parametrize("length", [1, 60, 61, 1000, 5000])
    def test_zeros_and_garbage_behind_the_batches_are_cut(self, length: int) -> None:
        for garbage in (bytes(length), random.Random(length).randbytes(length)):
            store = Store()
            store.append(b"0")
            path = store.log.segments[0].path
            overwrite(store.files, path, contents(store.files, path) + garbage)
            store.reopen(clean=False)
            assert store.values() == [b"0"]
            assert store.report.cut_bytes == length

    def test_what_was_recovered_is_durable(self) -> None:
        store = self.store()
        store.reopen(clean=False)
        for damage in Damage:
            found = Store(store.memory.after_crash(damage, random.Random(0)), store.config)
            assert found.values() == [b"0", b"1", b"2", b"3", b"4"]

    def test_an_offset_or_an_epoch_that_goes_back_is_not_sound(self) -> None:
        store = Store()
        store.append(b"0", epoch=3)
        store.append(b"1", epoch=3)
        path = store.log.segments[0].path
        data = bytearray(contents(store.files, path))
        data[len(data) // 2 + 12 : len(data) // 2 + 16] = (2).to_bytes(4, "big")
        overwrite(store.files, path, data)
        store.reopen(clean=False)
        assert store.values() == [b"0"]
        assert "leader epoch 2 comes after 3" in (store.report.cut_reason or "")

    def test_after_a_clean_stop_nothing_is_scanned(self) -> None:
        store = self.store()
        store.reopen()
        assert (store.report.scanned_bytes, store.report.cut_bytes) == (0, 0)

    def test_a_clean_end_that_is_not_there_has_the_log_checked(self) -> None:
        store = self.store()
        store.stop()
        marker = contents(store.files, f"{FOLDER}/clean-shutdown")
        store.open()
        store.append(b"5", epoch=1)
        store.stop()
        overwrite(store.files, f"{FOLDER}/clean-shutdown", marker)
        store.open()
        assert store.report.scanned_bytes > 0
        assert store.values() == [b"0", b"1", b"2", b"3", b"4", b"5"]

    def test_epochs_that_nobody_saved_are_found_again(self) -> None:
        store = Store()
        store.append(b"0", epoch=1)
        store.append(b"1", epoch=4)
        store.append(b"2", epoch=6)
        store.reopen(clean=False)
        assert store.log.epochs.entries == ((1, 0), (4, 1), (6, 2))
        assert read_one(store.log, 1)[0].leader_epoch == 4

    def test_leftovers_of_a_crash_are_removed(self) -> None:
        store = self.store()
        store.stop()
        for name in ("leader-epochs.tmp", f"{77:020}.index", f"{77:020}.timeindex"):
            overwrite(store.files, f"{store.path}/{name}", b"left")
        overwrite(store.files, f"{store.path}/notes.txt", b"not ours")
        store.open()
        assert not [name for name in store.names() if name.endswith(".tmp") or name.startswith(f"{77:020}")]
        assert "notes.txt" in store.names()


@pytest.mark.parametrize("was_flushed", [True, False])
def test_a_segment_with_more_offsets_than_an_index_can_hold_opens_with_all_it_has(was_flushed: bool) -> None:
    # As a version that believed any record count has left it.
    store = Store()
    store.append(b"first")
    placed, views, end = [], [], 1
    for _ in range(3):
        [(header, view)] = split(claiming(new_batch(b"x" * 5_000), 2**31 - 1))
        stamp(view, end, 0)
        placed.append((end, header))
        views.append(view)
        end += 2**31 - 1
    store.log._segments[-1].append(placed, views, sum(map(len, views)), end, 0)
    if was_flushed:
        store.flush(save_recovery_points=True)
    store.reopen(clean=False)
    assert store.report.cut_bytes == 0
    assert len(store.log.segments) == 1
    # The next batch gets a segment of its own, and everything is found, also after a clean stop and without an index.
    assert store.append(b"last") == end
    assert [segment.base_offset for segment in store.log.segments] == [0, end]
    for clean in (True, True, False):
        store.reopen(clean=clean)
        found = [header.base_offset for header, _ in batches_of(store.log, max_bytes=1)]
        assert found == [0, 1, 2**31, 2**32 - 1, end]
        assert [header.base_offset for header in store.log.headers(2**31)] == [2**31, 2**32 - 1, end]
        assert store.log.drop_indexes()
