"""Finds when each group next has something to do by itself.

Most deadlines are put off before they come, since members send heartbeats. So an entry only says "not before", and the
group is asked for the true deadline when its entry comes up.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

# With more entries than this that count no more, beside as many that count, the heap is made anew.
_STALE: Final = 1_000


class Deadlines:
    """`deadline_of` gives the true deadline of a group, or None."""

    def __init__(self, deadline_of: Callable[[str], int | None]) -> None:
        self._deadline_of = deadline_of
        self._not_before: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def note(self, group_id: str, deadline_ms: int | None) -> None:
        """The group has a deadline; it may have earlier ones."""
        if deadline_ms is None:
            return
        known = self._not_before.get(group_id)
        if known is None or deadline_ms < known:
            self._not_before[group_id] = deadline_ms
            heappush(self._heap, (deadline_ms, group_id))
            if len(self._heap) > 2 * len(self._not_before) + _STALE:
                self._rebuild()

    def drop(self, group_id: str) -> None:
        """The group is gone."""
        self._not_before.pop(group_id, None)

    def earliest(self) -> int | None:
        """The first deadline of all."""
        while self._heap:
            entry_ms, group_id = self._heap[0]
            true_ms = self._deadline_of(group_id) if self._not_before.get(group_id) == entry_ms else None
            if true_ms == entry_ms:
                return entry_ms
            self._correct(true_ms)
        return None

    def due(self, now_ms: int) -> list[str]:
        """The groups whose deadline has come. They stay due until they change."""
        found: list[tuple[int, str]] = []
        while (earliest_ms := self.earliest()) is not None and earliest_ms <= now_ms:
            found.append(heappop(self._heap))
            # The group may have more entries of the same time, which do not count from now on.
            del self._not_before[found[-1][1]]
        for deadline_ms, group_id in found:
            self.note(group_id, deadline_ms)
        return [group_id for _, group_id in found]

    def shift(self, by_ms: int) -> None:
        """All deadlines were moved."""
        self._not_before = {group_id: entry_ms + by_ms for group_id, entry_ms in self._not_before.items()}
        self._rebuild()

    def _rebuild(self) -> None:
        """Keep the entries that count."""
        self._heap = [(entry_ms, group_id) for group_id, entry_ms in self._not_before.items()]
        heapify(self._heap)

    def _correct(self, true_ms: int | None) -> None:
        """Replace the first entry, which is older than the truth."""
        entry_ms, group_id = heappop(self._heap)
        if self._not_before.get(group_id) != entry_ms:
            return
        del self._not_before[group_id]
        self.note(group_id, true_ms)
