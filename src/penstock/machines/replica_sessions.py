"""A replica session knows what a follower has said of its partitions, and which of them have something for it.

It costs what changes: a request names partitions whose offset has moved, a reply those that have more, or that have
something to say besides; thousands that are idle take no part in either.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Key: TypeAlias = tuple[bytes, int]
"""The id of a topic, and the number of a partition."""

FIRST_EPOCH: Final = 0
"""Opens a session; the first request within it has the next number."""


@dataclass(slots=True)
class Position:
    """From where a follower fetches. `is_sent` says that it has got an answer, after which it names another."""

    offset: int
    leader_epoch: int
    last_fetched_epoch: int
    log_start: int
    max_bytes: int
    is_sent: bool = False
    told: tuple[int, int] = (-1, -1)
    """The high watermark and the start of the log that it has been told."""


@dataclass(slots=True)
class ReplicaPositions:
    """The session of one follower with one leader, over one connection."""

    session_id: int
    epoch: int = FIRST_EPOCH
    positions: dict[Key, Position] = field(default_factory=dict)
    # In the order in which they are looked at.
    _ready: dict[Key, None] = field(default_factory=dict)
    _news: dict[Key, None] = field(default_factory=dict)
    _urgent: dict[Key, None] = field(default_factory=dict)

    def resume(self, epoch: int, changes: Iterable[tuple[Key, Position]], forgotten: Iterable[Key]) -> bool:
        """A request: what has changed, and what is followed no longer. False if it is not the next one."""
        if epoch != self.epoch:
            return False
        self.epoch += 1
        for key in forgotten:
            self.positions.pop(key, None)
            for kept in (self._ready, self._news, self._urgent):
                kept.pop(key, None)
        for key, position in changes:
            known = self.positions.get(key)
            if known is not None:
                position.told = known.told
            self.positions[key] = position
            # What has moved since its last answer has not been told yet.
            self._ready[key] = self._news[key] = None
        return True

    def grew(self, key: Key) -> bool:
        """There is more of a partition. Returns whether the follower waits for it."""
        position = self.positions.get(key)
        if position is None or position.is_sent:
            return False
        self._ready[key] = None
        return True

    def has_news(self, key: Key) -> None:
        """The high watermark or the start of the log has moved."""
        if key in self.positions:
            self._news[key] = None

    def is_waited_for(self, key: Key) -> None:
        """A client waits until the follower has been told the start of the log, and has said that it is its own."""
        if key in self.positions:
            self._news[key] = self._urgent[key] = None

    @property
    def has_urgent_news(self) -> bool:
        """Whether a reply is to leave now, though there may be no records for it."""
        return any(key not in self._ready and not self.positions[key].is_sent for key in self._urgent)

    def ready(self) -> list[Key]:
        """The partitions to look at for this reply."""
        return list(self._ready)

    def passed(self, key: Key) -> None:
        """There was nothing for the follower."""
        self._ready.pop(key, None)

    def sent(self, key: Key) -> None:
        """It gets records, or an error, and says from where it goes on, or whether."""
        self._ready.pop(key, None)
        self._urgent.pop(key, None)
        self.positions[key].is_sent = True

    def take_news(self) -> list[Key]:
        """The partitions of which something else is to be told in this reply: those that have nothing else for the
        follower, and whose last answer it has taken."""
        news = [key for key in self._news if key not in self._ready]
        for key in news:
            del self._news[key]
        told = [key for key in news if not self.positions[key].is_sent]
        for key in told:
            self._urgent.pop(key, None)
        return told
