"""A round away from the broker: how far it goes, and when it stops."""

import errno
import os

import pytest

from penstock.protocol.batch import stamp_crc
from penstock.protocol.control import ControlType, build_end_marker
from penstock.storage.compaction.clean import CleanedSegment, CleaningDone, SourceChangedError, clean
from penstock.storage.files.memory import MemoryFiles
from tests.storage.sources import LOG, batch, job, put
from tests.storage.store import contents


def cleaned_to(results: list[CleanedSegment | CleaningDone]) -> int:
    assert isinstance(results[-1], CleaningDone)
    return results[-1].cleaned_to


def leftovers(files: MemoryFiles) -> list[str]:
    return [name for name in files.list(LOG) if "cleaned" in name]


def test_a_round_ends_where_its_memory_does_but_never_where_it_began() -> None:
    files = MemoryFiles()
    pairs = [batch(number, (b"%d" % number, b"")) for number in range(6)]
    first, second = put(files, pairs[:3], pairs[3:])
    for max_keys, end in ((1, 1), (2, 2), (4, 4), (6, 6), (100, 6)):
        assert cleaned_to(list(clean(files, job([first], [second], max_keys=max_keys)))) == end
    assert cleaned_to(list(clean(files, job([first], [second], dirty_from=4, max_keys=1)))) == 5


def test_a_transaction_that_has_not_ended_is_left_alone_and_all_behind_it() -> None:
    files = MemoryFiles()
    mine = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    first = [batch(0, (b"a", b"1")), batch(1, (b"a", b"2"))]
    second = [batch(2, (b"a", b"3")), batch(3, (b"b", b"1"), **mine)]
    sources = put(files, first, second, [batch(4, (b"a", b"4"))])
    results = list(clean(files, job(*[[source] for source in sources])))
    assert cleaned_to(results) == 2
    assert [item.base_offset for item in results if isinstance(item, CleanedSegment)] == [0]
    end = {"producer_id": 7, "producer_epoch": 0, "coordinator_epoch": 0, "timestamp": 0}
    aborted = build_end_marker(ControlType.ABORT, base_offset=4, **end)
    sources = put(files, first, second, [aborted, batch(5, (b"a", b"4"))])
    results = list(clean(files, job(*[[source] for source in sources])))
    assert cleaned_to(results) == 6
    assert b"b" not in contents(files, f"{LOG}/{2:020}.cleaned")[61:], "what was aborted is gone"


def test_a_segment_that_is_clean_at_its_beginning_waits_for_a_transaction_in_it() -> None:
    files = MemoryFiles()
    mine = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    sources = put(files, [batch(0, (b"a", b"1")), batch(1, (b"a", b"2")), batch(2, (b"b", b"1"), **mine)])
    (done,) = clean(files, job(sources, dirty_from=2))
    assert isinstance(done, CleaningDone)
    assert done.cleaned_to == 2


def test_it_stops_when_asked_to_and_leaves_nothing() -> None:
    for polls in range(1, 9):
        files, asked = MemoryFiles(), 0

        def should_stop(limit: int = polls) -> bool:
            nonlocal asked
            asked += 1
            return asked > limit

        sources = put(files, [batch(0, (b"a", b"1")), batch(1, (b"b", b"1"))], [batch(2, (b"a", b"2"))])
        results = list(clean(files, job([sources[0]], [sources[1]]), should_stop=should_stop))
        assert not any(isinstance(item, CleaningDone) for item in results) or asked <= polls
        if not results:
            assert leftovers(files) == []
        assert files.open_descriptors == 0


def test_a_source_that_is_gone_ends_the_round() -> None:
    files = MemoryFiles()
    sources = put(files, [batch(0, (b"a", b"1"))], [batch(1, (b"a", b"2"))])
    files.unlink(f"{LOG}/{1:020}.log")
    with pytest.raises(SourceChangedError):
        list(clean(files, job(sources)))


def test_a_disk_that_is_full_ends_the_round_and_leaves_nothing() -> None:
    files = MemoryFiles()
    sources = put(files, [batch(0, (b"a", b"1")), batch(1, (b"b", b"1" * 500))], [batch(2, (b"a", b"2"))])
    files.capacity = sum(source.size for source in sources) + 100
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        list(clean(files, job([sources[0]], [sources[1]])))
    assert leftovers(files) == []
    assert files.open_descriptors == 0


def test_what_nobody_can_read_stays_and_is_no_obstacle() -> None:
    files = MemoryFiles()
    broken = bytearray(batch(1, (b"a", b"1"), (b"a", b"2")))
    broken[57:61] = (1).to_bytes(4, "big")
    stamp_crc(broken)
    sources = put(files, [batch(0, (b"a", b"1")), broken], [batch(3, (b"a", b"3"))])
    results = list(clean(files, job([sources[0]], [sources[1]])))
    assert cleaned_to(results) == 4
    assert contents(files, f"{LOG}/{0:020}.cleaned") == bytes(broken)
