"""A follower makes its log a copy of the leader's: it fetches from its end on, and cuts off what the leader's log does
not have.

It says which epoch its last record is of, and the leader says where the logs part, if they do (KIP-595). What is to be
cut is found by leader epochs, never by a high watermark. One fetch is outstanding at a time; only its answer counts.
"""

from dataclasses import dataclass
from typing import Protocol

from penstock.protocol.error_codes import ErrorCode

UNKNOWN = -1


class Epochs(Protocol):
    def end_offset(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch up to this one, and where it ends in a log with this end; (-1, -1) if there is none."""


@dataclass(frozen=True, slots=True)
class FetchFrom:
    """What a follower asks its leader for. The offset is one before which its log is durable."""

    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start: int


@dataclass(frozen=True, slots=True)
class Append:
    """The batches of the answer follow the end of the log."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log, so that it ends here."""

    offset: int


@dataclass(frozen=True, slots=True)
class StartAt:
    """Throw the log away, and begin at this offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class Wait:
    """This leader, or this epoch of it, has nothing for the follower now: it asks again later, or hears of another."""


Step = Append | Truncate | StartAt | Wait


@dataclass(slots=True)
class PartitionFollower:
    """Volatile: made anew whenever another leader, or another epoch of it, is to be followed. `high_watermark` is the
    last that was heard of, up to the end of the own log."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    outstanding: FetchFrom | None = None

    def fetch(self, *, durable_end: int, last_record_epoch: int, log_start: int) -> FetchFrom | None:
        """What to ask for now; None while an answer is outstanding."""
        if self.outstanding is not None:
            return None
        self.outstanding = FetchFrom(self.leader_epoch, durable_end, last_record_epoch, log_start)
        return self.outstanding

    def lost(self, fetch: FetchFrom) -> None:
        """No answer will come to it."""
        if fetch == self.outstanding:
            self.outstanding = None

    def answered(
        self,
        fetch: FetchFrom,
        *,
        error: ErrorCode = ErrorCode.NONE,
        diverging: tuple[int, int] | None = None,
        leader_log_start: int = UNKNOWN,
        epochs: Epochs,
        log_start: int,
        log_end: int,
    ) -> Step:
        """What the answer to the outstanding fetch asks for. All others are late, and ask for nothing."""
        if fetch != self.outstanding:
            return Wait()
        self.outstanding = None
        if error == ErrorCode.OFFSET_OUT_OF_RANGE and leader_log_start >= 0:
            # All that is here was deleted there, or, if it is more than the leader has, is of no epoch that it knows.
            return StartAt(leader_log_start)
        if error:
            return Wait()
        if diverging is None:
            return Append()
        end = self._shared_end(diverging, epochs, log_start, log_end)
        # A log that is begun again lacks nothing that the leader's has: it begins where that one does, or at 0 if that
        # is not known, which the leader corrects.
        return Truncate(end) if end >= log_start else StartAt(max(leader_log_start, 0))

    @staticmethod
    def _shared_end(diverging: tuple[int, int], epochs: Epochs, log_start: int, log_end: int) -> int:
        """Up to where both logs may be equal, by the leader's largest epoch up to the one asked about, and by where
        that ends there."""
        their_epoch, their_end = diverging
        own_epoch, own_end = epochs.end_offset(their_epoch, log_end)
        if own_epoch == their_epoch:
            return min(own_end, their_end)
        if their_end < 0 or own_epoch < 0:
            # They share no epoch.
            return min(their_end, log_start)
        return own_end

    def committed(self, high_watermark: int, log_end: int) -> int:
        """The leader has told its high watermark."""
        self.high_watermark = min(max(self.high_watermark, high_watermark), log_end)
        return self.high_watermark
