"""A consumer in a simulated world, as simple as it can be: it gives up everything when it has to join again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.machines.groups.responses import Request
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from penstock.protocol.schemas.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.machines.groups.watch import PARTITIONS

if TYPE_CHECKING:
    from tests.machines.groups.simulation import World

GROUP: Final = "g"
SESSION_MS: Final = 6_000
REBALANCE_MS: Final = 8_000
HEARTBEAT_MS: Final = 2_000
REQUEST_TIMEOUT_MS: Final = 4_000


@dataclass(slots=True, frozen=True, eq=False)
class Sent:
    """A request on its way. It is the token too: each delivery is one of its own."""

    client: "Client"
    life: int
    number: int
    delivery: int
    request: Any
    connection: int


class Client:
    """It starts, and from then on does by itself what a member does, until it crashes or leaves."""

    def __init__(self, world: "World", name: str, *, instance_id: str | None, version: int) -> None:
        self.world = world
        self.name = name
        self.instance_id = instance_id
        self.version = version
        self.life = 0
        self.member_id = ""
        self.generation = -1
        self.owned = b""
        self.positions: dict[int, int] = {}
        self.is_up = False
        self.is_member = False
        self.paused_until_ms = 0
        self.connection = 0
        self.numbers = 0
        self.is_dawdling = False
        # What it waits for, by the number of the request.
        self.waiting: dict[int, Any] = {}

    def start(self) -> None:
        if self.is_up:
            return
        self.is_up, self.life = True, self.life + 1
        self.member_id, self.generation = "", -1
        self.waiting.clear()
        self.rejoin()
        self.later(HEARTBEAT_MS, self.heartbeat)
        self.later(self.world.chance.randrange(300, 1_500), self.commit)

    def crash(self) -> None:
        self.lose_everything()
        self.is_up, self.life = False, self.life + 1
        self.hang_up()

    def hang_up(self) -> None:
        if self.world.chance.random() < 0.5:
            self.world.coordinator.hung_up(self, self.connection)
        self.connection += 1

    def leave(self) -> None:
        if self.is_up and self.member_id:
            identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
            self.ask(LeaveGroupRequest(group_id=GROUP, members=[identity]))
        self.crash()

    def pause(self, ms: int) -> None:
        self.paused_until_ms = self.world.now.ms + ms

    def lose_everything(self) -> None:
        self.is_member, self.owned, self.is_dawdling = False, b"", False

    def later(self, ms: int, act: Callable[[], None]) -> None:
        self.world.at(self.world.now.ms + ms, self.act, self.life, act)

    def act(self, life: int, act: Callable[[], None]) -> None:
        if life != self.life:
            return
        if self.world.now.ms < self.paused_until_ms:
            self.world.at(self.paused_until_ms, self.act, life, act)
        else:
            act()

    def ask(self, request: Request, timeout_ms: int = REQUEST_TIMEOUT_MS) -> None:
        self.numbers += 1
        number = self.numbers
        self.waiting[number] = request
        self.world.deliver(Sent(self, self.life, number, 0, request, self.connection))
        self.later(timeout_ms, lambda: self.timed_out(number))

    def timed_out(self, number: int) -> None:
        """No answer: try again on another connection, as clients do."""
        request = self.waiting.pop(number, None)
        if request is None:
            return
        self.hang_up()
        if isinstance(request, JoinGroupRequest | SyncGroupRequest):
            self.rejoin()

    def receive(self, sent: Sent, response: Message) -> None:
        if sent.life != self.life:
            return
        if self.world.now.ms < self.paused_until_ms:
            self.world.at(self.paused_until_ms, self.receive, sent, response)
            return
        if self.waiting.pop(sent.number, None) is None:
            return
        match response:
            case JoinGroupResponse():
                self.joined(response)
            case SyncGroupResponse():
                self.synced(response)
            case HeartbeatResponse():
                self.heard(sent.request, ErrorCode(response.error_code))
            case OffsetCommitResponse():
                self.heard(sent.request, ErrorCode(response.topics[0].partitions[0].error_code))
            case OffsetFetchResponseGroup():
                told = response.topics[0].partitions if response.topics else ()
                committed = {part.partition_index: part.committed_offset for part in told}
                self.positions = {index: committed.get(index, 0) for index in self.owned}

    def rejoin(self) -> None:
        self.lose_everything()
        self.waiting = {
            number: request
            for number, request in self.waiting.items()
            if not isinstance(request, JoinGroupRequest | SyncGroupRequest)
        }
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        self.ask(request, REBALANCE_MS + 5_000)

    def joined(self, response: JoinGroupResponse) -> None:
        match response.error_code:
            case ErrorCode.NONE:
                self.member_id, self.generation = response.member_id, response.generation_id
                leads = response.leader == response.member_id and not response.skip_assignment
                members = sorted(member.member_id for member in response.members) if leads else []
                parts = [bytes(sorted(PARTITIONS)[at :: len(members)]) for at in range(len(members))]
                plan = [
                    SyncGroupRequestAssignment(member_id=member_id, assignment=part)
                    for member_id, part in zip(members, parts, strict=True)
                ]
                request = SyncGroupRequest(
                    group_id=GROUP,
                    generation_id=self.generation,
                    member_id=self.member_id,
                    group_instance_id=self.instance_id,
                    assignments=plan,
                )
                if self.positions and self.world.chance.random() < 0.2:
                    self.commit_positions()
                self.dawdle(lambda: self.ask(request))
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
                self.rejoin()
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
                self.later(50, self.rejoin)
            case ErrorCode.FENCED_INSTANCE_ID:
                self.fenced()
            case _:
                self.later(100, self.rejoin)

    def synced(self, response: SyncGroupResponse) -> None:
        match response.error_code:
            case ErrorCode.NONE:
                self.is_member, self.owned = True, response.assignment
                self.positions = {}
                # Nothing is asked for by topic: the answer holds everything that the group has committed.
                self.ask(OffsetFetchRequestGroup(group_id=GROUP, topics=None))
            case ErrorCode.FENCED_INSTANCE_ID:
                self.fenced()
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
                self.rejoin()
            case _:
                self.later(50, self.rejoin)

    def heard(self, request: Any, code: ErrorCode) -> None:
        """What heartbeats and commits are told. An answer about a generation that is over says nothing any more."""
        generation = getattr(request, "generation_id", getattr(request, "generation_id_or_member_epoch", -1))
        if not (self.is_member or self.is_dawdling) or generation != self.generation:
            return
        match code:
            case ErrorCode.REBALANCE_IN_PROGRESS:
                if not self.is_dawdling:
                    self.dawdle(self.rejoin)
            case ErrorCode.ILLEGAL_GENERATION:
                self.rejoin()
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.GROUP_ID_NOT_FOUND:
                self.member_id = ""
                self.rejoin()
            case ErrorCode.FENCED_INSTANCE_ID:
                self.fenced()

    def dawdle(self, act: Callable[[], None]) -> None:
        """Do it now, or a while later and send heartbeats meanwhile: there is a message that takes its time."""
        if "dawdle" not in self.world.faults or self.world.chance.random() < 0.7:
            act()
            return
        self.is_dawdling, generation = True, self.generation
        self.later(self.world.chance.randrange(12_000), lambda: self.done(generation, act))

    def done(self, generation: int, act: Callable[[], None]) -> None:
        if self.is_dawdling and generation == self.generation:
            self.is_dawdling = False
            act()

    def fenced(self) -> None:
        self.world.reached["a static member was fenced"] += 1
        self.crash()
        # There is one of each instance, so that only a ghost of an earlier life can have been meant.
        self.later(500, self.start)

    def heartbeat(self) -> None:
        if self.is_member or self.is_dawdling:
            self.ask(
                HeartbeatRequest(
                    group_id=GROUP,
                    generation_id=self.generation,
                    member_id=self.member_id,
                    group_instance_id=self.instance_id,
                )
            )
        self.later(HEARTBEAT_MS, self.heartbeat)

    def commit(self) -> None:
        is_committing = any(isinstance(request, OffsetCommitRequest) for request in self.waiting.values())
        if self.is_member and self.positions and not is_committing:
            self.commit_positions()
        self.later(self.world.chance.randrange(500, 2_000), self.commit)

    def commit_positions(self) -> None:
        partitions = []
        for index in self.positions:
            self.positions[index] += self.world.chance.randrange(5)
            note = f"{self.generation}/{self.member_id}/{self.life}.{self.numbers}.{index}"
            self.world.watch.asked.add(note)
            partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=self.positions[index], committed_metadata=note
                )
            )
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)],
        )
        self.ask(request)
