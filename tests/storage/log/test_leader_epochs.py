"""Leader epochs: which one began where, and what becomes of them when a log is cut."""

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from penstock.storage.errors import CorruptCheckpointError, UnsupportedFormatError
from penstock.storage.files.checkpoint import write_checkpoint
from penstock.storage.files.memory import Damage, MemoryFiles
from penstock.storage.log.leader_epochs import FILE_NAME, LeaderEpochs

PATH = f"/folder/{FILE_NAME}"


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("/folder")
    files.sync_directory("/")
    return files


def epochs_of(files: MemoryFiles, *entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(files, PATH)
    for epoch, offset in entries:
        epochs.begin(epoch, offset)
    return epochs


def test_a_new_log_has_no_epoch(files: MemoryFiles) -> None:
    epochs = LeaderEpochs(files, PATH)
    assert (epochs.entries, epochs.latest, epochs.at(0), epochs.end_offset(5, 0)) == ((), -1, None, (-1, -1))


def test_an_epoch_begins_once(files: MemoryFiles) -> None:
    epochs = epochs_of(files, (1, 0), (1, 10), (3, 20), (2, 30), (3, 30))
    assert list(epochs.entries) == [(1, 0), (3, 20)]
    assert epochs.latest == 3


def test_an_epoch_without_a_record_gives_way_to_its_successor(files: MemoryFiles) -> None:
    assert epochs_of(files, (1, 0), (2, 10), (3, 10), (5, 10)).entries == ((1, 0), (5, 10))


def test_an_epoch_ends_where_the_next_one_begins(files: MemoryFiles) -> None:
    epochs = epochs_of(files, (2, 5), (4, 10), (7, 30))
    assert epochs.end_offset(2, 99) == (2, 10)
    assert epochs.end_offset(4, 99) == (4, 30)
    assert epochs.end_offset(7, 99) == (7, 99)


def test_for_an_epoch_that_is_missing_the_one_before_it_answers(files: MemoryFiles) -> None:
    epochs = epochs_of(files, (2, 5), (4, 10), (7, 30))
    assert epochs.end_offset(1, 99) == (-1, -1)
    assert epochs.end_offset(3, 99) == (2, 10)
    assert epochs.end_offset(6, 99) == (4, 30)
    assert epochs.end_offset(100, 99) == (7, 99)


def test_an_offset_was_written_in_the_epoch_that_began_last_before_it(files: MemoryFiles) -> None:
    epochs = epochs_of(files, (2, 5), (4, 10))
    assert [epochs.at(offset) for offset in (4, 5, 9, 10, 1000)] == [None, 2, 2, 4, 4]


def test_truncation_forgets_epochs_that_began_at_the_new_end_or_behind_it(files: MemoryFiles) -> None:
    epochs = epochs_of(files, (1, 0), (2, 10), (3, 20))
    epochs.truncate(20)
    assert list(epochs.entries) == [(1, 0), (2, 10)]
    epochs.truncate(11)
    assert list(epochs.entries) == [(1, 0), (2, 10)]
    epochs.truncate(0)
    assert list(epochs.entries) == []


def test_after_a_crash_an_epoch_may_begin_at_the_end_but_not_beyond(files: MemoryFiles) -> None:
    epochs = epochs_of(files, (1, 0), (2, 10), (3, 20))
    epochs.recover([], scanned_from=20, end_offset=20)
    assert list(epochs.entries) == [(1, 0), (2, 10), (3, 20)]
    epochs.recover([], scanned_from=19, end_offset=19)
    assert list(epochs.entries) == [(1, 0), (2, 10)]


def test_after_a_crash_what_the_batches_tell_counts_more_than_what_was_saved(files: MemoryFiles) -> None:
    epochs = epochs_of(files, (1, 0), (2, 10), (3, 20))
    epochs.recover([(1, 5), (3, 8)], scanned_from=5, end_offset=30)
    assert list(epochs.entries) == [(1, 0), (3, 8)]


def test_the_epoch_in_force_moves_up_with_the_start_of_the_log(files: MemoryFiles) -> None:
    epochs = epochs_of(files, (1, 0), (2, 10), (3, 20))
    epochs.advance_start(15)
    assert list(epochs.entries) == [(2, 15), (3, 20)]
    epochs.advance_start(20)
    assert list(epochs.entries) == [(3, 20)]
    epochs.advance_start(1000)
    assert list(epochs.entries) == [(3, 1000)]


def test_a_start_before_every_epoch_changes_nothing(files: MemoryFiles) -> None:
    epochs = epochs_of(files, (2, 5))
    epochs.advance_start(3)
    assert list(epochs.entries) == [(2, 5)]


@pytest.mark.parametrize("damage", Damage)
def test_saved_epochs_survive_a_crash_and_others_do_not(files: MemoryFiles, damage: Damage) -> None:
    epochs = epochs_of(files, (1, 0), (2, 10))
    assert not epochs.is_saved
    epochs.save()
    assert epochs.is_saved
    epochs.begin(3, 20)
    assert not epochs.is_saved
    found = LeaderEpochs(files.after_crash(damage, random.Random(1)), PATH)
    assert found.entries == ((1, 0), (2, 10))
    assert found.is_saved


def test_epochs_are_saved_up_to_where_the_first_begins_that_is_not(files: MemoryFiles) -> None:
    epochs = epochs_of(files, (1, 0), (2, 10))
    assert epochs.is_saved_up_to(0)
    assert not epochs.is_saved_up_to(1)
    epochs.save()
    epochs.begin(3, 20)
    assert epochs.is_saved_up_to(20)
    assert not epochs.is_saved_up_to(21)
    epochs.save()
    assert epochs.is_saved_up_to(1_000)


def test_saving_what_is_saved_costs_no_write(files: MemoryFiles) -> None:
    epochs = epochs_of(files, (1, 0))
    epochs.save()
    steps = files.steps
    epochs.save()
    LeaderEpochs(files, PATH).save()
    assert files.steps == steps


def test_the_first_entries_of_a_new_log_are_written_without_a_sync_of_their_own(files: MemoryFiles) -> None:
    epochs = epochs_of(files)
    assert not epochs.write_first()
    assert files.list("/folder") == []
    epochs.begin(1, 0)
    steps = files.steps
    assert epochs.write_first()
    assert epochs.is_saved
    assert files.steps - steps <= 3, "it is made, cut and written"
    assert LeaderEpochs(files, PATH).entries == ((1, 0),)


def test_first_entries_that_a_crash_has_torn_count_as_none_unless_something_was_flushed(files: MemoryFiles) -> None:
    epochs_of(files, (1, 0)).write_first()
    files.flip_bit(PATH, 20, 3)
    with pytest.raises(CorruptCheckpointError, match=PATH):
        LeaderEpochs(files, PATH)
    epochs = LeaderEpochs(files, PATH, was_flushed=False)
    assert epochs.entries == ()
    epochs.begin(2, 0)
    epochs.save()
    assert LeaderEpochs(files, PATH).entries == ((2, 0),)


def test_damage_is_reported_and_a_newer_format_refused(files: MemoryFiles) -> None:
    epochs_of(files, (1, 0)).save()
    files.flip_bit(PATH, 20, 3)
    with pytest.raises(CorruptCheckpointError, match=PATH):
        LeaderEpochs(files, PATH)
    write_checkpoint(files, PATH, b"EPOC", 2, b"")
    with pytest.raises(UnsupportedFormatError, match=f"{PATH} has format 2.*upgrade"):
        LeaderEpochs(files, PATH)


def test_an_election_and_a_flush_may_save_at_once(files: MemoryFiles) -> None:
    epochs = LeaderEpochs(files, PATH)
    together = Barrier(2)

    def elect_and_save(numbers: range) -> None:
        together.wait()
        for number in numbers:
            epochs.begin(number, number)
            epochs.save()

    with ThreadPoolExecutor(2) as threads:
        done = [threads.submit(elect_and_save, range(first, 400, 2)) for first in (0, 1)]
    assert [future.exception() for future in done] == [None, None]
    assert epochs.is_saved
    assert LeaderEpochs(files, PATH).entries == epochs.entries
