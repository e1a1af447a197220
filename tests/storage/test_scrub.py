"""Changed bits are found wherever they are, named, and looked for round and round."""

import errno

import pytest

from penstock.protocol.batch import HEADER, LENGTH_OVERHEAD, split
from penstock.storage.errors import CorruptLogError
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.log.log import LogConfig
from penstock.storage.scrub import BATCHES_AT_ONCE, Damage, Scrubber
from tests.storage.store import NOW_MS, Store, new_batch

ONE = len(new_batch(b"x"))
IN_A_SEGMENT = 5


class ColdFiles(MemoryFiles):
    """Whose page cache is empty, and which notes what it was asked to forget."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cold = True
        self.dropped: list[tuple[int, int]] = []

    def is_cached(self, fd: int, position: int, size: int) -> bool:
        return not self.is_cold

    def drop_cached(self, fd: int, position: int, size: int) -> None:
        self.dropped.append((position, size))


def filled(segments: int = 3, files: MemoryFiles | None = None) -> Store:
    """Closed segments, and an active one with one batch."""
    store = Store(files, LogConfig(segment_bytes=IN_A_SEGMENT * ONE))
    for number in range(segments * IN_A_SEGMENT + 1):
        store.append(b"%d" % (number % 10))
    store.flush()
    return store


def scrub(scrubber: Scrubber, store: Store, max_bytes: int = 10_000) -> tuple[int, list[Damage]]:
    """A whole round: how many bytes were looked at, and what was found."""
    size, found = 0, []
    while (piece := scrubber.next_slice(max_bytes)) is not None:
        piece.check(store.files)
        size += piece.size
        found += scrubber.checked(piece)
    return size, found


def scrubber_of(store: Store) -> Scrubber:
    return Scrubber(lambda: [store.log])


def flip(store: Store, segment: int, position: int, bit: int = 0) -> None:
    assert isinstance(store.files, MemoryFiles)
    store.files.flip_bit(store.log.segments[segment].path, position, bit)


@pytest.mark.parametrize("max_bytes", [1, ONE, 2 * ONE + 1, 10_000])
def test_all_closed_segments_are_checked_in_slices_and_the_active_one_is_not(max_bytes: int) -> None:
    store = filled()
    scrubber = scrubber_of(store)
    for number in (1, 2):
        assert scrub(scrubber, store, max_bytes) == (3 * IN_A_SEGMENT * ONE, [])
        assert scrubber.rounds == number


def test_a_slice_has_no_more_batches_than_a_thread_may_loop_over() -> None:
    store = Store(config=LogConfig(segment_bytes=300 * ONE))
    for _ in range(301):
        store.append(b"x")
    store.flush()
    piece = scrubber_of(store).next_slice(1 << 20)
    assert piece is not None
    piece.check(store.files)
    assert piece.size == BATCHES_AT_ONCE * ONE


def test_what_is_not_flushed_yet_is_left_alone() -> None:
    store = Store(config=LogConfig(segment_bytes=IN_A_SEGMENT * ONE))
    for _ in range(20):
        store.append(b"x")
    assert scrubber_of(store).next_slice(10_000) is None


@pytest.mark.parametrize("byte", range(0, ONE, 3))
def test_a_flipped_bit_anywhere_in_a_batch_is_found_and_named(byte: int) -> None:
    for number in range(IN_A_SEGMENT):
        store = filled()
        flip(store, 1, number * ONE + byte, byte % 8)
        _, found = scrub(scrubber_of(store), store)
        assert found, f"batch {number}"
        assert {damage.path for damage in found} == {store.log.segments[1].path}
        if byte >= LENGTH_OVERHEAD:
            # In its length or its offset it may make its neighbour look wrong instead.
            assert found[0].position == number * ONE
            assert found[0].offset == IN_A_SEGMENT + number
            assert found[0].reason


def test_the_batches_behind_a_damaged_one_are_checked_as_well() -> None:
    store = filled()
    for number in (0, 2, 4):
        flip(store, 1, number * ONE + HEADER.size)
    flip(store, 2, ONE + HEADER.size)
    size, found = scrub(scrubber_of(store), store, ONE)
    assert [(damage.position, damage.offset) for damage in found] == [
        (0, 5),
        (2 * ONE, 7),
        (4 * ONE, 9),
        (ONE, 11),
    ]
    assert size == 3 * IN_A_SEGMENT * ONE


def test_an_offset_that_leaves_a_hole_is_found_by_its_neighbour_and_named_itself() -> None:
    store = filled()
    flip(store, 1, 2 * ONE + 7, 3)
    _, [damage] = scrub(scrubber_of(store), store)
    assert damage.position == 2 * ONE


def test_nothing_of_a_segment_with_damage_is_read_unchecked_from_then_on() -> None:
    store = filled()
    flip(store, 1, 2 * ONE + HEADER.size)
    before = store.log.locate(7, max_bytes=ONE)
    assert before is not None
    assert before.is_verified, "this process wrote it, and knows no better"
    before.release()
    scrub(scrubber_of(store), store)
    with pytest.raises(CorruptLogError, match="byte 138") as refused:
        store.log.read(7, max_bytes=ONE)
    assert refused.value.place == {"file": store.log.segments[1].path, "position": 2 * ONE, "offset": 7}
    with store.log.read(8, max_bytes=ONE) or pytest.fail("what is sound can be read"):
        pass


def test_a_segment_that_cannot_be_read_is_damage_too() -> None:
    store = filled()
    store.memory.fail("pread", 2, OSError(errno.EIO, "a bad sector"))
    _, [damage] = scrub(scrubber_of(store), store)
    assert "a bad sector" in damage.reason
    assert damage.path == store.log.segments[1].path


def test_a_segment_that_was_deleted_meanwhile_is_no_damage() -> None:
    store = filled()
    scrubber = scrubber_of(store)
    piece = scrubber.next_slice(10_000)
    assert piece is not None
    store.log.advance_start(IN_A_SEGMENT)
    piece.check(store.files)
    assert scrubber.checked(piece) == []
    assert scrub(scrubber, store) == (2 * IN_A_SEGMENT * ONE, [])


def test_what_was_found_in_a_segment_that_is_not_the_logs_any_more_is_not_told() -> None:
    store = filled()
    flip(store, 0, HEADER.size)
    scrubber = scrubber_of(store)
    piece = scrubber.next_slice(10_000)
    assert piece is not None
    piece.check(store.files)
    assert piece.found
    store.log.advance_start(IN_A_SEGMENT)
    assert scrubber.checked(piece) == []


def test_it_goes_on_where_it_was_though_old_segments_go_and_new_ones_come() -> None:
    store = filled()
    scrubber = scrubber_of(store)
    for _ in range(7):
        piece = scrubber.next_slice(ONE)
        assert piece is not None
        piece.check(store.files)
        scrubber.checked(piece)
    store.log.advance_start(IN_A_SEGMENT)
    for number in range(IN_A_SEGMENT):
        store.append(b"%d" % number)
    store.flush()
    following = scrubber.next_slice(ONE)
    assert following is not None
    assert (following.segment, following.position) == (store.log.segments[0], 2 * ONE)
    assert scrub(scrubber, store) == ((3 + 5 + 5) * ONE, [])


def test_all_logs_have_their_turn_and_those_that_are_gone_or_offline_do_not() -> None:
    store = filled(1)
    others = [store.other_log(number) for number in (1, 2, 3)]
    for log in others:
        for _ in range(IN_A_SEGMENT + 1):
            log.append(split(new_batch(b"x")), leader_epoch=0, now_ms=NOW_MS)
    store.flush()
    others[0].fail(OSError("broken"))
    others[1].let_go()
    scrubber = Scrubber(lambda: [store.log, *others])
    assert scrub(scrubber, store) == (2 * IN_A_SEGMENT * ONE, [])


def test_what_was_not_in_memory_before_is_not_left_there() -> None:
    files = ColdFiles()
    store = filled(1, files)
    scrub(scrubber_of(store), store, 2 * ONE)
    assert files.dropped == [(0, 2 * ONE), (2 * ONE, 2 * ONE), (4 * ONE, ONE)]
    files.dropped.clear()
    files.is_cold = False
    scrub(scrubber_of(store), store)
    assert files.dropped == []
