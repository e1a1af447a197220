"""When a round is due and what it is about; then random programs, after which every key has its latest value."""

from dataclasses import replace

import pytest

from penstock.protocol.batch import split
from penstock.protocol.records import NewRecord, build, iterate
from penstock.storage.compaction.plan import Dirtiness, dirtiness, plan
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.log.compaction_state import CompactionConfig
from penstock.storage.log.log import LogConfig
from tests.storage.compacting import Program, leftovers, run_round
from tests.storage.store import NOW_MS, Store, batches_of

PROGRAMS = 120
STEPS = 100


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_every_key_keeps_its_latest_value_whatever_happens(seed: int) -> None:
    program = Program(seed, MemoryFiles(seed=seed))
    program.open()
    try:
        for _ in range(STEPS):
            program.step()
            if program.transcript[-1].startswith(("compact", "reopen", "truncate", "advance")):
                program.check()
        program.compact_everything()
        program.check()
    except Exception as error:
        raise AssertionError(f"seed {seed}\n" + "\n".join(program.transcript)) from error
    assert program.rounds, "the program does something"
    assert not leftovers(program.files)


@pytest.mark.parametrize("seed", range(40))
def test_others_go_on_between_the_steps_of_a_round(seed: int) -> None:
    program = Program(seed, MemoryFiles(seed=seed))
    program.open()
    interruptions = [program.append, program.append_idempotent, program.flush, program.advance_start, program.roll]

    def interrupt(stage: str) -> None:
        action = program.rng.choice([*interruptions, program.check, program.check, program.truncate])
        program.transcript.append(f"  {stage}: {action.__name__}")
        action()

    try:
        for _ in range(STEPS):
            program.step()
            if program.rng.random() < 0.1:
                program.transcript.append("a round")
                program.compact(at=interrupt)
                program.check()
        program.compact_everything()
        program.check()
    except Exception as error:
        raise AssertionError(f"seed {seed}\n" + "\n".join(program.transcript)) from error
    assert not leftovers(program.files)


@pytest.mark.parametrize("seed", range(10))
def test_tombstones_go_when_their_time_has_come_and_nothing_is_left_that_grows(seed: int) -> None:
    program = Program(seed, MemoryFiles(seed=seed))
    program.open()
    for _ in range(STEPS):
        program.step()
    program.compact_everything()
    program.now_ms += 100_000_000
    program.compact_everything()
    # The last step of that has rolled and flushed, and what a day and more ago was clean has had its time.
    program.now_ms += 100_000_000
    program.compact_everything()
    program.check()
    batches = list(batches_of(program.log))
    records = [record for header, data in batches if not header.is_control for record in iterate(data)]
    assert all(record.value is not None for record in records if record.offset >= program.log.start_offset)
    # Nothing of transactions and producers but what belongs to records that are left.
    left = [header for header, _ in batches if header.is_control]
    alive = {header.producer_id for header, _ in batches if not header.is_control and header.is_transactional}
    assert all(header.producer_id in alive or header.producer_id == -1 for header in left)


# When, and what


def config(**settings: float) -> LogConfig:
    return LogConfig(
        segment_bytes=200,
        retention_ms=-1,
        segment_ms=10_000,
        compaction=CompactionConfig(**settings),  # type: ignore[arg-type]
    )


class Keyed(Store):
    """A log of keyed records, each in a batch of its own of about 75 bytes: two go into a segment."""

    def put(self, *pairs: tuple[bytes | None, bytes | None], now_ms: int = NOW_MS, epoch: int = 0) -> int:
        batch = build([NewRecord(key=key, value=value, timestamp=now_ms) for key, value in pairs])
        return self.log.append(split(batch), leader_epoch=epoch, now_ms=now_ms)

    def look(self, *, upper_bound: int | None = None, now_ms: int = NOW_MS) -> Dirtiness:
        bound = self.log.end_offset if upper_bound is None else upper_bound
        return dirtiness(self.log, upper_bound=bound, now_ms=now_ms)

    def compact(self, *, now_ms: int = NOW_MS, max_keys: int = 1000) -> bool:
        return run_round(self.log, self.files, now_ms=now_ms, max_keys=max_keys) is not None

    def left(self) -> list[tuple[int, bytes | None, bytes | None]]:
        records = (record for header, data in batches_of(self.log) if not header.is_control for record in iterate(data))
        return [(record.offset, record.key, record.value) for record in records]


def filled(count: int = 8, **settings: float) -> Keyed:
    store = Keyed(config=config(**settings))
    for number in range(count):
        store.put((b"%d" % (number % 3), b"value %d" % number))
    store.flush(save_recovery_points=True)
    return store


def test_nothing_is_dirty_above_the_bound_the_recovery_point_and_the_active_segment() -> None:
    store = filled()
    bases = [segment.base_offset for segment in store.log.segments]
    assert bases == [0, 2, 4, 6]
    assert (store.look().bound, store.look().first_dirty_offset) == (6, 0)
    assert store.look(upper_bound=5).bound == 4
    assert store.look().uncleanable_bytes == store.log.segments[-1].size
    assert store.look().dirty_bytes == sum(segment.size for segment in store.log.segments[:-1])
    for number in range(4):
        store.put((b"x", b"%d" % number))
    store.flush()
    assert store.look().bound == 8, "flushed, but a crash would not find that told"
    store.directory.flusher.save_recovery_points(NOW_MS)
    assert store.look().bound == 10


def test_a_round_is_due_when_enough_is_dirty() -> None:
    store = filled(min_dirty_ratio=0.6)
    assert store.look().ratio == 1
    assert store.look().is_due
    assert store.compact()
    found = store.look()
    assert (found.first_dirty_offset, found.dirty_bytes, found.ratio, found.is_due) == (6, 0, 0.0, False)
    assert not store.compact()
    for number in range(2):
        store.put((b"y", b"%d" % number))
    store.flush(save_recovery_points=True)
    found = store.look()
    assert (found.first_dirty_offset, found.bound) == (6, 8)
    assert 0 < found.ratio < 0.6
    assert not found.is_due


@pytest.mark.parametrize(("ratio", "is_ever_due"), [(0.01, False), (0, True)])
def test_a_small_rest_behind_a_round_waits_for_more_unless_any_dirt_is_enough(ratio: float, is_ever_due: bool) -> None:
    store = Keyed(config=config(min_dirty_ratio=ratio, delete_retention_ms=0))
    store.put((b"live", bytes(10_000)))
    store.put((b"doomed", b"x"))
    # Ten seconds later this begins a segment of its own, which the first round finds active.
    store.put((b"doomed", None), now_ms=NOW_MS + 10_000)
    store.flush(save_recovery_points=True)
    assert [segment.base_offset for segment in store.log.segments] == [0, 1, 2]
    assert store.compact(now_ms=NOW_MS + 10_000)
    assert store.look().first_dirty_offset == 2
    next_year_ms = NOW_MS + 365 * 86_400_000
    assert store.log.roll_if_due(next_year_ms)
    found = store.look(now_ms=next_year_ms)
    assert (found.bound, found.is_due) == (3, is_ever_due)
    assert 0 < found.ratio < 0.01
    while store.compact(now_ms=next_year_ms):
        pass
    left = [(0, b"live"), (1, b"doomed"), (2, b"doomed")]
    assert [(offset, key) for offset, key, _ in store.left()] == (left[:1] if is_ever_due else left)


def test_what_is_younger_than_the_least_lag_is_left_alone() -> None:
    store = Keyed(config=config(min_lag_ms=1000))
    for number in range(8):
        store.put((b"x", b"%d" % number), now_ms=NOW_MS + number * 500)
    store.flush(save_recovery_points=True)
    assert store.look(now_ms=NOW_MS + 500).bound == 0
    assert store.look(now_ms=NOW_MS + 2000).bound == 2
    assert store.look(now_ms=NOW_MS + 2600).bound == 4
    assert store.look(now_ms=NOW_MS + 60_000).bound == 6


def test_what_is_older_than_the_longest_lag_is_due_and_the_active_segment_is_rolled_for_it() -> None:
    store = filled(min_dirty_ratio=1.0, max_lag_ms=5000)
    assert store.compact(now_ms=NOW_MS + 1)
    store.put((b"0", b"new"), now_ms=NOW_MS + 2)
    store.flush(save_recovery_points=True)
    assert not store.look(now_ms=NOW_MS + 4999).is_due
    assert plan(store.log, upper_bound=9, now_ms=NOW_MS + 4999, max_keys=9) is None
    assert store.log.segments[-1].size
    job = plan(store.log, upper_bound=9, now_ms=NOW_MS + 5002, max_keys=9)
    assert store.log.segments[-1].size == 0, "rolled"
    assert job is not None
    assert job.bound == 9
    assert store.look(now_ms=NOW_MS + 5002).is_due


def test_neighbours_that_fit_in_a_segment_become_one() -> None:
    store = filled(30)
    assert store.compact()
    assert [segment.base_offset for segment in store.log.segments] == [2 * n for n in range(15)], "as large as before"
    store.put((b"0", b"new"), now_ms=NOW_MS)
    store.put((b"0", b"newer"), now_ms=NOW_MS)
    store.flush(save_recovery_points=True)
    store.log.config = replace(store.log.config, compaction=CompactionConfig(min_dirty_ratio=0.0))
    assert store.compact()
    assert len(store.log.segments) < 15
    assert store.log.segments[0].end_offset > 2
    assert store.log.end_offset == 32
    store.reopen(clean=False)
    assert store.left()[-3:] == [(29, b"2", b"value 29"), (30, b"0", b"new"), (31, b"0", b"newer")]


def test_more_keys_than_there_is_room_for_take_several_rounds() -> None:
    store = Keyed(config=config(min_dirty_ratio=0.0))
    for number in range(60):
        store.put((b"%d" % (number % 20), b"value %d" % number))
    store.put((b"last", b""))
    store.log.roll_if_due(NOW_MS + 10_000)
    store.flush(save_recovery_points=True)
    rounds = 0
    while store.compact(max_keys=6):
        rounds += 1
        assert rounds < 50
    assert rounds > 5
    assert store.log.compaction.first_dirty_offset == 61
    assert store.left() == [
        *((offset, b"%d" % (offset % 20), b"value %d" % offset) for offset in range(40, 60)),
        (60, b"last", b""),
    ]


def test_tombstones_stay_as_long_as_they_should_and_are_then_a_reason_for_a_round() -> None:
    store = Keyed(config=config(delete_retention_ms=1000))
    for pair in [(b"a", b"1"), (b"b", b"2"), (b"a", None), (b"c", b"3")]:
        store.put(pair)
    store.put((b"d", b"4"))
    store.flush(save_recovery_points=True)
    assert store.compact()
    assert [offset for offset, _, _ in store.left()] == [1, 2, 3, 4]
    assert not store.compact(now_ms=NOW_MS + 999)
    store.reopen()
    assert not store.compact(now_ms=NOW_MS + 999)
    assert store.compact(now_ms=NOW_MS + 1000)
    assert [offset for offset, _, _ in store.left()] == [1, 3, 4]
    assert not store.compact(now_ms=NOW_MS + 9_000)


def test_records_without_a_key_are_dropped() -> None:
    store = Keyed(config=config())
    store.put((None, b"1"), (b"a", b"2"), (None, b"3"))
    store.put((None, b"4"))
    for _ in range(3):
        store.put((b"b", b"5"))
    store.flush(save_recovery_points=True)
    assert store.compact()
    assert (0, None, b"1") not in store.left()
    assert store.left()[0] == (1, b"a", b"2")


def test_a_log_that_was_compacted_to_its_end_goes_on_after_any_restart() -> None:
    for clean in (True, False):
        store = filled(7, min_dirty_ratio=0.0)
        store.log.roll_if_due(NOW_MS + 10_000)
        store.flush(save_recovery_points=True)
        assert store.compact()
        assert store.log.compaction.first_dirty_offset == 7
        store.reopen(clean=clean)
        assert store.log.end_offset == 7
        assert store.log.compaction.first_dirty_offset == 7
        assert store.left() == [(4, b"1", b"value 4"), (5, b"2", b"value 5"), (6, b"0", b"value 6")]
        assert store.put((b"2", b"new")) == 7
        store.log.roll_if_due(NOW_MS + 20_000)
        store.flush(save_recovery_points=True)
        assert store.compact(now_ms=NOW_MS)
        assert store.left() == [(4, b"1", b"value 4"), (6, b"0", b"value 6"), (7, b"2", b"new")]


def test_a_kill_above_the_recovery_point_leaves_holes_below_it_alone() -> None:
    store = filled()
    assert store.compact()
    before = store.left()
    store.put((b"new", b"1"))
    store.reopen(clean=False)
    assert store.left() == [*before, (8, b"new", b"1")]
    assert store.report.cut_bytes == 0


def test_epochs_stay_known_whose_first_batches_are_gone() -> None:
    store = Keyed(config=config(min_dirty_ratio=0.0))
    for epoch, key in [(0, b"a"), (0, b"b"), (3, b"c"), (4, b"d"), (4, b"d"), (6, b"c"), (7, b"e")]:
        store.put((key, b"%d" % epoch), epoch=epoch)
    store.log.config = replace(store.log.config, segment_bytes=10_000)
    store.log.roll_if_due(NOW_MS + 10_000)
    store.flush(save_recovery_points=True)
    entries = store.log.epochs.entries
    assert entries == ((0, 0), (3, 2), (4, 3), (6, 5), (7, 6))
    assert store.compact()
    assert [offset for offset, _, _ in store.left()] == [0, 1, 4, 5, 6]
    store.reopen(clean=False)
    assert store.log.epochs.entries == entries
    assert [offset for offset, _, _ in store.left()] == [0, 1, 4, 5, 6]


def test_a_round_leaves_a_log_that_needs_nothing_as_it_is() -> None:
    store = Keyed(config=config(min_dirty_ratio=0.0))
    for number in range(8):
        store.put((b"%d" % number, b"value"))
    store.flush(save_recovery_points=True)
    segments = store.log.segments
    assert store.compact()
    assert store.log.segments == segments
    assert store.log.compaction.first_dirty_offset == 6
