"""Keeps the indexes of closed segments that were used lately, up to a number of bytes."""

from collections import OrderedDict
from collections.abc import Callable
from threading import RLock

from penstock.storage.log.index import SegmentIndex

DEFAULT_LIMIT_BYTES = 32 * 1024 * 1024


class IndexCache:
    """One for a data folder: readers of old data share the memory, however many segments there are."""

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._bytes = 0
        # A thread may cut logs, and look into their indexes.
        self._mutex = RLock()
        self._held: OrderedDict[str, SegmentIndex] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def get(self, stem: str, load: Callable[[], SegmentIndex]) -> SegmentIndex:
        with self._mutex:
            held = self._held.get(stem)
            if held is not None:
                self._held.move_to_end(stem)
                return held
        index = load()
        self.put(stem, index)
        return index

    def peek(self, stem: str) -> SegmentIndex | None:
        """The index if it is held. This does not count as a use of it."""
        return self._held.get(stem)

    def put(self, stem: str, index: SegmentIndex) -> None:
        with self._mutex:
            self.forget(stem)
            self._held[stem] = index
            self._bytes += index.size_bytes
            while self._bytes > self._limit and len(self._held) > 1:
                _, oldest = self._held.popitem(last=False)
                self._bytes -= oldest.size_bytes

    def forget(self, stem: str) -> None:
        with self._mutex:
            index = self._held.pop(stem, None)
            if index is not None:
                self._bytes -= index.size_bytes
