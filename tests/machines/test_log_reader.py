"""The metadata log is read in order; an entry that does not belong there is refused."""

import pytest

from penstock.machines.cluster_records import (
    DamagedRecordsError,
    ProducerIdsAllocated,
    Record,
    UnknownRecordError,
    encode,
)
from penstock.machines.log_reader import LogReader
from tests.machines.test_cluster_records import entry_with
from tests.machines.test_json_records import OLD_ENTRY

RECORDS: list[Record] = [ProducerIdsAllocated(5)]


def entry(index: int, epoch: int = 1) -> bytes:
    return encode(RECORDS, controller_epoch=epoch, index=index)


def reader_at(index: int, epoch: int) -> LogReader:
    reader = LogReader()
    assert reader.read_snapshot(index, entry(index, epoch)) == RECORDS
    return reader


def test_entries_are_read_one_after_the_other() -> None:
    reader = LogReader()

    for index, epoch in [(1, 1), (2, 1), (3, 4)]:
        assert reader.read(index, entry(index, epoch)) == RECORDS

    assert (reader.index, reader.controller_epoch) == (3, 4)


def test_reading_goes_on_after_a_snapshot() -> None:
    reader = reader_at(7, epoch=3)

    assert reader.read(8, entry(8, 3)) == RECORDS


@pytest.mark.parametrize(("at", "written_as"), [(9, 9), (7, 7), (8, 9), (8, 7), (9, 8)])
def test_an_entry_at_another_index_is_refused(at: int, written_as: int) -> None:
    reader = reader_at(7, epoch=3)

    with pytest.raises(DamagedRecordsError, match=f"entry 8 .* has entry {at}, .* as entry {written_as}"):
        reader.read(at, entry(written_as, 3))
    assert (reader.index, reader.controller_epoch) == (7, 3)


def test_a_snapshot_of_another_index_is_refused() -> None:
    with pytest.raises(DamagedRecordsError, match="at index 8 is one of index 7"):
        LogReader().read_snapshot(8, entry(7))


def test_an_entry_of_an_older_controller_after_a_newer_one_is_refused() -> None:
    reader = reader_at(7, epoch=3)

    with pytest.raises(DamagedRecordsError, match="controller epoch 2, after entries of controller epoch 3"):
        reader.read(8, entry(8, 2))
    assert reader.read(8, entry(8, 3)) == RECORDS


def test_a_reader_that_reloads_keeps_the_newest_controller_epoch() -> None:
    reader = reader_at(7, epoch=3)
    reader.read_snapshot(20, entry(20, 2))

    assert (reader.index, reader.controller_epoch) == (20, 3)


def test_records_from_the_future_come_through() -> None:
    with pytest.raises(UnknownRecordError, match="quota"):
        reader_at(6, epoch=3).read(7, entry_with("quota:1", "u"))


def test_entries_of_the_old_form_are_followed_by_new_ones() -> None:
    reader = LogReader()
    reader.read(1, OLD_ENTRY)
    reader.read(2, OLD_ENTRY)

    assert reader.read(3, entry(3)) == RECORDS


def test_a_snapshot_of_the_old_form_is_read() -> None:
    reader = LogReader()
    reader.read_snapshot(12, OLD_ENTRY)

    assert reader.read(13, entry(13)) == RECORDS
