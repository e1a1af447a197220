"""Who wrote last, and how transactions ended."""

from collections.abc import Sequence

import pytest

from penstock.protocol.batch import read_header
from penstock.protocol.control import ControlType, build_end_marker
from penstock.storage.compaction.rewriting import build_filler, build_producer_filler
from penstock.storage.compaction.survey import Survey, survey
from penstock.storage.errors import CorruptLogError
from penstock.storage.files.memory import MemoryFiles
from tests.storage.sources import batch, folder, put


def of(producer: int, offset: int, sequence: int, *, transactional: bool = False, epoch: int = 0) -> bytes:
    return batch(
        offset,
        (b"k", b"v"),
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=transactional,
        leader_epoch=epoch,
    )


def marker(producer: int, offset: int, type: ControlType) -> bytearray:
    return build_end_marker(
        type, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=offset
    )


def look(*segments: Sequence[bytes | bytearray]) -> Survey:
    files = MemoryFiles()
    return survey(folder(files), put(files, *segments))


def test_the_last_batch_of_each_producer_is_known_across_segments() -> None:
    found = look([of(1, 0, 0), of(2, 1, 0), batch(2, (b"k", b""))], [of(1, 3, 1), batch(4, (b"k", b""))])
    assert found.last_batches == {1: 3, 2: 1}
    assert list(found.special) == [1, 3]
    assert found.has_special(2, 4)
    assert not found.has_special(2, 3)
    assert not found.has_special(4, 9)


def test_what_was_aborted_lies_between_the_first_batch_and_the_marker() -> None:
    batches: list[bytes | bytearray] = [
        of(1, 0, 0, transactional=True),
        marker(1, 1, ControlType.COMMIT),
        of(1, 2, 1, transactional=True),
        of(2, 3, 0, transactional=True),
        of(1, 4, 2, transactional=True),
        marker(1, 5, ControlType.ABORT),
        of(1, 6, 3, transactional=True),
        marker(1, 7, ControlType.COMMIT),
    ]
    found = look(batches)
    aborted = [read_header(data).base_offset for data in batches if found.is_aborted(read_header(data))]
    assert aborted == [2, 4, 5]
    assert found.undecided == {2: 3}
    assert found.aborted == {1: [(5, 2)]}


def test_fillers_end_and_begin_no_transaction() -> None:
    data = of(1, 1, 5, transactional=True)
    found = look([of(1, 0, 0, transactional=True), build_producer_filler(read_header(data)), build_filler(2, 9, 0)])
    assert found.undecided == {1: 0}
    assert found.last_batches == {1: 1}


def test_each_segment_is_known_by_its_records_and_its_last_epoch() -> None:
    found = look([of(1, 0, 0, epoch=3), of(1, 1, 1, epoch=4)], [of(1, 2, 2, epoch=4), build_filler(3, 9, 7)])
    assert [tuple(facts) for facts in found.sources.values()] == [(2, 4), (1, 7)]


def test_a_marker_that_cannot_be_read_is_corruption() -> None:
    damaged = marker(1, 1, ControlType.ABORT)
    damaged[-9] = 77
    with pytest.raises(CorruptLogError, match="transaction"):
        look([of(1, 0, 0, transactional=True), damaged])
