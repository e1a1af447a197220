"""What a flush takes from a log, and what comes back from one that came to nothing."""

from penstock.storage.files.descriptors import Descriptors
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.log.index_cache import IndexCache
from penstock.storage.log.segment import Segment, SegmentContext
from penstock.storage.log.unflushed import Unflushed


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
    bench, unflushed = Bench(), Unflushed()
    first, second = bench.segment(0), bench.segment(10)
    unflushed.add_segment(first)
    unflushed.add_segment(first)
    unflushed.directories.add("/log")
    unflushed.files.append("/log/identity")
    unflushed.rolled = True
    assert not unflushed.is_empty
    work = unflushed.begin_flush(7, saves_epochs=True)
    assert unflushed.is_empty
    assert not unflushed.rolled
    unflushed.add_segment(second)
    assert (work.end_offset, work.saves_epochs, work.pins) == (7, True, [first])
    assert (work.files, work.directories, work.rolled) == (
        ["/log/identity"],
        {"/log"},
        True,
    )
    assert (first.fd >= 0, first.writers) == (True, 1)
    work.release()
    assert first.writers == 0
    assert unflushed.segments == [second]


def test_what_came_to_nothing_is_done_again_before_what_came_later() -> None:
    bench, unflushed = Bench(), Unflushed()
    first, second, gone = bench.segment(0), bench.segment(10), bench.segment(20)
    for segment in (first, second, gone):
        unflushed.add_segment(segment)
    unflushed.directories.add("/log")
    unflushed.rolled = True
    work = unflushed.begin_flush(30, saves_epochs=False)
    unflushed.add_segment(second)
    unflushed.directories.add("/")
    unflushed.take_back(work, [first, second])
    assert unflushed.segments == [first, second]
    assert unflushed.directories == {"/log", "/"}
    assert unflushed.rolled


def test_a_segment_that_is_gone_need_not_be_synced() -> None:
    bench, unflushed = Bench(), Unflushed()
    first, second = bench.segment(0), bench.segment(10)
    unflushed.add_segment(first)
    unflushed.add_segment(second)
    unflushed.forget(first)
    assert unflushed.segments == [second]


def test_a_flush_remembers_how_often_the_log_had_been_truncated() -> None:
    unflushed = Unflushed()
    unflushed.truncations = 2
    work = unflushed.begin_flush(0, saves_epochs=False)
    unflushed.truncations += 1
    assert (work.truncations, unflushed.truncations) == (2, 3)
