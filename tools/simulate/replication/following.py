"""A replica follows one leader in one of its epochs: it fetches, appends, flushes and fetches on."""

from typing import TYPE_CHECKING, Any, Final

from penstock.machines.cluster_records import PartitionImage
from penstock.machines.partition_follower import Append, FetchFrom, PartitionFollower, StartAt, Truncate
from penstock.protocol.error_codes import ErrorCode
from tools.simulate.replication import states
from tools.simulate.replication.disk import Entry

if TYPE_CHECKING:
    from tools.simulate.replication.node import Node
    from tools.simulate.replication.replica import Replica

FETCH_PAUSE_MS: Final = 22
FETCH_TIMEOUT_MS: Final = 90


class FetchAnswer:
    __slots__ = ("diverging", "entries", "error", "high_watermark", "log_start")

    def __init__(self, error: ErrorCode, log_start: int = -1, high_watermark: int = 0) -> None:
        self.error = error
        self.log_start = log_start
        self.high_watermark = high_watermark
        self.diverging: tuple[int, int] | None = None
        self.entries: list[Entry] = []


class Following:
    __slots__ = ("awaits_flush", "cuts", "incarnation", "machine", "node", "replica", "world")

    def __init__(self, replica: "Replica", image: PartitionImage) -> None:
        self.replica = replica
        self.node = replica.node
        self.world = replica.world
        self.incarnation = self.node.incarnation
        self.machine = PartitionFollower(image.leader, image.leader_epoch, replica.high_watermark)
        self.awaits_flush = False
        self.cuts = 0
        """Since it last had something in common with the leader."""

    def follows(self, image: PartitionImage) -> bool:
        return (self.machine.leader_id, self.machine.leader_epoch) == (image.leader, image.leader_epoch)

    def begin(self) -> None:
        """Elections here that brought no record are forgotten."""
        log, node = self.replica.log, self.node
        if log.epochs.entries and log.epochs.entries[-1][1] >= log.end_offset:
            self.world.reach(states.EMPTY_EPOCH)
        log.epochs.truncate(log.end_offset)
        node.session += 1
        self.replica.flush_later()
        self._fetch_after(1)

    @property
    def is_over(self) -> bool:
        return self.replica.following is not self or self.node.incarnation != self.incarnation

    # Asking

    def _fetch_after(self, delay: int) -> None:
        self.world.after(delay, self.node, self._fetch)

    def _fetch(self) -> None:
        if self.is_over:
            return
        replica, node, world = self.replica, self.node, self.world
        log = replica.log
        if replica.durable_end < log.end_offset:
            self.awaits_flush = True
            return
        asked = self.machine.fetch(
            durable_end=log.end_offset, last_record_epoch=log.last_record_epoch, log_start=log.start_offset
        )
        if asked is not None:
            leader = world.nodes[self.machine.leader_id]
            world.send(node, leader, self._arrived, asked, node.epoch, node.session)
            world.after(FETCH_TIMEOUT_MS, node, self._lost, asked)

    def flushed(self) -> None:
        """What was appended is durable: the next fetch may say so."""
        if self.awaits_flush:
            self.awaits_flush = False
            self._fetch_after(1)

    def _arrived(self, leader: "Node", asked: FetchFrom, epoch: int, session: int) -> None:
        """The fetch has reached the leader."""
        replica = leader.replicas.get(self.replica.key)
        if replica is None or not leader.serves:
            answer = FetchAnswer(ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            answer = replica.serve(self.node.id, epoch, session, asked)
        self.world.send(leader, self.node, self._answered, asked, answer)

    def _lost(self, asked: FetchFrom) -> None:
        if not self.is_over and self.machine.outstanding is asked:
            self.machine.lost(asked)
            self.node.session += 1
            self._fetch()

    # Answers

    def _answered(self, _: Any, asked: FetchFrom, answer: FetchAnswer) -> None:
        if self.is_over:
            return
        world, log, machine = self.world, self.replica.log, self.machine
        if machine.outstanding is not asked:
            world.reach(states.LATE_ANSWER)
        step = machine.answered(
            asked,
            error=answer.error,
            diverging=answer.diverging,
            leader_log_start=answer.log_start,
            epochs=log.epochs,
            log_start=log.start_offset,
            log_end=log.end_offset,
        )
        if machine.outstanding is not None:
            # It was no answer to what is asked now.
            return
        pause = FETCH_PAUSE_MS
        match step:
            case Append():
                self._append(asked, answer)
                pause = world.fetch_pause(self.node, full=bool(answer.entries))
            case Truncate(end):
                self._cut(end)
                pause = 1
            case StartAt(offset):
                self._start_at(offset)
                pause = 1
        self._fetch_after(pause)

    def _append(self, asked: FetchFrom, answer: FetchAnswer) -> None:
        replica = self.replica
        log = replica.log
        self.world.ledger.copied(replica, asked.offset, answer.entries)
        self.cuts = 0
        if answer.entries:
            log.append(answer.entries)
            replica.flush_later()
        replica.committed(max(log.start_offset, self.machine.committed(answer.high_watermark, log.end_offset)))
        if answer.log_start > log.start_offset:
            log.delete_before(min(answer.log_start, log.end_offset))
            replica.high_watermark = max(replica.high_watermark, log.start_offset)

    def _cut(self, end: int) -> None:
        world, replica = self.world, self.replica
        log = replica.log
        world.reach(states.TRUNCATED)
        self.cuts += 1
        if self.cuts > 1:
            world.reach(states.TWO_ROUNDS)
        if log.foreign >= end:
            world.reach(states.ZOMBIE_CUT)
        if world.told is not None:
            world.tell(f"{replica} is truncated from {log.end_offset} to {end}")
        world.ledger.cut(replica, end)
        log.truncate(end)
        replica.high_watermark = min(replica.high_watermark, end)

    def _start_at(self, offset: int) -> None:
        world, replica = self.world, self.replica
        world.reach(states.START_AT)
        if world.told is not None:
            world.tell(f"{replica} begins anew at {offset}")
        world.ledger.cut(replica, offset)
        replica.log.start_at(offset)
        replica.high_watermark = offset
