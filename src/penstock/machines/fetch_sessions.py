"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only what changes, and is told only
about partitions that have something to tell."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.protocol.error_codes import ErrorCode

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
NO_SESSION: Final = 0
_MAX_EPOCH: Final = 0x7FFF_FFFF

# A topic by id or, before version 13, by name; and the partition's number.
Key = tuple[bytes | str, int]


@dataclass(slots=True)
class Wanted:
    """A partition in a session: where its reader is, and what the reader was told last."""

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    log_start_offset: int = -1
    last_fetched_epoch: int = -1
    told_high_watermark: int = -1
    told_log_start: int = -1
    told_error: int = 0


@dataclass(slots=True)
class Session:
    session_id: int
    epoch: int
    used_at_ms: int
    partitions: "OrderedDict[Key, Wanted]"
    uses_topic_ids: bool

    def changed(self, key: Key, *, has_records: bool, high_watermark: int, log_start: int, error: int) -> bool:
        """Whether a partition has news for the client; what it is told now is remembered."""
        wanted = self.partitions[key]
        news = (
            has_records
            or error != wanted.told_error
            or error != 0
            or high_watermark != wanted.told_high_watermark
            or log_start != wanted.told_log_start
        )
        wanted.told_error, wanted.told_high_watermark, wanted.told_log_start = error, high_watermark, log_start
        if has_records:
            # Who was served goes to the end, so that a small reply does not starve the others.
            self.partitions.move_to_end(key)
        return news


class FetchSessions:
    """The sessions of a broker, up to a number; the one unused for longest makes room."""

    def __init__(self, slots: int, *, min_idle_ms: int = 120_000) -> None:
        self._slots = slots
        self._min_idle_ms = min_idle_ms
        self._sessions: OrderedDict[int, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, session_id: int, partitions: "OrderedDict[Key, Wanted]", *, uses_topic_ids: bool, now_ms: int
    ) -> Session | None:
        """A new session under an id that the caller drew; None if all slots are in use, and the client does without."""
        if session_id in self._sessions or not self._make_room(now_ms):
            return None
        session = Session(session_id, INITIAL_EPOCH + 1, now_ms, partitions, uses_topic_ids)
        self._sessions[session_id] = session
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
        self._sessions.move_to_end(session_id)
        return session

    def close(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def _make_room(self, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_at_ms < self._min_idle_ms:
            return False
        self.close(oldest.session_id)
        return True
