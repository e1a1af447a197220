"""The leader of a partition knows how far its records are committed, and proposes who is in sync.

A record is committed when every replica has it that is in sync, or that may be by a proposal whose outcome is not known
yet: the maximal in-sync replicas (KIP-497). Records are deleted for good when all of them have deleted them: another
one may lead, and bring them back. Ends of logs are those that a crash leaves untouched, or the written ends where the
topic opted out of flushing. Who is in sync is what the metadata log says, never what an answer to a proposal says: the
log has it in one order with the number of replicas that acks=all needs.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from penstock.machines.elections import needed
from penstock.protocol.error_codes import ErrorCode

UNKNOWN: Final = -1
"""The epoch of a broker, or the end of a log, that has not been told yet."""

REST_MS: Final = 1000
"""After the controller has refused a replica."""

LAG_MS: Final = 30_000
"""Kafka's replica.lag.time.max.ms."""


@dataclass(slots=True)
class FollowerProgress:
    """What the leader knows of a follower since it was elected. `end_offset` and `log_start` are those of its last
    fetch that did not diverge."""

    caught_up_ms: int
    broker_epoch: int = UNKNOWN
    session: int = UNKNOWN
    end_offset: int = UNKNOWN
    log_start: int = UNKNOWN
    fetched_ms: int = UNKNOWN
    rests_until_ms: int = UNKNOWN
    """Until then it is not proposed again: the controller knows that it is not alive, or will soon know that it is."""
    leader_end_then: int = UNKNOWN
    """The end of the leader's log when it last fetched: once the follower reaches it, it was caught up at that time."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Who is in sync, each with the epoch of its registration; -1 for one that was before and has not fetched since."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]

    @property
    def brokers(self) -> frozenset[int]:
        return frozenset(broker_id for broker_id, _ in self.isr)


class Answered(Enum):
    """What became of a proposal."""

    ACCEPTED = auto()
    REFUSED = auto()
    UNKNOWN = auto()
    """It may have been accepted, or may yet be: the same one is made again."""

    @classmethod
    def by(cls, code: ErrorCode) -> "Answered":
        """What the code of an answer says. A controller that does not know the topic says nothing: it may be a former
        one, which has not heard of it."""
        match code:
            case ErrorCode.NONE | ErrorCode.INVALID_UPDATE_VERSION | ErrorCode.FENCED_LEADER_EPOCH:
                # The state or the leader is another one, and the metadata log says which.
                return cls.ACCEPTED
            case ErrorCode.INELIGIBLE_REPLICA | ErrorCode.INVALID_REQUEST:
                return cls.REFUSED
            case _:
                return cls.UNKNOWN


@dataclass(slots=True)
class PartitionLeader:
    """Volatile: made anew at every election. A leader without followers commits what its own log has."""

    leader_epoch: int
    epoch_start_offset: int
    high_watermark: int
    broker_id: int = 0
    broker_epoch: int = UNKNOWN
    replicas: tuple[int, ...] = ()
    isr: frozenset[int] = frozenset()
    partition_epoch: int = 0
    needed: int = 1
    """How many replicas must be in sync for anything to be committed."""
    log_start: int = 0
    end_offset: int = 0
    lag_ms: int = LAG_MS
    followers: dict[int, FollowerProgress] = field(default_factory=dict)
    maximal_isr: frozenset[int] = frozenset()
    proposal: Proposal | None = None
    _is_under_way: bool = False
    _is_accepted: bool = False
    _is_unknown: bool = False

    @classmethod
    def elected(
        cls,
        *,
        broker_id: int,
        broker_epoch: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Collection[int],
        isr: Collection[int],
        adding: Collection[int] = (),
        min_isr: int | None,
        log_start: int,
        log_end: int,
        durable_end: int,
        high_watermark: int,
        now_ms: int,
        lag_ms: int = LAG_MS,
    ) -> "PartitionLeader":
        """A broker leads from the end of its log on, of which a crash would leave `durable_end`. The high watermark is
        the last that it heard of: others may know a higher one."""
        leader = cls(
            leader_epoch,
            log_end,
            min(high_watermark, log_end),
            broker_id,
            broker_epoch,
            tuple(replicas),
            frozenset(isr),
            partition_epoch,
            needed(min_isr, len(replicas) - len(adding)),
            log_start,
            durable_end,
            lag_ms,
            {replica: FollowerProgress(caught_up_ms=now_ms) for replica in replicas if replica != broker_id},
            frozenset(isr),
        )
        leader._commit()
        return leader

    # The leader's own log

    def log_advanced(self, offset: int) -> int:
        """The log is durable up to here. Returns the high watermark, which never goes back."""
        if offset > self.end_offset:
            self.end_offset = offset
            if len(self.maximal_isr) > 1:
                self._commit()
            elif len(self.isr) >= self.needed and offset > self.high_watermark:
                self.high_watermark = offset
        return self.high_watermark

    def records_deleted(self, log_start: int) -> None:
        """The log begins here from now on."""
        self.log_start = log_start

    @property
    def is_settled(self) -> bool:
        """Whether all that former leaders committed counts as committed here, too (KIP-207)."""
        return self.high_watermark >= self.epoch_start_offset

    @property
    def takes_all(self) -> bool:
        """Whether enough replicas are in sync for what waits for all of them."""
        return len(self.isr) >= self.needed

    # Followers

    def follower_fetched(
        self,
        broker_id: int,
        *,
        broker_epoch: int,
        session: int,
        offset: int,
        log_start: int,
        leader_end: int,
        now_ms: int,
    ) -> bool:
        """A follower fetches from an offset, before which its log agrees with this one and is durable. A fetch of a
        session before the newest is late, and says nothing: False."""
        follower = self.followers.get(broker_id)
        if follower is None or (broker_epoch, session) < (follower.broker_epoch, follower.session):
            return False
        if (broker_epoch, session) > (follower.broker_epoch, follower.session):
            follower.broker_epoch, follower.session = broker_epoch, session
        elif offset < follower.end_offset:
            # An earlier one of the same session, which came late.
            return False
        follower.end_offset, follower.log_start = offset, log_start
        if offset >= leader_end:
            follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        elif offset >= follower.leader_end_then > UNKNOWN:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.fetched_ms, follower.leader_end_then = now_ms, leader_end
        if broker_id in self.maximal_isr:
            self._commit()
        return True

    def lagging(self, now_ms: int, leader_end: int) -> list[int]:
        """In-sync followers that have not had everything for too long."""
        return [
            broker_id
            for broker_id, follower in self.followers.items()
            if broker_id in self.isr and self._lags(follower, now_ms, leader_end)
        ]

    def joining(self, now_ms: int, leader_end: int) -> list[int]:
        """Followers that have come to have everything that is committed, and nothing that is deleted, in this epoch of
        the leader and since they left, and that would not have to leave at once."""
        floor = max(self.high_watermark, self.epoch_start_offset)
        return [
            broker_id
            for broker_id, follower in self.followers.items()
            if broker_id not in self.isr
            and follower.end_offset >= floor
            and follower.log_start >= self.log_start
            and follower.broker_epoch > UNKNOWN
            and now_ms >= follower.rests_until_ms
            and not self._lags(follower, now_ms, leader_end)
        ]

    def _lags(self, follower: FollowerProgress, now_ms: int, leader_end: int) -> bool:
        return follower.end_offset < leader_end and now_ms - follower.caught_up_ms > self.lag_ms

    @property
    def low_watermark(self) -> int:
        """From where on all in-sync replicas have records, and those that may be by a proposal."""
        followers = self.maximal_isr - {self.broker_id}
        return min([self.log_start, *(self.followers[broker_id].log_start for broker_id in followers)])

    def has_deleted(self, offset: int) -> bool:
        """Whether what lies before an offset stays deleted, whichever replica leads next. While too few are in sync,
        that may be one that has left and not deleted it."""
        return self.takes_all and self.low_watermark >= offset

    def fell_behind(self, now_ms: int) -> None:
        """Until now all followers had everything."""
        for follower in self.followers.values():
            follower.caught_up_ms = max(follower.caught_up_ms, now_ms)

    def is_complete(self, leader_end: int) -> bool:
        """Whether all followers are in sync, have everything, and nothing is proposed."""
        return (
            self.proposal is None
            and len(self.isr) == len(self.replicas)
            and all(follower.end_offset >= leader_end for follower in self.followers.values())
        )

    # Proposals

    def next_proposal(self, now_ms: int, leader_end: int) -> Proposal | None:
        """What to ask the controller for now; None if it is to be waited for, or if nothing is to change. One whose
        outcome is unknown is made again as it was."""
        if self._is_under_way or self._is_accepted:
            return None
        if self.proposal is None:
            wanted = (self.isr - frozenset(self.lagging(now_ms, leader_end))) | frozenset(
                self.joining(now_ms, leader_end)
            )
            if wanted == self.isr:
                return None
            self._propose(wanted)
        self._is_under_way = True
        return self.proposal

    def answered(
        self, proposal: Proposal, answer: Answered, *, was_repeated: bool = False, now_ms: int = UNKNOWN
    ) -> None:
        """The controller has answered, or will not. What is accepted counts once the metadata log has it. If it was
        repeated on its way, a refusal says nothing of the other copies."""
        if proposal != self.proposal or not self._is_under_way:
            return
        self._is_under_way = False
        if answer is Answered.REFUSED:
            for broker_id in proposal.brokers - self.isr:
                self.followers[broker_id].rests_until_ms = now_ms + REST_MS
        match answer:
            case Answered.ACCEPTED:
                self._is_accepted = True
            case Answered.UNKNOWN:
                self._is_unknown = True
            case Answered.REFUSED if self._is_unknown or was_repeated:
                # An earlier copy of it may still be under way. A change that changes nothing makes that one void.
                self._propose(self.isr, maximal=self.maximal_isr)
                self._is_unknown = True
            case Answered.REFUSED:
                self._end_proposal()
                self._commit()

    def _propose(self, isr: Iterable[int], maximal: frozenset[int] | None = None) -> None:
        members = tuple(
            (broker_id, self.broker_epoch if broker_id == self.broker_id else self.followers[broker_id].broker_epoch)
            for broker_id in self.replicas
            if broker_id in frozenset(isr)
        )
        self.proposal = Proposal(self.leader_epoch, self.partition_epoch, members)
        self.maximal_isr = maximal or (self.isr | self.proposal.brokers)

    def _end_proposal(self) -> None:
        self.proposal = None
        self._is_under_way = self._is_accepted = self._is_unknown = False
        self.maximal_isr = self.isr

    # What the metadata log says

    def state_changed(
        self,
        isr: Collection[int],
        partition_epoch: int,
        min_isr: int | None,
        *,
        replicas: Collection[int] | None = None,
        adding: Collection[int] = (),
    ) -> int:
        """The partition has a new state, in the same epoch of its leader, or its topic other settings. Its replicas are
        those that it had, unless others are given. Returns the high watermark."""
        if partition_epoch > self.partition_epoch:
            for broker_id in self.isr.difference(isr):
                # It may be gone: only when it fetches again does it count again.
                self.followers[broker_id].end_offset = UNKNOWN
            if replicas is not None:
                self._have_replicas(tuple(replicas))
            self.isr, self.partition_epoch = frozenset(isr), partition_epoch
            self._end_proposal()
        self.needed = needed(min_isr, len(self.replicas) - len(adding))
        self._commit()
        return self.high_watermark

    def _have_replicas(self, replicas: tuple[int, ...]) -> None:
        """A follower that is new has never been caught up."""
        self.replicas = replicas
        self.followers = {
            replica: self.followers.get(replica) or FollowerProgress(caught_up_ms=UNKNOWN)
            for replica in replicas
            if replica != self.broker_id
        }

    def _commit(self) -> None:
        if len(self.isr) < self.needed:
            return
        end = self.end_offset
        for broker_id in self.maximal_isr:
            if broker_id != self.broker_id:
                end = min(end, self.followers[broker_id].end_offset)
        self.high_watermark = max(self.high_watermark, end)
