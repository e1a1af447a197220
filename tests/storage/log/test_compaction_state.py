"""What is known to be clean, and since when."""

import pytest

from penstock.storage.errors import UnsupportedFormatError
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.log.compaction_state import FILE_NAME, MAX_MARKS, CompactionState, Mark
from tests.storage.store import contents, make_newer, overwrite

PATH = f"/log/{FILE_NAME}"


def new_state(files: MemoryFiles | None = None) -> CompactionState:
    files = files or MemoryFiles()
    if files.stat("/log") is None:
        files.make_directory("/log")
    return CompactionState(files, "/log", exists=files.stat(PATH) is not None)


def finish(state: CompactionState, cleaned_to: int, now_ms: int, first_tombstone: int = -1) -> None:
    state.finish_round(cleaned_to, first_tombstone, now_ms=now_ms, longest_wait_ms=1000)


def test_what_is_saved_is_there_again() -> None:
    files = MemoryFiles()
    state = new_state(files)
    assert (state.first_dirty_offset, state.first_tombstone, state.marks) == (0, -1, ())
    finish(state, 10, 5000, first_tombstone=3)
    finish(state, 20, 5500)
    state.save()
    again = new_state(files)
    assert again.first_dirty_offset == 20
    assert again.marks == (Mark(10, 5000), Mark(20, 5500))
    assert again.first_tombstone == -1


def test_each_offset_is_clean_since_the_first_round_that_made_it_so() -> None:
    state = new_state()
    finish(state, 10, 5000)
    finish(state, 20, 5500)
    finish(state, 20, 5900)
    assert state.clean_since(4999) == 0
    assert state.clean_since(5000) == 10
    assert state.clean_since(5499) == 10
    assert state.clean_since(9999) == 20


def test_a_clock_that_goes_back_makes_nothing_clean_for_longer() -> None:
    state = new_state()
    finish(state, 10, 5000)
    finish(state, 20, 1000)
    assert state.clean_since(4999) == 0
    assert state.clean_since(5000) == 20


def test_marks_for_which_nobody_waits_any_more_are_one() -> None:
    state = new_state()
    for number in range(1, 6):
        finish(state, 10 * number, 1000 * number)
    assert state.marks == (Mark(40, 4000), Mark(50, 5000))


def test_there_are_never_many_marks_and_one_that_goes_makes_nothing_older() -> None:
    state = new_state()
    truth: list[Mark] = []
    for number in range(1, 200):
        state.finish_round(number, -1, now_ms=number * number, longest_wait_ms=10**9)
        truth.append(Mark(number, number * number))
        assert len(state.marks) <= MAX_MARKS
        for time_ms in range(0, number * number, 97):
            exact = max((mark.offset for mark in truth if mark.cleaned_ms <= time_ms), default=0)
            assert state.clean_since(time_ms) <= exact
    assert state.marks[-1] == truth[-1]


def test_what_is_written_anew_behind_a_truncation_is_not_clean() -> None:
    state = new_state()
    finish(state, 10, 5000)
    finish(state, 20, 5500)
    finish(state, 30, 5700)
    assert not state.truncate(30)
    assert state.truncate(15)
    assert state.first_dirty_offset == 15
    assert state.marks == (Mark(10, 5000), Mark(15, 5500))
    assert state.truncations == 2
    assert state.truncate(10)
    assert [*state.marks] == [Mark(10, 5000)]
    assert state.truncate(0)
    assert state.clean_since(9999) == 0


def test_where_records_may_be_missing_is_known_before_they_go() -> None:
    files = MemoryFiles()
    state = new_state(files)
    state.expect_holes(20)
    state.expect_holes(10)
    state.save()
    assert new_state(files).holes_end == 20
    assert new_state(files).first_dirty_offset == 0
    assert not state.truncate(20)
    assert state.truncate(15)
    assert state.holes_end == 15


def test_a_state_that_goes_beyond_the_log_is_forgotten() -> None:
    state = new_state()
    finish(state, 10, 5000, first_tombstone=1)
    state.expect_end(10)
    assert state.first_dirty_offset == 10
    state.expect_end(9)
    assert (state.first_dirty_offset, state.first_tombstone, state.marks) == (0, -1, ())


def test_damage_costs_a_round_and_no_more() -> None:
    files = MemoryFiles()
    state = new_state(files)
    finish(state, 10, 5000)
    state.save()
    overwrite(files, PATH, contents(files, PATH)[:-1])
    assert new_state(files).first_dirty_offset == 0


def test_a_newer_format_is_refused() -> None:
    files = MemoryFiles()
    state = new_state(files)
    finish(state, 10, 5000)
    state.save()
    make_newer(files, PATH)
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        new_state(files)


def test_nothing_is_written_where_nothing_has_changed_or_the_log_is_closed() -> None:
    files = MemoryFiles()
    state = new_state(files)
    state.save()
    assert files.stat(PATH) is None
    finish(state, 10, 5000)
    state.save()
    steps = files.steps
    state.save()
    assert files.steps == steps
    finish(state, 20, 6000)
    state.close()
    state.save()
    assert files.steps == steps
