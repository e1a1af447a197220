"""Some segments become one."""

from collections.abc import Sequence

import pytest

from penstock.protocol.batch import read_header, split
from penstock.storage.compaction.clean import CleanedSegment, CleaningDone, clean
from penstock.storage.compaction.rewriting import build_filler, is_filler
from penstock.storage.errors import CorruptLogError
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.log.index import read_created_ms
from tests.storage.sources import LOG, batch, job, put
from tests.storage.store import contents


def run(
    files: MemoryFiles, *segments: Sequence[bytes | bytearray], dirty_from: int = 0, together: bool = False
) -> tuple[list[CleanedSegment], CleaningDone]:
    sources = put(files, *segments)
    groups = [sources] if together else [[source] for source in sources]
    *cleaned, done = clean(files, job(*groups, dirty_from=dirty_from))
    assert isinstance(done, CleaningDone)
    return [item for item in cleaned if isinstance(item, CleanedSegment)], done


def left(files: MemoryFiles, base: int = 0) -> list[tuple[int, int, bool]]:
    """Base offset and end of what is left in a new segment, and whether it is a filler."""
    headers = [header for header, _ in split(contents(files, f"{LOG}/{base:020}.cleaned"))]
    return [(header.base_offset, header.next_offset, is_filler(header)) for header in headers]


def test_a_segment_ends_with_a_filler_where_its_last_batches_are_gone() -> None:
    files = MemoryFiles()
    first = [batch(0, (b"a", b"1")), batch(1, (b"b", b"1"), leader_epoch=2), batch(2, (b"b", b"2"), leader_epoch=5)]
    (cleaned,), done = run(files, first, [batch(3, (b"b", b"3"))])
    assert (cleaned.base_offset, cleaned.end_offset) == (0, 3)
    assert left(files) == [(0, 1, False), (1, 3, True)]
    data = contents(files, f"{LOG}/{0:020}.cleaned")
    assert read_header(data, len(first[0])).leader_epoch == 5, "that of the last offset that it covers"
    assert (done.records_read, done.records_kept, done.bytes_written) == (4, 2, cleaned.size)


def test_a_segment_of_which_nothing_stays_is_a_filler() -> None:
    files = MemoryFiles()
    run(files, [batch(0, (b"a", b"1")), batch(1, (b"a", b"2"))], [batch(2, (b"a", b"3"))])
    assert left(files) == [(0, 2, True)]


def test_a_filler_that_is_still_right_is_no_reason_to_write_a_segment_anew() -> None:
    files = MemoryFiles()
    cleaned, _ = run(files, [batch(0, (b"a", b"1")), build_filler(1, 9, 0)], [batch(9, (b"b", b"1"))], dirty_from=9)
    assert cleaned == []
    assert [name for name in files.list(LOG) if "cleaned" in name] == []


def test_fillers_of_former_rounds_become_one_or_none() -> None:
    files = MemoryFiles()
    run(
        files,
        [batch(0, (b"a", b"1")), build_filler(1, 9, 0)],
        [build_filler(9, 20, 0)],
        [batch(20, (b"b", b"1")), build_filler(21, 30, 0)],
        [build_filler(30, 40, 0)],
        together=True,
        dirty_from=40,
    )
    assert left(files) == [(0, 1, False), (20, 21, False), (21, 40, True)]


def test_batches_that_stay_are_copied_byte_for_byte() -> None:
    files = MemoryFiles()
    stays = [batch(0, (b"a", b"1")), batch(1, (b"b", b"1"), (b"c", b"1")), batch(5, (b"e", b"1"))]
    run(files, [*stays[:2], batch(3, (b"d", b"1")), batch(4, (b"d", b"2")), stays[2]], [batch(6, (b"d", b"3"))])
    assert contents(files, f"{LOG}/{0:020}.cleaned") == b"".join(stays)


def test_a_new_segment_is_as_old_as_its_first_source() -> None:
    files = MemoryFiles(now_ms=lambda: 1234)
    run(files, [batch(0, (b"a", b"1"))], [batch(1, (b"a", b"2"))])
    assert read_created_ms(files, f"{LOG}/{0:020}.cleaned") == 1234


def test_damage_leaves_nothing_behind() -> None:
    files = MemoryFiles()
    sources = put(files, [batch(0, (b"a", b"1")), batch(1, (b"b", b"1"))], [batch(2, (b"a", b"2"))])
    files.flip_bit(f"{LOG}/{0:020}.log", sources[0].size - 2, 0)
    # Clean: read for the first time when it is judged.
    with pytest.raises(CorruptLogError):
        list(clean(files, job([sources[0]], [sources[1]], dirty_from=2)))
    assert [name for name in files.list(LOG) if "cleaned" in name] == []
    assert files.open_descriptors == 0
