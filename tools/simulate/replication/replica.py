"""A replica leads or follows as the image of its broker says, and does with its log what the machines say."""

from typing import TYPE_CHECKING, Final

from penstock.machines import elections
from penstock.machines.cluster_records import PartitionImage
from penstock.machines.parting import parting
from penstock.machines.partition_follower import FetchFrom
from penstock.machines.partition_leader import Answered, PartitionLeader, Proposal
from penstock.protocol.error_codes import ErrorCode
from tools.simulate.replication import states
from tools.simulate.replication.disk import DiskLog, Entry
from tools.simulate.replication.following import FetchAnswer, Following

if TYPE_CHECKING:
    from tools.simulate.replication.node import Node

Key = tuple[bytes, int]
"""A topic's id, and the number of a partition."""

LAG_MS: Final = 220
PROPOSE_EVERY_MS: Final = 25
PROPOSAL_TIMEOUT_MS: Final = 70
MOST_FETCHED: Final = 6
SYSTEM_FLUSH_MS: Final = 400


class Replica:
    """What a running broker knows of a partition. The log is on its disk."""

    __slots__ = (
        "deletions", "following", "high_watermark", "is_flushing", "key", "leader", "log", "node", "unknown", "waiting",
        "world"
    )  # fmt: skip

    def __init__(self, node: "Node", key: Key, log: DiskLog) -> None:
        self.node = node
        self.world = node.world
        self.key = key
        self.log = log
        self.high_watermark = max(log.start_offset, min(log.saved_high_watermark, log.end_offset))
        self.leader: PartitionLeader | None = None
        self.following: Following | None = None
        self.waiting: list[tuple[int, Entry]] = []
        """What producers wait for that want all replicas to have it: offsets, and what is there."""
        self.deletions: list[int] = []
        """What clients wait for that have had records deleted: where the log is to begin."""
        self.is_flushing = False
        self.unknown: Proposal | None = None

    def __str__(self) -> str:
        return f"broker {self.node.id} ({self.key[0][-1]}-{self.key[1]})"

    # What the image says

    def image_changed(self, image: PartitionImage, min_isr: int | None) -> None:
        leader, following, node = self.leader, self.following, self.node
        if image.leader == node.id:
            if leader is None or leader.leader_epoch != image.leader_epoch:
                self._lead(image, min_isr)
            elif leader.partition_epoch != image.partition_epoch or leader.needed != elections.needed(
                min_isr, len(leader.replicas)
            ):
                self._state_changed(leader, image, min_isr)
            return
        if leader is not None:
            self.leader, self.unknown = None, None
            self._refuse()
        if image.leader < 0:
            self.following = None
        elif following is None or not following.follows(image):
            self.following = Following(self, image)
            self.following.begin()

    def _lead(self, image: PartitionImage, min_isr: int | None) -> None:
        world, log, node = self.world, self.log, self.node
        self.following, self.unknown = None, None
        self._refuse()
        log.epochs.begin(image.leader_epoch, log.end_offset)
        leader = self.leader = PartitionLeader.elected(
            broker_id=node.id,
            broker_epoch=node.epoch,
            leader_epoch=image.leader_epoch,
            partition_epoch=image.partition_epoch,
            replicas=image.replicas,
            isr=image.isr,
            min_isr=min_isr,
            log_start=log.start_offset,
            log_end=log.end_offset,
            durable_end=self.durable_end,
            high_watermark=self.high_watermark,
            now_ms=world.now,
            lag_ms=LAG_MS,
        )
        world.ledger.elected(self, leader)
        self.committed(leader.high_watermark)
        self.flush_later()
        world.after(1, node, self.propose, leader)

    def _state_changed(self, leader: PartitionLeader, image: PartitionImage, min_isr: int | None) -> None:
        world = self.world
        if self.unknown is not None and image.partition_epoch == self.unknown.partition_epoch + 1:
            if frozenset(image.isr) == self.unknown.brokers and self.unknown.brokers != leader.isr:
                world.reach(states.UNKNOWN_ACCEPTED)
            self.unknown = None
        world.ledger.state_changed(self, leader, image)
        self.committed(leader.state_changed(image.isr, image.partition_epoch, min_isr))
        world.ledger.check_maximal(self, leader)
        if not leader.takes_all and self.waiting:
            world.reach(states.REFUSED_AFTER)
            self.waiting.clear()
        self._end_deletions(leader)

    def _refuse(self) -> None:
        """It leads no longer, or in another epoch: clients are to ask again."""
        self.waiting.clear()
        self.deletions.clear()

    def committed(self, high_watermark: int) -> None:
        before = self.high_watermark
        if high_watermark == before:
            return
        self.high_watermark = high_watermark
        ledger, waiting = self.world.ledger, self.waiting
        ledger.committed(self, before, high_watermark)
        while waiting and waiting[0][0] < high_watermark:
            ledger.acknowledged(self, *waiting.pop(0))

    # Its log

    @property
    def durable_end(self) -> int:
        """The end that counts for what is committed."""
        return self.log.flushed

    def flush_later(self) -> None:
        """Something was written, which counts when it is flushed. If that does not matter it counts now, and the system
        flushes it at some time."""
        if not self.is_flushing and self.log.synced < self.log.end_offset:
            self.is_flushing = True
            delay = SYSTEM_FLUSH_MS if self.log.is_unsynced else self.world.flush_delay()
            self.world.after(delay, self.node, self._flush)
        if self.log.is_unsynced:
            self._advanced()

    def _flush(self) -> None:
        self.is_flushing = False
        self.log.synced = self.log.end_offset
        if not self.log.is_unsynced:
            self._advanced()
        if self.world.chance(0.3):
            self.log.saved_high_watermark = self.high_watermark

    def _advanced(self) -> None:
        """More of the log counts than before."""
        leader = self.leader
        if leader is not None:
            before = leader.high_watermark
            self.committed(leader.log_advanced(self.durable_end))
            if leader.high_watermark == before and not leader.takes_all:
                self.world.reach(states.FROZEN)
        elif self.following is not None:
            self.following.flushed()

    # Clients

    def produce(self, value: int, acks_all: bool) -> None:
        leader, world, log = self.leader, self.world, self.log
        if leader is None:
            return
        if acks_all and not leader.takes_all:
            world.reach(states.REFUSED_UP_FRONT)
            return
        if log.foreign < 0 and world.metadata.is_deposed(self.key, leader.leader_epoch):
            log.foreign = log.end_offset
        entry = (leader.leader_epoch, value)
        if acks_all:
            self.waiting.append((log.end_offset, entry))
        world.ledger.appended(self, entry)
        log.append([entry])
        if world.told is not None:
            world.tell(f"{self} appended {value} at {log.end_offset - 1} in epoch {leader.leader_epoch}")
        self.flush_later()

    def delete_records(self) -> None:
        """What is committed may be deleted, up to any offset."""
        leader, log = self.leader, self.log
        if leader is not None and leader.is_settled and leader.high_watermark > log.start_offset:
            log.delete_before(self.world.random.randint(log.start_offset + 1, leader.high_watermark))
            leader.records_deleted(log.start_offset)
            self.world.ledger.deleted(self)
            self.deletions.append(log.start_offset)
            self._end_deletions(leader)

    def _end_deletions(self, leader: PartitionLeader) -> None:
        while self.deletions and leader.has_deleted(self.deletions[0]):
            self.world.reach(states.DELETED)
            self.world.ledger.deletion_acknowledged(self, self.deletions.pop(0))
        if self.deletions and not leader.takes_all:
            self.world.reach(states.DELETION_FROZEN)

    def read(self) -> None:
        leader = self.leader
        if leader is None:
            return
        if leader.is_settled:
            self.world.ledger.read(self, leader)
        else:
            self.world.reach(states.UNSETTLED)

    # Followers

    def serve(self, follower_id: int, broker_epoch: int, session: int, fetch: FetchFrom) -> FetchAnswer:
        world, leader, log = self.world, self.leader, self.log
        if leader is None:
            return FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        problem = parting(
            leader,
            log,
            follower_id,
            leader_epoch=fetch.leader_epoch,
            offset=fetch.offset,
            last_fetched_epoch=fetch.last_fetched_epoch,
        )
        answer = FetchAnswer(ErrorCode.NONE, log.start_offset, leader.high_watermark)
        if problem is not None:
            if isinstance(problem, tuple):
                answer.diverging = problem
            else:
                answer.error = problem
                if problem in states.OF_ERRORS:
                    world.reach(states.OF_ERRORS[problem])
            return answer
        end, offset = log.end_offset, fetch.offset
        if leader.follower_fetched(
            follower_id,
            broker_epoch=broker_epoch,
            session=session,
            offset=offset,
            log_start=fetch.log_start,
            leader_end=end,
            now_ms=world.now,
        ):
            self.committed(leader.high_watermark)
            self._end_deletions(leader)
            answer.high_watermark = leader.high_watermark
        else:
            known = leader.followers[follower_id]
            if (broker_epoch, session) < (known.broker_epoch, known.session):
                world.reach(states.LATE_FETCH)
        answer.entries = log.slice(offset, min(end, offset + MOST_FETCHED))
        return answer

    # Who is in sync

    def propose(self, leader: PartitionLeader) -> None:
        if leader is not self.leader:
            return
        world = self.world
        # It may have registered anew, and leads on.
        leader.broker_epoch = self.node.epoch
        proposal = leader.next_proposal(world.now, self.log.end_offset)
        world.after(PROPOSE_EVERY_MS, self.node, self.propose, leader)
        if proposal is None:
            return
        if world.told is not None:
            world.tell(f"{self} proposes {proposal}")
        if len(proposal.isr) < len(leader.isr):
            world.reach(states.LAGGED)
        world.metadata.propose(self, leader, proposal)
        world.after(PROPOSAL_TIMEOUT_MS, self.node, self._proposal_lost, leader, proposal)

    def _proposal_lost(self, leader: PartitionLeader, proposal: Proposal) -> None:
        if leader is self.leader and leader.proposal == proposal:
            leader.answered(proposal, Answered.UNKNOWN, now_ms=self.world.now)
            if self.unknown is None and proposal.brokers != leader.isr:
                self.unknown = proposal
            self._look(leader)

    def proposal_answered(self, leader: PartitionLeader, proposal: Proposal, code: ErrorCode) -> None:
        if leader is not self.leader:
            return
        world = self.world
        is_ours = leader.proposal == proposal
        leader.answered(proposal, Answered.by(code), was_repeated=world.repeats, now_ms=world.now)
        if is_ours and leader.proposal is not None and leader.proposal != proposal:
            world.reach(states.UNKNOWN_VOIDED)
        self._look(leader)

    def _look(self, leader: PartitionLeader) -> None:
        self.committed(leader.high_watermark)
        self.world.ledger.check_maximal(self, leader)
