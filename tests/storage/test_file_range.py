"""Ranges of a segment: whole batches, sent from the file, held open, and checked before they are sent."""

import os
import socket
from pathlib import Path

import pytest

from penstock.protocol.batch import split
from penstock.storage.errors import CorruptLogError, OffsetOutOfRangeError
from penstock.storage.file_range import FileRange
from penstock.storage.files import RealFiles
from penstock.storage.log import LogConfig
from tests.storage.store import Store, read_one

SMALL = LogConfig(segment_bytes=300, index_interval_bytes=150)


def filled(store: Store, count: int = 12) -> Store:
    for number in range(count):
        store.append(b"%02d" % number)
    store.flush(save_recovery_points=True)
    return store


def located(store: Store, offset: int, max_bytes: int = 10_000, upper_bound: int | None = None) -> FileRange:
    found = store.log.locate(offset, max_bytes=max_bytes, upper_bound=upper_bound)
    assert found is not None
    return found


def test_a_range_holds_whole_batches_only() -> None:
    store = filled(Store())
    size = len(read_one(store.log, 0)[1])
    with located(store, 3, max_bytes=size * 2 + size // 2) as found:
        assert [header.base_offset for header, _ in split(found.read())] == [3, 4]
        assert len(found) == size * 2


def test_a_first_batch_that_is_too_large_comes_alone_or_not_at_all() -> None:
    store = filled(Store())
    with located(store, 3, max_bytes=1) as found:
        assert [header.base_offset for header, _ in split(found.read())] == [3]
    assert store.log.locate(3, max_bytes=1, at_least_one=False) is None


def test_nothing_at_or_above_the_upper_bound_is_read() -> None:
    store = filled(Store())
    with located(store, 3, upper_bound=5) as found:
        assert [header.base_offset for header, _ in split(found.read())] == [3, 4]
    assert store.log.locate(5, max_bytes=1000, upper_bound=5) is None
    assert store.log.locate(12, max_bytes=1000) is None


def test_an_offset_outside_the_log_is_an_error_that_tells_the_range() -> None:
    store = filled(Store())
    store.log.advance_start(4)
    for offset in (3, 13):
        with pytest.raises(OffsetOutOfRangeError) as raised:
            store.log.locate(offset, max_bytes=1000)
        assert (raised.value.start, raised.value.end) == (4, 12)


def test_a_range_stays_readable_while_its_segment_is_deleted() -> None:
    store = filled(Store(config=SMALL))
    with located(store, 0) as found:
        expected = found.read()
        store.log.advance_start(store.log.end_offset)
        assert store.names(".log") == []
        assert found.read() == expected


def test_sendfile_sends_the_bytes_of_the_range(tmp_path: Path) -> None:
    store = filled(Store(RealFiles(), folder=str(tmp_path / "data")))
    here, there = socket.socketpair()
    with here, there, located(store, 4) as found:
        assert os.sendfile(here.fileno(), found.fd, found.position, found.length) == found.length
        assert there.recv(found.length, socket.MSG_WAITALL) == found.read()
    store.stop()


def test_what_this_process_wrote_is_verified_and_what_it_found_is_not() -> None:
    store = filled(Store())
    with located(store, 0) as found:
        assert found.is_verified
    store.reopen()
    with located(store, 0) as found:
        assert not found.is_verified
        assert not found.is_ready
        found.warm()
        assert found.is_verified
        assert found.is_ready


def test_readers_verify_each_byte_once_as_they_go_on() -> None:
    store = filled(Store(config=LogConfig(index_interval_bytes=100)))
    store.reopen()
    offset = 0
    while offset < 12:
        with located(store, offset, max_bytes=200) as found:
            found.verify()
            offset += len(split(found.read()))
    with located(store, 0) as found:
        assert found.is_verified


@pytest.mark.parametrize("clean", [True, False])
def test_a_flipped_bit_below_the_recovery_point_is_never_served_or_cut(clean: bool) -> None:
    sizes = [segment.size for segment in filled(Store(config=SMALL)).log.segments]
    for number, size in enumerate(sizes):
        for position in range(size):
            store = filled(Store(config=SMALL))
            segment = store.log.segments[number]
            before = store.log.end_offset
            if clean:
                store.stop()
            else:
                store.kill()
            store.memory.flip_bit(segment.path, position, position % 8)
            refusals = []
            try:
                store.open()
            except CorruptLogError as refused:
                refusals.append(refused.path)
            else:
                assert store.log.end_offset == before, "the log was cut"
                served = []
                for offset in range(before):
                    try:
                        served.append(read_one(store.log, offset)[0].base_offset)
                    except CorruptLogError as refused:
                        refusals.append(refused.path)
                # The leader epoch is the one thing outside the checksum that no other check notices.
                assert refusals or (served == list(range(before)) and is_in_leader_epoch(store, number, position))
            assert set(refusals) <= {segment.path}


def is_in_leader_epoch(store: Store, number: int, position: int) -> bool:
    """Whether a position in a segment lies in the leader epoch of one of its batches."""
    starts = [batch.position for batch in store.log.segments[number].batches(0, store.log.segments[number].size)]
    return any(start + 12 <= position < start + 16 for start in starts)
