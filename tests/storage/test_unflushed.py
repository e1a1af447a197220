"""What a flush takes from a log, and what comes back from one that came to nothing."""

from penstock.storage.descriptors import Descriptors
from penstock.storage.index_cache import IndexCache
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.segment import Segment, SegmentContext
from penstock.storage.unflushed import Dirt


class Bench:
    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.files.make_directory("/log")
        self.descriptors = Descriptors(self.files, limit=10)
        self.context = SegmentContext(self.files, self.descriptors, IndexCache(), 4096)

    def segment(self, base_offset: int) -> Segment:
        segment = Segment(self.context, "/log", base_offset)
        self.files.close(self.files.open(segment.path, write=True, create=True))
        return segment


def test_a_flush_takes_everything_and_what_comes_later_is_left_to_the_next() -> None:
    bench, dirt = Bench(), Dirt()
    first, second = bench.segment(0), bench.segment(10)
    dirt.add_segment(first)
    dirt.add_segment(first)
    dirt.directories.add("/log")
    dirt.files.append("/log/identity")
    dirt.rolled = True
    assert not dirt.is_empty
    work = dirt.begin_flush(bench.descriptors, 7, saves_epochs=True)
    assert dirt.is_empty
    assert not dirt.rolled
    dirt.add_segment(second)
    assert (work.end_offset, work.saves_epochs, work.dirt.segments) == (7, True, [first])
    assert (work.dirt.files, work.dirt.directories, work.dirt.rolled) == (["/log/identity"], {"/log"}, True)
    assert len(work.pins) == 1
    work.release()
    assert dirt.segments == [second]


def test_what_came_to_nothing_is_done_again_before_what_came_later() -> None:
    bench, dirt = Bench(), Dirt()
    first, second, gone = bench.segment(0), bench.segment(10), bench.segment(20)
    for segment in (first, second, gone):
        dirt.add_segment(segment)
    dirt.directories.add("/log")
    dirt.rolled = True
    work = dirt.begin_flush(bench.descriptors, 30, saves_epochs=False)
    dirt.add_segment(second)
    dirt.directories.add("/")
    dirt.take_back(work.dirt, [first, second])
    assert dirt.segments == [first, second]
    assert dirt.directories == {"/log", "/"}
    assert dirt.rolled


def test_a_segment_that_is_gone_need_not_be_synced() -> None:
    bench, dirt = Bench(), Dirt()
    first, second = bench.segment(0), bench.segment(10)
    dirt.add_segment(first)
    dirt.add_segment(second)
    dirt.forget(first)
    assert dirt.segments == [second]


def test_a_flush_remembers_how_often_the_log_had_been_truncated() -> None:
    bench, dirt = Bench(), Dirt()
    dirt.truncations = 2
    work = dirt.begin_flush(bench.descriptors, 0, saves_epochs=False)
    dirt.truncations += 1
    assert (work.dirt.truncations, dirt.truncations) == (2, 3)
