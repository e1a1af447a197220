"""The newest record of each key, as long as there is room."""

from penstock.storage.compaction.key_offsets import KeyOffsets
from penstock.storage.compaction.record_spans import Keys


def keys(first: int, *names: bytes | None, tombstones: tuple[int, ...] = ()) -> Keys:
    return Keys(list(names), list(range(first, first + len(names))), list(tombstones))


def test_the_newest_of_each_key_is_live() -> None:
    newest = KeyOffsets(10)
    assert newest.add(keys(0, b"a", b"b", b"a"))
    assert newest.add(keys(3, b"c", None, b"b"))
    newest.finish()
    assert len(newest) == 3
    assert list(newest.live(0, 5)) == [2, 3, 5]
    assert list(newest.live(3, 4)) == [3]
    assert newest.count_live(0, 1) == 0
    assert newest.count_live(2, 5) == 3
    assert newest.has(b"a")
    assert not newest.has(None)
    assert newest.has_any([b"x", b"c"])
    assert not newest.has_any([b"x", None])


def test_what_does_not_fit_is_not_taken_at_all() -> None:
    newest = KeyOffsets(3)
    assert newest.add(keys(0, b"a", b"b"))
    assert not newest.add(keys(2, b"c", b"d"))
    assert newest.add(keys(2, b"a", b"b", b"c", b"a")), "known keys need no room"
    assert not newest.add(keys(6, b"d"))
    newest.finish()
    assert list(newest.live(0, 9)) == [3, 4, 5]


def test_the_first_batch_is_taken_however_large_it_is() -> None:
    newest = KeyOffsets(1)
    assert newest.add(keys(0, b"a", b"b", b"c"))
    assert not newest.add(keys(3, b"d"))


def test_batches_that_nobody_can_read_take_room_too() -> None:
    newest = KeyOffsets(2)
    assert not newest.has_unreadable
    assert newest.add_unreadable(0)
    assert newest.add_unreadable(5)
    assert not newest.add_unreadable(9)
    assert newest.has_unreadable
    assert newest.is_unreadable(5)
    assert not newest.is_unreadable(9)


def test_the_first_tombstone_is_remembered() -> None:
    newest = KeyOffsets(10)
    newest.add(keys(0, b"a"))
    assert newest.first_tombstone == -1
    newest.add(keys(1, b"b", b"c", tombstones=(2,)))
    newest.add(keys(3, b"b", tombstones=(3,)))
    assert newest.first_tombstone == 2
