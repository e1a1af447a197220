"""A segment through its log: what one write does, when files are made, and what a damaged index may not change."""

import errno

import pytest

from penstock.protocol.batch import split
from penstock.storage.errors import LogOfflineError
from penstock.storage.log import LogConfig
from tests.storage.store import NOW_MS, Store, contents, new_batch, overwrite, read_one

SMALL = LogConfig(segment_bytes=300, index_interval_bytes=1)


def no_space() -> OSError:
    return OSError(errno.ENOSPC, "no space left")


def test_a_log_that_was_never_written_to_has_no_file_and_no_folder() -> None:
    store = Store()
    assert store.files.stat(store.path) is None
    store.reopen()
    assert store.files.stat(store.path) is None


def test_a_short_write_is_completed() -> None:
    store = Store()
    store.memory.short_write(1, 20)
    store.append(b"a", b"b")
    assert store.values() == [b"a", b"b"]


def test_an_append_that_fails_in_the_middle_leaves_the_log_as_it_was_and_the_next_one_works() -> None:
    store = Store()
    store.append(b"a")
    store.memory.fail("pwritev", 1, no_space(), after_bytes=30)
    with pytest.raises(OSError, match="no space"):
        store.append(b"b")
    assert store.log.end_offset == 1
    assert store.append(b"c") == 1
    assert store.values() == [b"a", b"c"]


def test_several_batches_are_appended_all_or_not_at_all() -> None:
    store = Store()
    batches = [pair for value in (b"a", b"b", b"c") for pair in split(new_batch(value))]
    store.memory.fail("pwritev", 1, no_space(), after_bytes=100)
    with pytest.raises(OSError, match="no space"):
        store.log.append(batches, leader_epoch=0, now_ms=NOW_MS)
    assert (store.log.end_offset, store.log.size) == (0, 0)


def test_a_log_that_cannot_cut_back_a_failed_write_goes_offline_and_says_so() -> None:
    store = Store()
    store.append(b"a")
    store.memory.fail("pwritev", 1, no_space(), after_bytes=30)
    store.memory.fail("truncate", 1, OSError(errno.EIO, "broken"))
    with pytest.raises(LogOfflineError, match=r"offline after.*could not be cut back.*restart the broker"):
        store.append(b"b")
    with pytest.raises(LogOfflineError):
        store.append(b"c")
    assert store.values() == [b"a"]


def test_a_segment_is_closed_when_the_next_batch_does_not_fit() -> None:
    store = Store(config=SMALL)
    for number in range(10):
        store.append(b"%d" % number)
    assert all(segment.size <= SMALL.segment_bytes for segment in store.log.segments)
    assert len(store.names(".log")) == len(store.log.segments) > 1


def test_a_segment_is_closed_when_it_is_old_by_the_clock_alone() -> None:
    store = Store(config=LogConfig(segment_ms=1000))
    store.append(b"a")
    assert not store.log.roll_if_due(NOW_MS + 999)
    assert store.log.roll_if_due(NOW_MS + 1000)
    assert not store.log.roll_if_due(NOW_MS + 5000), "an empty segment does not age"
    store.append(b"b")
    assert [segment.base_offset for segment in store.log.segments] == [0, 1]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "torn", "flipped"])
def test_an_index_that_is_damaged_is_made_anew_and_answers_stay_right(suffix: str, damage: str) -> None:
    store = Store(config=SMALL)
    for number in range(12):
        store.append(b"%d" % number, now_ms=NOW_MS + number)
    store.stop()
    for name in store.names(suffix):
        path = f"{store.path}/{name}"
        data = bytearray(contents(store.files, path))
        match damage:
            case "missing":
                store.files.unlink(path)
                continue
            case "empty":
                data.clear()
            case "garbage":
                data[:] = b"x" * len(data)
            case "torn":
                del data[-5:]
            case "flipped":
                data[-3] ^= 1
        overwrite(store.files, path, data)
    store.open()
    for offset in range(12):
        assert read_one(store.log, offset)[0].base_offset == offset
        found = store.log.find_timestamp(NOW_MS + offset)
        assert found is not None
        assert found.base_offset == offset


def test_an_index_of_another_time_is_found_out_when_it_is_used() -> None:
    store = Store(config=LogConfig(index_interval_bytes=1))
    for number in range(8):
        store.append(b"x" * (50 + number))
    store.stop()
    stale = contents(store.files, f"{store.path}/{store.names('.index')[0]}")
    other = Store(config=LogConfig(index_interval_bytes=1))
    for number in range(8):
        other.append(b"x" * (20 + 7 * number))
    other.stop()
    overwrite(other.files, f"{other.path}/{other.names('.index')[0]}", stale)
    other.open()
    assert [read_one(other.log, offset)[0].base_offset for offset in range(8)] == list(range(8))
