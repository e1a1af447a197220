"""A group in a storm: clients that join, leave, crash and stall, a network that loses, doubles and reorders, a log that
refuses and stalls, and a coordinator that starts over. Everything by one chance, so that a seed tells all of it.

The coordinator is the real one: `GroupShard` inside `DecisionQueue`. The world plays its log, its network and its
clock, and holds every answer against what the log has committed by then. What must never happen has a name in `Watch`;
what must happen in some seed is listed in `STATES`.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

from penstock.machines.groups.changes import Instant
from penstock.machines.groups.classic import State
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from penstock.protocol.schemas.groups import JoinGroupResponse, SyncGroupResponse
from tests.machines.groups.simulated_client import GROUP, Client, Sent
from tests.machines.groups.simulated_coordinator import Coordinator
from tests.machines.groups.watch import PARTITIONS, Watch

STALL_MS: Final = 60_000
WALL_MS: Final = 1_700_000_000_000

SUDDEN: Final = ("leave", "crash", "pause", "refuse", "stall", "restart", "restart with the next append")
LASTING: Final = ("dawdle", "lose", "double", "reorder", "slow log")
HARMLESS: Final = ("refuse", "stall", "slow log")
"""The log's faults: no member may be lost by them."""

STATES: Final = frozenset(
    {
        "the first rebalance was put off for newcomers",
        "a leader was elected because the old one did not come",
        "a follower waited for the plan",
        "a member left",
        "a member fell silent in Stable",
        "a member fell silent in PreparingRebalance",
        "a member fell silent in CompletingRebalance",
        "an invitation ran out",
        "somebody did not join again in time",
        "somebody did not ask for the plan in time",
        "everybody was gone",
        "a static member was replaced in Stable",
        "a static member was replaced in PreparingRebalance",
        "a static member was replaced in CompletingRebalance",
        "a static member was fenced",
        "a commit of an old generation was refused",
        "a commit of an unknown member was refused",
        "a commit was refused while the plan was awaited",
        "the log refused a decision",
        "the log was stalled and nobody's time was up",
        "the backlog was full",
        "the coordinator was loading",
        "the coordinator started over in Empty",
        "the coordinator started over in PreparingRebalance",
        "the coordinator started over in CompletingRebalance",
        "the coordinator started over in Stable",
        "a restart lost what was not committed",
        "a restart kept what was not committed",
        "a plan was told again to a member that missed it",
        "a later generation found what an earlier one had committed",
        "a log that was stalled for a minute lost nobody",
        "a caller hung up while it waited",
    }
)


def run(chance: Random, reached: Counter[str]) -> None:
    """One storm, and the calm behind it."""
    possible, share = (HARMLESS, 0.7) if chance.random() < 0.2 else ((*SUDDEN, *LASTING), 0.35)
    world = World(chance, frozenset(fault for fault in possible if chance.random() < share), reached)
    world.storm(until_ms=chance.randrange(20_000, 50_000))
    world.calm()


class World:
    """Time, chance and the network."""

    def __init__(self, chance: Random, faults: frozenset[str], reached: Counter[str]) -> None:
        self.chance = chance
        self.faults = faults
        self.reached = reached
        self.now = Instant(1_000, WALL_MS)
        self.watch = Watch()
        # Ids of members that were removed, other than by their own wish.
        self.lost: list[str] = []
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._deliveries = 0
        # When the last message of a connection arrives: those behind it do not overtake it.
        self._arrivals: dict[tuple[str, int, bool], int] = {}
        # Commits that were acknowledged when a fetch of offsets came in.
        self._known: dict[Sent, dict[int, int]] = {}
        self.coordinator = Coordinator(self)
        static = chance.randrange(4)
        version = 9 if faults <= {*HARMLESS} else chance.choice([3, 9])
        self.clients = [
            Client(self, f"c{number}", instance_id=f"i{number}" if number < static else None, version=version)
            for number in range(chance.randrange(1, 6))
        ]

    def at(self, ms: int, act: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        heappush(self._events, (ms, self._count, act, arguments))

    def pass_time(self, until_ms: int) -> None:
        while self._events and self._events[0][0] <= until_ms:
            ms, _, act, arguments = heappop(self._events)
            self.now = Instant(ms, WALL_MS + ms) if ms > self.now.ms else self.now
            act(*arguments)
        self.now = Instant(until_ms, WALL_MS + until_ms)

    def storm(self, until_ms: int) -> None:
        chance = self.chance
        for client in self.clients:
            self.at(self.now.ms + chance.randrange(4_000), client.start)
        sudden = [fault for fault in SUDDEN if fault in self.faults]
        when_ms = self.now.ms
        while sudden and (when_ms := when_ms + chance.randrange(200, 9_000)) < until_ms:
            self.at(when_ms, self.strike, chance.choice(sudden))
        self.pass_time(until_ms)

    def strike(self, fault: str) -> None:
        chance, coordinator = self.chance, self.coordinator
        client = chance.choice(self.clients)
        match fault:
            case "leave":
                client.leave()
                self.at(self.now.ms + chance.randrange(10, 10_000), client.start)
            case "crash":
                client.crash()
                self.at(self.now.ms + chance.randrange(10, 10_000), client.start)
            case "pause":
                client.pause(chance.choice([500, 3_000, 7_000, 15_000]))
            case "refuse":
                coordinator.takes_nothing_until_ms = self.now.ms + chance.choice([200, 2_000, 20_000])
            case "stall":
                ms = chance.choice([500, 3_000, STALL_MS])
                coordinator.stalled_until_ms = self.now.ms + ms
                if ms == STALL_MS and self.faults <= {*HARMLESS} and coordinator.group_state is State.STABLE:
                    self.reached["a log that was stalled for a minute lost nobody"] += 1
            case "restart":
                coordinator.restart()
            case _:
                coordinator.restarts_with_the_next_append = True

    def calm(self) -> None:
        """No more faults: before long everybody is in the group, and every partition is owned once."""
        stormy, self.faults = self.faults, frozenset()
        coordinator = self.coordinator
        for client in self.clients:
            client.paused_until_ms = min(client.paused_until_ms, self.now.ms + 1)
            self.at(self.now.ms + 1, client.start)
        if not stormy <= {*HARMLESS}:
            coordinator.stalled_until_ms = coordinator.takes_nothing_until_ms = 0
        for _ in range(60):
            self.pass_time(self.now.ms + 5_000)
            if self.is_settled():
                break
        else:
            raise AssertionError(f"not every partition is owned once the storm is over: {self.told()}")
        # The log's faults alone cost nobody the membership.
        assert not (stormy <= {*HARMLESS} and self.lost), f"a stalled log has lost members: {self.lost}"

    def is_settled(self) -> bool:
        owned = [index for client in self.clients for index in client.owned]
        queue = self.coordinator.queue
        group = queue.machine._groups.get(GROUP) if queue else None
        return (
            group is not None
            and group.state is State.STABLE
            and all(client.is_member and client.generation == group.generation for client in self.clients)
            and len(group.members) == len(self.clients)
            and sorted(owned) == sorted(PARTITIONS)
        )

    def told(self) -> str:
        clients = [(c.name, c.is_member, c.generation, c.owned, list(c.waiting.values())) for c in self.clients]
        queue = self.coordinator.queue
        return f"{clients} {queue.machine._groups if queue else None}"

    def deliver(self, sent: Sent) -> None:
        """A request goes to the coordinator. Commits are neither doubled nor reordered on their connection, as a
        stream carries them; a client that gave up a connection may still have some on it."""
        chance, faults = self.chance, self.faults
        if "lose" in faults and chance.random() < 0.04:
            return
        is_commit = isinstance(sent.request, OffsetCommitRequest)
        copies = 2 if "double" in faults and not is_commit and chance.random() < 0.08 else 1
        for _ in range(copies):
            self._deliveries += 1
            delivered = replace(sent, delivery=self._deliveries)
            self.at(self._arrival(sent, is_ordered=is_commit, back=False), self.arrived, delivered)

    def arrived(self, sent: Sent) -> None:
        if isinstance(sent.request, OffsetFetchRequestGroup):
            self._known[sent] = dict(self.watch.acknowledged)
        self.coordinator.receive(sent)

    def answered(self, sent: Sent, response: Message) -> None:
        """An answer leaves the coordinator: from now on it is true for good."""
        self.hold_against_the_log(sent, response)
        if "lose" in self.faults and self.chance.random() < 0.04:
            return
        self.at(self._arrival(sent, is_ordered=False, back=True), sent.client.receive, sent, response)

    def hold_against_the_log(self, sent: Sent, response: Message) -> None:
        watch, request = self.watch, sent.request
        match response:
            case SyncGroupResponse(error_code=0):
                identity = request.group_instance_id or request.member_id
                watch.no_reply_reveals_an_uncommitted_assignment(
                    request.generation_id, request.member_id, response.assignment
                )
                watch.one_owner_per_partition_per_generation(request.generation_id, identity, response.assignment)
                if not request.assignments and self.coordinator.group_state is State.STABLE:
                    self.reached["a plan was told again to a member that missed it"] += 1
            case JoinGroupResponse(error_code=0):
                assert response.generation_id >= watch.told_generation, "a generation was told after a later one"
                assert response.generation_id >= watch.stored_generation or response.skip_assignment
                watch.told_generation = response.generation_id
            case OffsetCommitResponse():
                self._commit_answered(request, response)
            case OffsetFetchResponseGroup(error_code=0):
                known = self._known.pop(sent)
                told = {part.partition_index: part for topic in response.topics for part in topic.partitions}
                for index in PARTITIONS:
                    part = told.get(index)
                    offset, metadata = (part.committed_offset, part.metadata or "") if part else (-1, "")
                    by = watch.no_reply_reveals_an_uncommitted_offset(index, offset, metadata, known[index])
                    if 0 <= by < sent.client.generation:
                        self.reached["a later generation found what an earlier one had committed"] += 1

    def _commit_answered(self, request: OffsetCommitRequest, response: OffsetCommitResponse) -> None:
        for asked, part in zip(request.topics[0].partitions, response.topics[0].partitions, strict=True):
            match part.error_code:
                case ErrorCode.NONE:
                    place = self.watch.places.get(asked.committed_metadata or "")
                    assert place is not None, "a commit was acknowledged that the log has not committed"
                    index = asked.partition_index
                    self.watch.acknowledged[index] = max(self.watch.acknowledged[index], place)
                case ErrorCode.ILLEGAL_GENERATION:
                    self.reached["a commit of an old generation was refused"] += 1
                case ErrorCode.UNKNOWN_MEMBER_ID:
                    self.reached["a commit of an unknown member was refused"] += 1
                case ErrorCode.REBALANCE_IN_PROGRESS:
                    self.reached["a commit was refused while the plan was awaited"] += 1

    def _arrival(self, sent: Sent, *, is_ordered: bool, back: bool) -> int:
        chance = self.chance
        ms = self.now.ms + chance.randrange(1, 40)
        if "reorder" in self.faults and chance.random() < 0.1:
            ms += chance.randrange(5_000)
        if is_ordered or "reorder" not in self.faults:
            key = (sent.client.name, sent.connection, back)
            ms = self._arrivals[key] = max(self._arrivals.get(key, 0) + 1, ms)
        return ms
