"""Ranges of a file: the same bytes by memory and by descriptor, whatever becomes of the log meanwhile."""

import os
import socket
import sys
from pathlib import Path

import pytest

from penstock.storage.errors import CorruptLogError
from penstock.storage.files import RealFiles
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.log.file_range import FileRange
from penstock.storage.log.log import LogConfig
from penstock.storage.log.retention import DAY_MS
from tests.storage.store import NOW_MS, Store, contents, delete_expired, new_batch

ONE = len(new_batch(b"x"))


def locate(store: Store, offset: int = 0, max_bytes: int = 10_000) -> FileRange:
    found = store.log.locate(offset, max_bytes=max_bytes)
    assert found is not None
    return found


def read(store: Store, offset: int = 0, max_bytes: int = 10_000) -> FileRange:
    found = store.log.read(offset, max_bytes=max_bytes)
    assert found is not None
    return found


def filled(store: Store, count: int = 10) -> Store:
    for number in range(count):
        store.append(b"%d" % (number % 10))
    return store


class TestOnRealFiles:
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return filled(Store(RealFiles(), LogConfig(segment_bytes=4 * ONE), folder=str(tmp_path / "data")))

    @pytest.mark.skipif(sys.platform != "linux", reason="os.sendfile takes other arguments elsewhere")
    def test_sendfile_sends_what_read_reads(self, store: Store) -> None:
        left, right = socket.socketpair()
        with left, right, read(store, 5, 2 * ONE) as found:
            assert (found.base_offset, len(found)) == (5, 2 * ONE)
            assert os.sendfile(left.fileno(), found.fd, found.position, len(found)) == len(found)
            left.shutdown(socket.SHUT_WR)
            assert right.recv(10_000, socket.MSG_WAITALL) == found.read()

    def test_a_range_stays_readable_while_its_segment_is_deleted(self, store: Store) -> None:
        before = Path(store.log.segments[0].path).read_bytes()
        with read(store) as found:
            store.flush()
            assert delete_expired(store.log, NOW_MS + 30 * DAY_MS) > 0
            assert not os.path.exists(store.log.directory + "/00000000000000000000.log")
            store.append(b"in a file that could have got the number of the descriptor")
            assert found.read() == before
            assert os.pread(found.fd, len(found), found.position) == before
            fd = found.fd
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)

    def test_what_was_just_written_is_ready_to_be_sent(self, store: Store) -> None:
        with read(store) as found:
            found.warm()
            assert found.is_verified
            assert found.is_ready or sys.platform != "linux"


def test_a_range_is_released_once_and_then_holds_nothing_open() -> None:
    store = filled(Store())
    store.flush()
    before = store.memory.open_descriptors
    found = read(store)
    store.log.advance_start(10)
    assert found.read()
    found.release()
    assert store.memory.open_descriptors <= before
    with pytest.raises(AssertionError, match="released twice"):
        found.release()


def test_a_range_that_is_cut_off_is_not_read_as_something_shorter() -> None:
    store = filled(Store())
    with read(store) as found:
        store.log.truncate(5)
        with pytest.raises(CorruptLogError, match=f"was cut to {5 * ONE} bytes"):
            found.read()


class TestVerification:
    def test_what_was_written_by_this_process_is_verified(self) -> None:
        store = filled(Store())
        with locate(store) as found:
            assert found.is_verified
            assert found.is_ready

    def test_after_a_restart_a_located_range_waits_for_its_check(self) -> None:
        store = filled(Store())
        store.reopen()
        with locate(store) as found:
            assert not found.is_verified
            assert not found.is_ready
            found.verify()
            assert found.is_verified
            assert found.is_ready
        with locate(store, 3, ONE) as again:
            assert again.is_verified, "it was checked with the others"

    def test_readers_check_each_byte_once_as_they_go_on(self) -> None:
        store = filled(Store())
        store.reopen()
        for offset in range(0, 10, 2):
            with locate(store, offset, 2 * ONE) as found:
                assert not found.is_verified
                found.verify()
        with locate(store) as found:
            assert found.is_verified

    def test_a_read_range_is_verified(self) -> None:
        store = filled(Store())
        store.reopen()
        with read(store) as found:
            assert found.is_verified

    def test_warming_checks_too(self) -> None:
        store = filled(Store())
        store.reopen()
        with locate(store) as found:
            found.warm()
            assert found.is_verified

    def test_what_left_the_memory_is_checked_when_it_comes_back_and_so_is_all_that_was_there(self) -> None:
        store = filled(Store())
        path = store.log.segments[0].path
        store.flush()
        store.memory.flip_bit(path, 8 * ONE - 1, 3)
        with locate(store, 2, 2 * ONE) as found:
            # Called because the range was found not to be in memory.
            found.warm()
        with locate(store, 2, 2 * ONE) as found:
            assert found.is_verified
        # The kernel reads ahead: what it brought along is not trusted either.
        with locate(store, 7, ONE) as found:
            assert not found.is_verified
            with pytest.raises(CorruptLogError, match=f"byte {7 * ONE}"):
                found.warm()
        store.append(b"new")
        with locate(store, 10, ONE) as found:
            assert found.is_verified

    def test_what_the_kernel_declines_to_read_at_once_though_it_is_in_memory_stays_trusted(self) -> None:
        class Declining(MemoryFiles):
            def is_cached(self, fd: int, position: int, size: int) -> bool:
                return False

            def is_resident(self, fd: int, position: int, size: int) -> bool:
                return True

        store = filled(Store(Declining()))
        store.flush()
        for offset in (2, 7):
            with locate(store, offset, ONE) as found:
                assert not found.is_ready
                found.warm()
        with locate(store, 5, ONE) as found:
            assert found.is_verified

    def test_readers_in_several_places_have_what_they_read_checked_once(self) -> None:
        store = filled(Store())
        store.reopen()
        for offset in (0, 4, 8, 1, 5):
            with locate(store, offset, ONE) as found:
                assert not found.is_verified
                found.warm()
        for offset in (0, 1, 4, 5, 8):
            with locate(store, offset, ONE) as found:
                assert found.is_verified
        with locate(store, 2, ONE) as found:
            assert not found.is_verified

    def test_a_range_is_warmed_up_to_the_first_batch_that_is_damaged(self) -> None:
        store = filled(Store())
        store.stop()
        store.memory.flip_bit(f"{store.path}/00000000000000000000.log", 4 * ONE - 1, 5)
        store.open()
        with locate(store) as found:
            found.warm()
            assert (len(found), found.is_verified) == (3 * ONE, True)
        with locate(store, 3) as found, pytest.raises(CorruptLogError, match=f"byte {3 * ONE}"):
            found.warm()
        with locate(store, 4) as found:
            found.warm()
            assert len(found) == 6 * ONE

    def test_a_batch_whose_offset_has_changed_does_not_pass_for_what_lies_before_the_damage(self) -> None:
        store = filled(Store())
        # Offset 4 becomes 5: only the next batch, which has that, shows that one of them is wrong.
        store.memory.flip_bit(f"{store.path}/00000000000000000000.log", 4 * ONE + 7, 0)
        with locate(store) as found, pytest.raises(CorruptLogError):
            found.warm()

    def test_a_check_in_a_thread_takes_no_descriptor_but_the_one_it_was_given(self) -> None:
        store = filled(Store())
        store.reopen()
        with locate(store) as found:
            readers = found.segment.readers
            for _ in found.segment.checked(0, len(found), found.epochs, is_held=True):
                assert found.segment.readers == readers

    def test_what_recovery_has_checked_is_verified(self) -> None:
        store = filled(Store())
        store.reopen(clean=False)
        with locate(store) as found:
            assert found.is_verified

    @pytest.mark.parametrize("byte", [ONE - 1, 3 * ONE - 1, 10 * ONE - 1])
    def test_damage_is_found_by_the_check_and_read_gives_the_descriptor_back(self, byte: int) -> None:
        store = filled(Store())
        store.stop()
        store.memory.flip_bit(f"{store.path}/00000000000000000000.log", byte, 5)
        store.open()
        with locate(store) as found, pytest.raises(CorruptLogError):
            found.verify()
        pinned = store.directory._descriptors.open_count
        with pytest.raises(CorruptLogError):
            store.log.read(0, max_bytes=10_000)
        assert store.directory._descriptors.open_count == pinned
        store.log.let_go()
        assert store.directory._descriptors.open_count == 0, "nothing is pinned any more"

    def test_bytes_are_those_of_the_file(self) -> None:
        store = filled(Store())
        with read(store) as found:
            assert found.read() == contents(store.files, store.log.segments[0].path)


class TestReadingWhatIsReady:
    def test_gives_the_bytes_that_read_gives(self, tmp_path: Path) -> None:
        for store in (Store(), Store(RealFiles(), folder=str(tmp_path / "data"))):
            with read(filled(store)) as found:
                assert found.read_if_ready() in (found.read(), None if sys.platform != "linux" else b"")

    def test_gives_nothing_that_is_not_verified_yet(self) -> None:
        store = filled(Store())
        store.reopen()
        with locate(store) as found:
            assert found.read_if_ready() is None
            found.verify()
            assert found.read_if_ready() == found.read()

    def test_gives_nothing_that_the_disk_has_to_be_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        store = filled(Store())
        with locate(store) as found:
            monkeypatch.setattr(store.memory, "is_cached", lambda *_: False)
            assert found.read_if_ready() is None

    def test_gives_nothing_of_a_file_that_is_shorter_than_it_should_be(self, tmp_path: Path) -> None:
        store = filled(Store(RealFiles(), folder=str(tmp_path / "data")))
        with locate(store) as found:
            os.truncate(found.segment.path, len(found) - 1)
            assert found.read_if_ready() is None
