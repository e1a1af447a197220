"""Keeps incremental fetch sessions (KIP-227): a client names its partitions once, then only what changes, and a reply
has only the partitions with news."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.machines.topic_names import MAX_LENGTH
from penstock.protocol.error_codes import ErrorCode

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
NO_SESSION: Final = 0
_MAX_EPOCH: Final = 0x7FFF_FFFF
# The most partitions of all sessions together; each takes about 300 bytes.
MAX_PARTITIONS: Final = 250_000
# A session may have this many partitions that do not exist, beside as many as do.
SPARE_UNKNOWN: Final = 10
UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

# A topic by id or, before version 13, by name; and the partition's number.
Key = tuple[bytes | str, int]


@dataclass(slots=True)
class Wanted:
    """A partition in a session: where its reader is, and what the last reply said about it."""

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    log_start_offset: int = -1
    last_fetched_epoch: int = -1
    told_high_watermark: int = -1
    told_log_start: int = -1
    told_error: int = 0

    def is_news(self, *, high_watermark: int, log_start: int, error: int) -> bool:
        """Whether this is news to the reader. An error is reported as long as it lasts."""
        return (
            error != 0
            or error != self.told_error
            or high_watermark != self.told_high_watermark
            or log_start != self.told_log_start
        )

    def told(self, *, high_watermark: int, log_start: int, error: int) -> None:
        self.told_error, self.told_high_watermark, self.told_log_start = error, high_watermark, log_start


@dataclass(slots=True)
class Session:
    session_id: int
    epoch: int
    used_at_ms: int
    partitions: dict[Key, Wanted]
    uses_topic_ids: bool
    # As it was counted among those of all sessions.
    counted: int = 0

    def changed(self, key: Key, *, has_records: bool, high_watermark: int, log_start: int, error: int) -> bool:
        """Whether a partition has news for the client; what the reply says now is remembered."""
        wanted = self.partitions[key]
        news = has_records or wanted.is_news(high_watermark=high_watermark, log_start=log_start, error=error)
        wanted.told(high_watermark=high_watermark, log_start=log_start, error=error)
        if has_records:
            # A partition that was served goes to the end, so that a small reply does not starve the others.
            del self.partitions[key]
            self.partitions[key] = wanted
        return news


class Strangers:
    """Counts the partitions of a session that do not exist, which an honest client soon drops: it learns of each by
    every reply. A session that consists of them would only cost memory."""

    __slots__ = ("_are_names_legal", "_count")

    def __init__(self) -> None:
        self._count = 0
        self._are_names_legal = True

    def add(self, key: Key) -> None:
        self._count += 1
        if len(key[0]) > MAX_LENGTH:
            # No topic will ever have this name.
            self._are_names_legal = False

    def are_few(self, partitions: int) -> bool:
        """Whether a session of this many partitions may be kept."""
        return self._are_names_legal and self._count <= partitions - self._count + SPARE_UNKNOWN


class FetchSessions:
    """The sessions of a broker, up to a number and up to a number of partitions in all of them. The one unused for
    longest makes room; those unused for very long go without need."""

    def __init__(
        self,
        slots: int,
        *,
        max_partitions: int = MAX_PARTITIONS,
        min_idle_ms: int = 120_000,
        max_idle_ms: int = 600_000,
    ) -> None:
        self._slots = slots
        self._max_partitions = max_partitions
        self._min_idle_ms = min_idle_ms
        self._max_idle_ms = max_idle_ms
        self._sessions: dict[int, Session] = {}
        self.partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def size(self, session_id: int) -> int:
        """The number of a session's partitions, 0 if it is not known."""
        session = self._sessions.get(session_id)
        return 0 if session is None else len(session.partitions)

    def open(
        self,
        session_id: int,
        partitions: dict[Key, Wanted],
        *,
        strangers: Strangers,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> Session | None:
        """A new session under an id that the caller drew; None if there is no room for it, or nearly all of it does not
        exist, and the client does without."""
        if session_id in self._sessions or not strangers.are_few(len(partitions)):
            return None
        if not self._make_room(len(partitions), now_ms):
            return None
        session = Session(session_id, INITIAL_EPOCH + 1, now_ms, partitions, uses_topic_ids)
        self._sessions[session_id] = session
        self._count(session)
        return session

    def resume(
        self,
        session_id: int,
        epoch: int,
        *,
        changes: Iterable[tuple[Key, Wanted]],
        forgotten: Iterable[Key],
        uses_topic_ids: bool,
        now_ms: int,
    ) -> Session | ErrorCode:
        """Go on with a session: apply what the client changed."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        for key, wanted in changes:
            known = session.partitions.get(key)
            if known is not None:
                wanted.told_high_watermark = known.told_high_watermark
                wanted.told_log_start, wanted.told_error = known.told_log_start, known.told_error
            session.partitions[key] = wanted
        for key in forgotten:
            session.partitions.pop(key, None)
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        session.used_at_ms = now_ms
        del self._sessions[session_id]
        self._sessions[session_id] = session
        self._count(session)
        return session

    def may_stay(self, session: Session, strangers: Strangers) -> bool:
        """Whether a session goes on after a reply that found these partitions missing. If not, it is closed, and the
        reply says so by a session id of 0."""
        if self._sessions.get(session.session_id) is not session:
            return False
        if self.partitions <= self._max_partitions and strangers.are_few(len(session.partitions)):
            return True
        self.close(session.session_id)
        return False

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= session.counted

    def _count(self, session: Session) -> None:
        self.partitions += len(session.partitions) - session.counted
        session.counted = len(session.partitions)

    def _make_room(self, partitions: int, now_ms: int) -> bool:
        while self._sessions:
            oldest = next(iter(self._sessions.values()))
            idle_ms = now_ms - oldest.used_at_ms
            is_full = len(self._sessions) >= self._slots or self.partitions + partitions > self._max_partitions
            if idle_ms < self._max_idle_ms and not (is_full and idle_ms >= self._min_idle_ms):
                return not is_full
            self.close(oldest.session_id)
        return self._slots > 0 and partitions <= self._max_partitions
