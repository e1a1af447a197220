"""Remembers, in bounded memory, which record of each key is the newest."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from penstock.storage.compaction.record_spans import Keys


class KeyOffsets:
    """Batches come in ascending order, as long as there is room for their keys; then `finish`, then questions."""

    def __init__(self, max_keys: int) -> None:
        self._max_keys = max_keys
        self._newest: dict[bytes | None, int] = {}
        self._unreadable: set[int] = set()
        self._live = array("q")
        self.first_tombstone = -1

    def __len__(self) -> int:
        return len(self._newest)

    def add(self, keys: Keys) -> bool:
        """Note the keys of a batch. False, and nothing is noted, if there is no room for them; the first batch of all
        is always taken, however large."""
        newest = self._newest
        if newest and len(newest) + len(self._unreadable) + len(keys.keys) > self._max_keys:
            fresh = len({key for key in keys.keys if key not in newest})
            if len(newest) + len(self._unreadable) + fresh > self._max_keys:
                return False
        newest.update(zip(keys.keys, keys.offsets, strict=True))
        if keys.tombstones and self.first_tombstone < 0:
            self.first_tombstone = keys.tombstones[0]
        return True

    def add_unreadable(self, base_offset: int) -> bool:
        """A batch whose records cannot be read stays as it is."""
        if self._unreadable and len(self._newest) + len(self._unreadable) >= self._max_keys:
            return False
        self._unreadable.add(base_offset)
        return True

    def finish(self) -> None:
        """All batches have been added. Records without a key are never the newest of one."""
        self._newest.pop(None, None)
        self._live = array("q", sorted(self._newest.values()))

    @property
    def has_unreadable(self) -> bool:
        return bool(self._unreadable)

    def is_unreadable(self, base_offset: int) -> bool:
        return base_offset in self._unreadable

    def live(self, base_offset: int, last_offset: int) -> "array[int]":
        """The offsets in a range whose records are the newest of their keys."""
        start = bisect_left(self._live, base_offset)
        return self._live[start : bisect_right(self._live, last_offset, start)]

    def count_live(self, base_offset: int, last_offset: int) -> int:
        start = bisect_left(self._live, base_offset)
        return bisect_right(self._live, last_offset, start) - start

    def has(self, key: bytes | None) -> bool:
        return key in self._newest

    def has_any(self, keys: Iterable[bytes | None]) -> bool:
        return not self._newest.keys().isdisjoint(keys)
