"""The leader of a partition: how far its records are committed, and who waits for that.

With one replica the high watermark follows the leader's own log: its flushed end, or its written end where the topic
opted out of flushing. Replicas join in by `follower_fetched` when there are any.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class PartitionLeader:
    """Volatile: made anew at every election."""

    leader_epoch: int
    epoch_start_offset: int
    high_watermark: int
    # Who waits for an acknowledgement, in the order of the offsets that they wait for.
    _waiting: deque[tuple[int, Any]] = field(default_factory=deque)

    @property
    def last_stable_offset(self) -> int:
        """Without transactions everything committed is stable."""
        return self.high_watermark

    def wait_for(self, offset: int, waiter: Any) -> bool:
        """Whether everything before `offset` is committed. If not, `log_advanced` gives `waiter` back once it is."""
        if offset <= self.high_watermark:
            return True
        self._waiting.append((offset, waiter))
        return False

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiting)

    def log_advanced(self, offset: int) -> list[Any]:
        """The log is durable up to here: who is answered now."""
        self.high_watermark = max(self.high_watermark, offset)
        done = []
        while self._waiting and self._waiting[0][0] <= self.high_watermark:
            done.append(self._waiting.popleft()[1])
        return done

    def resigned(self) -> list[Any]:
        """It leads no more: everyone who still waits has to be told."""
        waiters = [waiter for _, waiter in self._waiting]
        self._waiting.clear()
        return waiters
