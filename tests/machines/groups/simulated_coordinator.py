"""A coordinator in a simulated world: the real machine and the real rules for its log, which the world plays."""

from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.machines import decision_queue
from penstock.machines.decision_queue import Answer, DecisionQueue, Encoded
from penstock.machines.groups.changes import (
    Caller,
    Change,
    Instant,
    LeaderElected,
    MemberLeft,
    RebalancePutOff,
    StaticMemberReplaced,
)
from penstock.machines.groups.classic import State
from penstock.machines.groups.records import GroupStored, decode, encode
from penstock.machines.groups.settings import GroupSettings
from penstock.machines.groups.shard import GroupShard
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import JoinGroupRequest, LeaveGroupRequest
from tests.machines.groups.simulated_client import GROUP, Client, Sent

if TYPE_CHECKING:
    from tests.machines.groups.simulation import World

SETTINGS: Final = GroupSettings(initial_rebalance_delay_ms=1_000)


class WatchedShard(GroupShard):
    """Takes note of what happens to the group."""

    reached: Counter[str]
    leaving: bool = False
    lost: list[str]

    def apply(self, change: Change, now: Instant | None = None) -> None:
        if now is not None:
            self.note(change, now)
        super().apply(change, now)

    def note(self, change: Change, now: Instant) -> None:
        group = self._groups.get(GROUP)
        if group is None:
            return
        state = group.state.value
        match change:
            case MemberLeft(member_id=member_id):
                if self.leaving:
                    self.reached["a member left"] += 1
                    return
                self.lost.append(member_id)
                if member_id in group.invited:
                    self.reached["an invitation ran out"] += 1
                elif group.sessions[member_id] <= now.ms:
                    self.reached[f"a member fell silent in {state}"] += 1
                elif group.state is State.PREPARING:
                    self.reached["somebody did not join again in time"] += 1
                elif member_id in group.unsynced:
                    self.reached["somebody did not ask for the plan in time"] += 1
            case StaticMemberReplaced():
                self.reached[f"a static member was replaced in {state}"] += 1
            case LeaderElected():
                self.reached["a leader was elected because the old one did not come"] += 1
            case RebalancePutOff() if group.is_initial_rebalance:
                self.reached["the first rebalance was put off for newcomers"] += 1
            case GroupStored(members=()) if group.generation:
                self.reached["everybody was gone"] += 1
            case GroupStored() if len(group.syncing) > 1:
                self.reached["a follower waited for the plan"] += 1


class Coordinator:
    """The runtime, as the broker does it, with a log that commits when the world wants."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.log: list[Encoded] = []
        self.appended: deque[Sequence[Encoded]] = deque()
        self.queue: DecisionQueue[WatchedShard] | None = None
        self.life = 0
        self.takes_nothing_until_ms = 0
        self.stalled_until_ms = 0
        self.commit_at_ms = 0
        self.tick_at_ms: int | None = None
        self.restarts_with_the_next_append = False
        self.load()

    @property
    def may_append(self) -> bool:
        return self.world.now.ms >= self.takes_nothing_until_ms

    @property
    def group_state(self) -> State:
        group = self.queue.machine._groups.get(GROUP) if self.queue else None
        return group.state if group else State.EMPTY

    def receive(self, sent: Sent) -> None:
        world, request = self.world, sent.request
        if self.queue is None:
            world.reached["the coordinator was loading"] += 1
            self.send([Answer(sent, GroupShard.refuse(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))])
            return
        version = sent.client.version if isinstance(request, JoinGroupRequest) else 5
        caller = Caller(sent, version, sent.client.name, "/127.0.0.1")
        uuid = f"{sent.client.name}{sent.delivery}"
        shard = self.queue.machine
        shard.leaving = isinstance(request, LeaveGroupRequest)
        is_full = self.queue.uncommitted >= decision_queue.MAX_UNCOMMITTED
        answers = self.queue.submit(request, caller, world.now, may_append=self.may_append, new_member_id=uuid)
        shard.leaving = False
        for answer in answers:
            if getattr(answer.response, "error_code", 0) == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                world.reached["the backlog was full" if is_full else "the log refused a decision"] += 1
        self.send(answers)
        self.end_turn()

    def end_turn(self) -> None:
        running, world = self.queue, self.world
        if running is None:
            return
        if running.has_records:
            self.appended.append(running.take_records())
            slow_ms = 1_500 if "slow log" in world.faults and world.chance.random() < 0.1 else 20
            self.commit_at_ms = max(self.commit_at_ms, world.now.ms + world.chance.randrange(1, slow_ms))
            world.at(self.commit_at_ms, self.commit, self.life)
            if self.restarts_with_the_next_append:
                self.restarts_with_the_next_append = False
                world.at(world.now.ms, self.restart)
        deadline_ms = running.next_deadline()
        if deadline_ms is not None:
            self.tick_later(deadline_ms if deadline_ms > world.now.ms else world.now.ms + 100)

    def commit(self, life: int) -> None:
        if life != self.life or self.queue is None or not self.appended:
            return
        if self.world.now.ms < self.stalled_until_ms:
            self.world.at(self.stalled_until_ms, self.commit, life)
            return
        self.keep(self.appended.popleft())
        self.send(self.queue.committed(self.world.now))
        self.end_turn()

    def keep(self, records: Sequence[Encoded]) -> None:
        self.log += records
        for key, value in records:
            record = decode(key, value)
            assert record is not None
            self.world.watch.committed(record)

    def tick(self, life: int) -> None:
        now = self.world.now
        if life != self.life or self.queue is None or now.ms != self.tick_at_ms:
            return
        self.tick_at_ms = None
        deadline_ms = self.queue.next_deadline()
        if deadline_ms is not None and deadline_ms <= now.ms:
            if self.queue.is_stalled(now):
                self.world.reached["the log was stalled and nobody's time was up"] += 1
            self.send(self.queue.tick(now, may_append=self.may_append))
        self.end_turn()

    def tick_later(self, ms: int) -> None:
        if self.tick_at_ms is None or ms < self.tick_at_ms:
            self.tick_at_ms = ms
            self.world.at(ms, self.tick, self.life)

    def send(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            assert isinstance(answer.token, Sent)
            self.world.answered(answer.token, answer.response)

    def restart(self) -> None:
        """The broker dies, or another one takes over: what was appended and not committed may be there or not."""
        world = self.world
        if self.queue is None:
            return
        world.reached[f"the coordinator started over in {self.group_state.value}"] += 1
        kept = world.chance.randint(0, len(self.appended))
        if kept:
            world.reached["a restart kept what was not committed"] += 1
        if kept < len(self.appended):
            world.reached["a restart lost what was not committed"] += 1
        answers = self.queue.lost(ErrorCode.NOT_COORDINATOR)
        self.queue, self.life, self.tick_at_ms = None, self.life + 1, None
        for _ in range(kept):
            self.keep(self.appended.popleft())
        self.appended.clear()
        if world.chance.random() < 0.5:
            self.send(answers)
        world.watch.told_generation = 0
        world.at(world.now.ms + world.chance.randrange(1, 2_000), self.load)

    def hung_up(self, client: Client, connection: int) -> None:
        if self.queue is not None:
            for sent in list(self.queue._parked):
                assert isinstance(sent, Sent)
                if sent.client is client and sent.connection == connection:
                    self.world.reached["a caller hung up while it waited"] += 1
                    self.queue.forget(sent)

    def load(self) -> None:
        world = self.world
        shard = WatchedShard(SETTINGS)
        shard.reached, shard.lost = world.reached, world.lost
        for key, value in self.log:
            read = decode(key, value)
            assert read is not None
            shard.apply(read)
        self.queue = DecisionQueue(shard, encode, max_batch_bytes=SETTINGS.max_record_bytes)
        assert self.queue.take(shard.loaded(world.now), world.now) == []
        self.commit_at_ms = world.now.ms
        self.end_turn()
