"""A cleaned segment takes the place of others: cut short and failing at every call, and beside readers."""

import errno
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache

import pytest

from penstock.storage.compaction.clean import CleanedSegment, CleaningDone, clean
from penstock.storage.compaction.plan import plan
from penstock.storage.compaction.rewriting import is_filler
from penstock.storage.errors import CorruptLogError, LogOfflineError
from penstock.storage.files.memory import Crashed, Damage, MemoryFiles
from penstock.storage.log.swap import finish_swaps
from penstock.storage.scrub import Scrubber
from tests.storage.compacting import (
    COMPACTION,
    CONFIG,
    START_MS,
    Program,
    check_log,
    leftovers,
    swap_in,
)
from tests.storage.store import FOLDER, TOPIC, batches_of, contents, overwrite

SEEDS = range(2)
# Segments of which several become one.
SMALL = replace(CONFIG, segment_bytes=700, compaction=replace(COMPACTION, min_dirty_ratio=0.0))


def written(seed: int) -> Program:
    """A program that has written enough, on a disk that has it all."""
    program = Program(seed, MemoryFiles(seed=seed), SMALL)
    program.open()
    for _ in range(9):
        program.append()
        program.append_idempotent()
        if program.rng.random() < 0.2:
            program.append_transactional()
        if program.rng.random() < 0.2:
            program.end_transaction()
    while program.in_transaction:
        program.end_transaction()
    program.flush()
    program.files.kill_process()
    return program


def compact_twice(program: Program) -> None:
    """Two rounds, one of which merges what the other has left, with writing between them."""
    program.open()
    program.flush()
    program.compact(max_keys=1000)
    for _ in range(6):
        program.append()
    program.log.config = replace(SMALL, segment_bytes=1500)
    program.now_ms += 20_000
    program.log.roll_if_due(program.now_ms)
    program.flush()
    program.compact(max_keys=1000)


@contextmanager
def told(where: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise AssertionError(where) from error


@cache
def cut_short(seed: int) -> list[tuple[Program, str]]:
    """The two rounds, ended at each of their calls in turn; those who ask copy the files before they go on."""
    before = written(seed)
    dry_run = before.fork(before.files.copy())
    compact_twice(dry_run)
    assert dry_run.rounds == 2
    first = before.files.steps + 1
    programs = []
    for step in range(first, dry_run.files.steps + 1):
        files = before.files.copy()
        files.crash_at(step)
        program = before.fork(files)
        program.certain = before.certain
        with pytest.raises(Crashed):
            compact_twice(program)
        programs.append((program, f"seed {seed}, call {step - first} of {dry_run.files.steps - first}"))
    return programs


@pytest.mark.parametrize("seed", SEEDS)
def test_no_latest_value_is_lost_by_a_crash_at_any_call(seed: int) -> None:
    for program, where in cut_short(seed):
        rng = random.Random(where)
        last = rng.choice(list(Damage))
        for damage in Damage:
            with told(f"{where}, {damage}"):
                back = program.come_back(program.files.after_crash(damage, rng))
                if damage is last:
                    back.append()
                    back.compact_everything()
                    back.check()
                assert not leftovers(back.files)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_latest_value_is_lost_by_a_kill_at_any_call(seed: int) -> None:
    for program, where in cut_short(seed):
        with told(where):
            program.come_back(program.files.copy()).check()


def test_a_crash_at_any_call_of_the_recovery_from_a_crash_changes_nothing() -> None:
    for program, where in cut_short(0)[::2]:
        rng = random.Random(where)
        found = program.files.after_crash(rng.choice(list(Damage)), rng)
        dry_run = found.copy()
        program.come_back(dry_run)
        for step in range(found.steps + 1, dry_run.steps + 1):
            files = found.copy()
            files.crash_at(step)
            again = program.fork(files)
            with suppress(Crashed):
                again.open()
            damage = rng.choice(list(Damage))
            with told(f"{where}, then call {step - found.steps} of the recovery, {damage}"):
                program.come_back(files.after_crash(damage, rng))


CALLS = [
    "open",
    "close",
    "pread",
    "pwritev",
    "size",
    "truncate",
    "sync",
    "sync_directory",
    "list",
    "stat",
    "rename",
    "unlink",
    "start_writeback",
]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_leaves_a_log_that_is_whole_or_offline(call: str, number: int) -> None:
    before = written(1)
    for nth in range(1, 1000):
        files = before.files.copy()
        program = before.fork(files)
        program.certain = before.certain
        program.open()
        program.flush()
        files.fail(call, nth, OSError(number, "as asked"))
        with told(f"{call} {nth}"):
            error: Exception | None = None
            try:
                program.compact(max_keys=1000)
            except (OSError, LogOfflineError) as raised:
                error = raised
                program.count_what_was_cut_short()
            if error is not None and program.log.failure is None:
                program.log.discard_cleaned()
                check_log(program.log, program.truth, now_ms=program.now_ms, clean_since=program.clean_since)
                # A checkpoint that was not written is written over.
                assert set(leftovers(files)) <= {"compaction.tmp"}
                program.append()
                program.compact_everything()
                program.check()
            is_done = not files._faults and error is None
            files._faults.clear()
            files.kill_process()
            back = program.come_back(files)
            back.compact_everything()
            back.check()
        if nth > 1 and not is_done and error is None:
            # There were not so many calls of this name.
            return
    raise AssertionError("so many calls?")


def ready(seed: int = 0) -> Program:
    """A program whose log is due, still open."""
    before = written(seed)
    program = before.fork(before.files)
    program.open()
    program.flush()
    return program


def cleaned(program: Program) -> list[CleanedSegment | CleaningDone]:
    job = plan(program.log, upper_bound=program.log.flushed_offset, now_ms=program.now_ms, max_keys=1000)
    assert job is not None
    return list(clean(program.files, job))


def segments(results: list[CleanedSegment | CleaningDone]) -> list[CleanedSegment]:
    return [result for result in results if isinstance(result, CleanedSegment)]


def test_a_range_that_was_found_before_is_read_to_its_end() -> None:
    program = ready()
    found = program.log.read(0, max_bytes=10_000)
    assert found is not None
    before = contents(program.files, f"{FOLDER}/{TOPIC}-0/{0:020}.log")
    program.compact(max_keys=1000)
    assert len(contents(program.files, f"{FOLDER}/{TOPIC}-0/{0:020}.log")) < len(before)
    with found:
        found.verify()
        assert found.read() == before[: found.length]


def test_a_reader_sees_the_old_segments_until_the_swap_has_ended_and_then_the_new_one() -> None:
    program = ready()
    first = segments(cleaned(program))[0]
    old = list(batches_of(program.log))
    swap = program.log.begin_swap(first)
    assert swap is not None
    assert list(batches_of(program.log)) == old
    swap.perform()
    assert program.log.is_swapping
    assert list(batches_of(program.log)) == old
    assert program.log.end_swap(swap)
    new = list(batches_of(program.log))
    assert new != old
    assert set(new[-5:]) <= set(old)
    program.check()


def test_headers_go_on_while_segments_are_swapped() -> None:
    program = ready()
    expected = [header.next_offset for header, _ in program.truth.batches][-1]
    seen = []
    for number, header in enumerate(program.log.headers(0)):
        if number == 1:
            program.compact(max_keys=1000)
        seen.append(header)
    assert [header.base_offset for header in seen] == sorted({header.base_offset for header in seen})
    assert seen[-1].next_offset == expected


def test_the_scrubber_finds_nothing_wrong_with_what_was_compacted() -> None:
    program = ready()
    scrubber = Scrubber(lambda: [program.log])
    results = cleaned(program)
    for result in segments(results):
        # A slice of the old segment, checked when the file under its name is the new one.
        part = scrubber.next_slice(10_000)
        assert swap_in(program.log, result)
        if part is not None:
            part.check(program.files)
            assert scrubber.checked(part) == []
    rounds = scrubber.rounds
    while scrubber.rounds < rounds + 2:
        part = scrubber.next_slice(100)
        if part is not None:
            part.check(program.files)
            assert scrubber.checked(part) == []


def test_what_was_deleted_meanwhile_is_not_swapped_in() -> None:
    program = ready()
    results = segments(cleaned(program))
    program.log.advance_start(results[0].end_offset)
    assert program.log.begin_swap(results[0]) is None
    assert swap_in(program.log, results[1])
    program.log.discard_cleaned()
    assert not leftovers(program.files)
    program.check()


def test_what_is_deleted_during_a_swap_goes_after_it() -> None:
    program = ready()
    first = segments(cleaned(program))[0]
    swap = program.log.begin_swap(first)
    assert swap is not None
    program.log.advance_start(first.end_offset)
    assert program.log.start_offset == first.end_offset
    swap.perform()
    assert program.log.end_swap(swap)
    assert program.log.segments[0].base_offset == first.end_offset
    program.log.discard_cleaned()
    assert not leftovers(program.files)
    program.check()


@pytest.mark.parametrize("performed", [False, True])
def test_a_truncation_ends_a_swap_and_its_round(performed: bool) -> None:
    program = ready()
    results = cleaned(program)
    swap = program.log.begin_swap(segments(results)[0])
    assert swap is not None
    if performed:
        swap.perform()
    program.log.truncate(program.log.end_offset - 1)
    program.cut_truth()
    assert not program.log.is_swapping
    swap.perform()
    assert not program.log.end_swap(swap)
    assert program.log.begin_swap(segments(results)[1]) is None, "of another history"
    done = results[-1]
    assert isinstance(done, CleaningDone)
    program.log.finish_round(done, program.now_ms)
    assert program.log.compaction.first_dirty_offset == 0
    program.log.discard_cleaned()
    assert not leftovers(program.files)
    check_log(program.log, program.truth, now_ms=program.now_ms, clean_since={})


@pytest.mark.parametrize("performed", [False, True])
def test_a_log_that_is_closed_during_a_swap_opens_with_or_without_it(performed: bool) -> None:
    program = ready()
    swap = program.log.begin_swap(segments(cleaned(program))[0])
    assert swap is not None
    if performed:
        swap.perform()
    log = program.log
    program.directory.close()
    swap.perform()
    assert not log.end_swap(swap)
    assert program.files.open_descriptors == 0
    program.open()
    assert not leftovers(program.files)
    program.check()


def test_a_deleted_partition_takes_its_swap_with_it() -> None:
    program = ready()
    swap = program.log.begin_swap(segments(cleaned(program))[0])
    assert swap is not None
    program.directory.delete(TOPIC, 0)
    swap.perform()
    assert program.files.stat(f"{FOLDER}/{TOPIC}-0") is None


@pytest.mark.parametrize("swaps", [1, 2, 99])
def test_holes_are_known_to_be_right_though_the_recovery_points_are_lost(swaps: int) -> None:
    program = ready()
    for result in segments(cleaned(program))[:swaps]:
        assert swap_in(program.log, result)
    left = list(batches_of(program.log))
    program.files.kill_process()
    program.files.unlink(f"{FOLDER}/recovery-points")
    program.open()
    assert list(batches_of(program.log)) == left
    program.check()


def test_truncation_into_a_hole_leaves_a_log_that_ends_where_its_batches_do() -> None:
    program = ready()
    program.compact(max_keys=1000)
    for offset in range(program.log.end_offset):
        files = program.files.copy()
        other = program.fork(files)
        other.open()
        other.log.truncate(offset)
        assert other.log.end_offset <= offset
        left = list(batches_of(other.log))
        other.files.kill_process()
        other.open()
        assert list(batches_of(other.log)) == left
        assert other.log.compaction.first_dirty_offset <= other.log.end_offset


def test_a_damaged_source_fails_the_round_and_nothing_is_swapped() -> None:
    program = ready()
    old = program.log.segments
    # In the values, where only the checksum notices.
    program.files.flip_bit(f"{FOLDER}/{TOPIC}-0/{0:020}.log", 100, 3)
    with pytest.raises(CorruptLogError, match="damaged"):
        cleaned(program)
    assert not leftovers(program.files)
    assert program.log.segments[: len(old)] == old


def test_a_swap_that_counts_is_finished_and_what_does_not_count_is_removed() -> None:
    files = MemoryFiles()
    files.make_directory("/log")
    for name in (
        f"{0:020}.log",
        f"{5:020}.log",
        f"{5:020}.index",
        f"{9:020}.log",
        f"{9:020}.timeindex",
        f"{12:020}.log",
        f"{5:020}-{12:020}.swap",
        f"{5:020}.cleaned.index",
        f"{12:020}.cleaned",
    ):
        overwrite(files, f"/log/{name}", name.encode())
    names = finish_swaps(files, "/log", files.list("/log"))
    assert names == files.list("/log") == [f"{0:020}.log", f"{5:020}.log", f"{12:020}.log"]
    assert contents(files, f"/log/{5:020}.log") == f"{5:020}-{12:020}.swap".encode()
    assert finish_swaps(files, "/log", names) == names


def test_searches_by_time_pass_over_fillers() -> None:
    program = ready()
    program.compact_everything()
    found = program.log.find_timestamp(START_MS)
    assert found is not None
    assert not is_filler(found)
