"""Writing a segment that takes the place of others."""

import pytest

from penstock.protocol.batch import read_header
from penstock.storage.compaction import segment_writer
from penstock.storage.compaction.segment_writer import SegmentWriter
from penstock.storage.files.memory import Damage, MemoryFiles
from penstock.storage.log.index import SegmentIndex
from tests.storage.sources import LOG, batch, folder, put
from tests.storage.store import contents

PATH = f"{LOG}/{0:020}.cleaned"
BATCHES = [batch(number, (b"key", b"x" * 20)) for number in range(8)]


def new_writer(files: MemoryFiles) -> SegmentWriter:
    return SegmentWriter(folder(files), 0, created_ms=77, index_interval_bytes=200)


def note(writer: SegmentWriter, *batches: bytes) -> None:
    for data in batches:
        writer.note(read_header(data), len(data))


def test_nothing_is_written_until_there_is_something_new() -> None:
    files = MemoryFiles()
    put(files, BATCHES)
    writer, steps = new_writer(files), files.steps
    note(writer, *BATCHES)
    assert (writer.size, writer.next_offset, writer.records) == (sum(map(len, BATCHES)), 8, 8)
    assert not writer.has_begun
    assert files.steps == steps


@pytest.mark.parametrize("at_once", [100, 10**6])
def test_what_was_noted_is_copied_from_the_source_once_something_differs(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_writer, "AT_ONCE", at_once)
    files = MemoryFiles()
    (source,) = put(files, BATCHES)
    writer = new_writer(files)
    note(writer, *BATCHES[:3])
    with folder(files).open(source) as opened:
        writer.begin(opened)
    for data in BATCHES[5:]:
        note(writer, data)
        writer.add(data)
    writer.flush()
    writer.finish()
    assert contents(files, PATH) == b"".join(BATCHES[:3] + BATCHES[5:])
    assert files.open_descriptors == 0


def test_its_index_leads_to_its_batches_and_to_its_end() -> None:
    files = MemoryFiles()
    put(files, BATCHES)
    writer = new_writer(files)
    writer.begin()
    for data in BATCHES[2:]:
        note(writer, data)
        writer.add(data)
    writer.finish()
    index = SegmentIndex.load(files, PATH, 0)
    assert index is not None
    assert index.created_ms == 77
    assert index.max_timestamp == 1000
    assert index.ends_at(8, writer.size)
    size = len(BATCHES[0])
    assert [index.floor(offset) for offset in (1, 2, 3, 7)] == [(0, 0), (2, 0), (2, 0), (5, 3 * size)]


def test_the_file_is_durable_when_it_is_finished_and_its_name_need_not_be() -> None:
    files = MemoryFiles()
    put(files, BATCHES)
    writer = new_writer(files)
    writer.begin()
    note(writer, BATCHES[0])
    writer.add(BATCHES[0])
    writer.finish()
    files.sync_directory("/")
    files.sync_directory(LOG)
    left = files.after_crash(Damage.LOSE_UNSYNCED, None)  # type: ignore[arg-type]
    assert contents(left, PATH) == BATCHES[0]


def test_an_index_that_cannot_be_written_is_done_without() -> None:
    files = MemoryFiles()
    put(files, BATCHES)
    writer = new_writer(files)
    writer.begin()
    note(writer, BATCHES[0])
    writer.add(BATCHES[0])
    files.fail("open", 1, OSError(28, "full"))
    writer.finish()
    assert contents(files, PATH) == BATCHES[0]


def test_what_is_removed_leaves_nothing() -> None:
    files = MemoryFiles()
    put(files, BATCHES)
    before = files.list(LOG)
    writer = new_writer(files)
    writer.begin()
    note(writer, BATCHES[0])
    writer.add(BATCHES[0])
    writer.finish()
    writer.remove()
    assert files.list(LOG) == before
    assert files.open_descriptors == 0
