"""Plays scripts of what clients ask and shows, line by line, what a shard of groups answers.

    > join a
    a! MEMBER_ID_REQUIRED a-1
    > join a
    Empty -> PreparingRebalance

Lines with `>` are commands; the rest is what follows from them, and `check` compares all of it. `a:` is an answer to
client a that waits for the log, `a!` one that leaves at once, `log` a record. Clients remember their member id and
generation as real ones do. Requests and replies go through the wire in their version, records through their encoding.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from struct import pack
from textwrap import dedent
from typing import Any, Final

from penstock.machines.groups.changes import (
    DURABLE,
    Caller,
    Change,
    Decision,
    DeleteGroup,
    DescribeGroup,
    Instant,
    Reply,
)
from penstock.machines.groups.records import (
    GroupForgotten,
    GroupRecord,
    GroupStored,
    OffsetCommitted,
    OffsetForgotten,
    decode,
    encode,
)
from penstock.machines.groups.responses import Request
from penstock.machines.groups.settings import GroupSettings
from penstock.machines.groups.shard import GroupShard
from penstock.protocol import codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.embedded import ConsumerProtocolSubscription
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from penstock.protocol.schemas.groups import (
    DeletableGroupResult,
    DescribedGroup,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

GROUP: Final = "g"
WALL: Final = 1_700_000_000_000
NEWEST: Final = {"join": 9, "sync": 5, "beat": 4, "leave": 5, "commit": 9, "fetch": 9, "delete-offsets": 0}
UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def check(script: str, **settings: Any) -> None:
    """Play a script and compare what happens with what it says."""
    wanted = dedent(script).strip().splitlines()
    player = Player(GroupSettings(**settings))
    for line in wanted:
        if line.startswith("> "):
            player.play(line)
    assert "\n".join(player.lines) == "\n".join(wanted)


@dataclass(slots=True)
class Client:
    name: str
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


class Player:
    """A shard with its log and its clients."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.shard = GroupShard(settings)
        self.clients: dict[str, Client] = {}
        self.log: list[tuple[bytes, bytes | None]] = []
        self.lines: list[str] = []
        self.now = Instant(1_000_000, WALL)
        self.asked = 0
        self.given: dict[str, int] = {}
        self.perform(self.shard.loaded(self.now))

    def play(self, line: str) -> None:
        self.lines.append(line)
        verb, *words = line.removeprefix("> ").split()
        named = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        before = self.state()
        getattr(self, f"do_{verb.replace('-', '_')}")(plain, named)
        after = self.state()
        if before != after:
            self.lines.append(f"{before} -> {after}")

    def state(self) -> str:
        return next((listed.state for listed in self.shard.groups() if listed.group_id == GROUP), "none")

    def do_join(self, plain: list[str], named: dict[str, str]) -> None:
        client = self.client(plain[0])
        client.instance_id = named.get("instance", client.instance_id)
        metadata = subscription(named.get("topics", "t").split(","))
        if "raw" in named:
            metadata = named["raw"].encode()
        request = JoinGroupRequest(
            group_id=named.get("group", GROUP),
            session_timeout_ms=duration(named.get("session", "10s")),
            rebalance_timeout_ms=duration(named.get("rebalance", "60s")),
            member_id=named.get("id", client.member_id),
            group_instance_id=client.instance_id,
            protocol_type=named.get("type", "consumer"),
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name in named.get("protocols", "range").split(",")
                if name
            ],
        )
        self.ask(client, "join", request, named)

    def do_sync(self, plain: list[str], named: dict[str, str]) -> None:
        client = self.client(plain[0])
        plan = dict(part.split(":") for part in named["plan"].split(",")) if "plan" in named else {}
        request = SyncGroupRequest(
            group_id=named.get("group", GROUP),
            generation_id=int(named.get("gen", client.generation)),
            member_id=named.get("id", client.member_id),
            group_instance_id=named.get("instance", client.instance_id),
            protocol_type=named.get("type"),
            protocol_name=named.get("protocol"),
            assignments=[
                SyncGroupRequestAssignment(member_id=self.client(name).member_id or name, assignment=part.encode())
                for name, part in plan.items()
            ],
        )
        self.ask(client, "sync", request, named)

    def do_beat(self, plain: list[str], named: dict[str, str]) -> None:
        client = self.client(plain[0])
        request = HeartbeatRequest(
            group_id=named.get("group", GROUP),
            generation_id=int(named.get("gen", client.generation)),
            member_id=named.get("id", client.member_id),
            group_instance_id=named.get("instance", client.instance_id),
        )
        self.ask(client, "beat", request, named)

    def do_leave(self, plain: list[str], named: dict[str, str]) -> None:
        version = int(named.get("v", NEWEST["leave"]))
        leaving = [MemberIdentity(member_id=self.client(name).member_id or name) for name in plain]
        if "instance" in named:
            leaving.append(MemberIdentity(member_id=named.get("id", ""), group_instance_id=named["instance"]))
        request = LeaveGroupRequest(group_id=named.get("group", GROUP), members=leaving)
        if version < 3:
            request = LeaveGroupRequest(group_id=GROUP, member_id=leaving[0].member_id)
        self.ask(self.client(plain[0] if plain else "admin"), "leave", request, named)

    def do_commit(self, plain: list[str], named: dict[str, str]) -> None:
        client = self.client(plain[0]) if plain else Client("admin")
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for place, offset in named.items():
            if "-" in place:
                topic, _, partition = place.rpartition("-")
                wanted = OffsetCommitRequestPartition(
                    partition_index=int(partition),
                    committed_offset=int(offset),
                    committed_leader_epoch=int(named.get("epoch", -1)),
                    committed_metadata=named.get("meta"),
                )
                topics.setdefault(topic, []).append(wanted)
        request = OffsetCommitRequest(
            group_id=named.get("group", GROUP),
            generation_id_or_member_epoch=int(named.get("gen", client.generation)),
            member_id=named.get("id", client.member_id),
            group_instance_id=named.get("instance", client.instance_id),
            retention_time_ms=duration(named["keep"]) if "keep" in named else -1,
            topics=[OffsetCommitRequestTopic(name=name, partitions=wanted) for name, wanted in topics.items()],
        )
        self.ask(client, "commit", request, named)

    def do_fetch(self, plain: list[str], named: dict[str, str]) -> None:
        topics: dict[str, list[int]] = {}
        for place in plain:
            topic, _, partition = place.rpartition("-")
            topics.setdefault(topic, []).append(int(partition))
        wanted = [OffsetFetchRequestTopics(name=name, partition_indexes=parts) for name, parts in topics.items()]
        request = OffsetFetchRequestGroup(group_id=named.get("group", GROUP), topics=wanted if plain else None)
        self.ask(Client("admin"), "fetch", request, named)

    def do_delete_offsets(self, plain: list[str], named: dict[str, str]) -> None:
        topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for place in plain:
            topic, _, partition = place.rpartition("-")
            topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=int(partition)))
        wanted = [OffsetDeleteRequestTopic(name=name, partitions=parts) for name, parts in topics.items()]
        request = OffsetDeleteRequest(group_id=named.get("group", GROUP), topics=wanted)
        self.ask(Client("admin"), "delete-offsets", request, named)

    def do_describe(self, plain: list[str], named: dict[str, str]) -> None:
        self.ask(Client("admin"), "describe", DescribeGroup(named.get("group", GROUP)), {"v": "6"} | named)

    def do_delete(self, plain: list[str], named: dict[str, str]) -> None:
        self.ask(Client("admin"), "delete", DeleteGroup(named.get("group", GROUP)), {"v": "2"} | named)

    def do_list(self, plain: list[str], named: dict[str, str]) -> None:
        for listed in self.shard.groups():
            self.lines.append(" ".join(word or "-" for word in listed))

    def do_drop_topic(self, plain: list[str], named: dict[str, str]) -> None:
        self.perform(self.shard.topic_deleted(plain[0], self.now))

    def do_wait(self, plain: list[str], named: dict[str, str]) -> None:
        """Let time pass, and stop wherever something happens."""
        end_ms = self.now.ms + duration(plain[0])
        while (deadline_ms := self.shard.next_deadline()) is not None and deadline_ms <= end_ms:
            self.pass_time(max(0, deadline_ms - self.now.ms))
            for decision in self.shard.tick(self.now):
                self.perform(decision)
        self.pass_time(end_ms - self.now.ms)

    def do_stall(self, plain: list[str], named: dict[str, str]) -> None:
        """Let time pass while nobody can be heard."""
        self.pass_time(duration(plain[0]))
        self.shard.shift_deadlines(duration(plain[0]))

    def do_restart(self, plain: list[str], named: dict[str, str]) -> None:
        """Another coordinator reads the log."""
        for token in self.shard.abandon():
            self.lines.append(f"{named_by(token)}: NOT_COORDINATOR")
        self.shard = replayed(self.log, self.settings)
        self.perform(self.shard.loaded(self.now))

    def do_limit(self, plain: list[str], named: dict[str, str]) -> None:
        """Change a setting."""
        self.settings = replace(self.settings, **{name: int(value) for name, value in named.items()})
        self.shard.settings = self.settings

    def do_hang_up(self, plain: list[str], named: dict[str, str]) -> None:
        """The caller's connection is gone."""
        for token in self.shard.abandon():
            if named_by(token) == plain[0]:
                self.shard.forget_waiter(token)

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    def ask(self, client: Client, kind: str, request: Request, named: dict[str, str]) -> None:
        version = int(named.get("v", NEWEST.get(kind, 0)))
        if type(request).__name__.endswith("Request"):
            assert isinstance(request, Message)
            request = codec.decode(type(request), version, codec.encode(request, version))
        self.asked += 1
        caller = Caller((client.name, kind, version, self.asked), version, client.name, "/127.0.0.1")
        number = 0
        if isinstance(request, JoinGroupRequest) and not request.member_id:
            prefix = request.group_instance_id or client.name
            number = self.given[prefix] = self.given.get(prefix, 0) + 1
        self.perform(self.shard.decide(request, caller, self.now, new_member_id=str(number)))

    def pass_time(self, ms: int) -> None:
        self.now = Instant(self.now.ms + ms, self.now.wall_ms + ms)

    def perform(self, decision: Decision) -> None:
        """What the runtime does, with a log that takes everything at once."""
        for record in decision.records:
            self.log.append(encode(record))
            self.lines.append(f"log {told(record)}")
        for change in decision.changes:
            self.shard.apply(through_log(change), self.now)
        for reply in decision.replies:
            self.receive(reply)

    def receive(self, reply: Reply) -> None:
        assert isinstance(reply.token, tuple)
        name, _, version, _ = reply.token
        response = reply.response
        if type(response).schema.key is not None:
            response = codec.decode(type(response), version, codec.encode(response, version))
        client = self.clients.get(name)
        if client is not None and isinstance(response, JoinGroupResponse):
            client.member_id = response.member_id
            client.generation = response.generation_id
        self.lines.append(f"{name}{':' if reply.after_commit else '!'} {shown(response)}")


def replayed(log: list[tuple[bytes, bytes | None]], settings: GroupSettings) -> GroupShard:
    """A shard as the log makes it."""
    shard = GroupShard(settings)
    for key, value in log:
        record = decode(key, value)
        assert record is not None
        shard.apply(record)
    return shard


def through_log(change: Change) -> Change:
    """What is applied is what the log holds."""
    if not isinstance(change, DURABLE):
        return change
    record = decode(*encode(change))
    assert record == change
    return record


def subscription(topics: list[str]) -> bytes:
    """What a member of a consumer group says under any of its protocols."""
    return pack(">h", 3) + codec.encode(ConsumerProtocolSubscription(topics=topics), 3)


def duration(text: str) -> int:
    """Milliseconds of `10s` or `500ms`."""
    number = text.rstrip("".join(UNITS))
    return int(number) * UNITS[text.removeprefix(number)]


def named_by(token: Hashable) -> str:
    assert isinstance(token, tuple)
    return str(token[0])


def told(record: GroupRecord) -> str:
    """A record as one line."""
    match record:
        case OffsetCommitted():
            keep = "" if record.expire_timestamp_ms == -1 else f" until +{record.expire_timestamp_ms - WALL}ms"
            return f"offset {record.group} {record.topic}-{record.partition} = {record.offset}{keep}"
        case OffsetForgotten():
            return f"offset {record.group} {record.topic}-{record.partition} gone"
        case GroupStored():
            members = " ".join(f"{m.member_id}:{m.assignment.decode()}" for m in record.members)
            protocol = f"{record.protocol_type or '-'}/{record.protocol or '-'}"
            place = f"generation {record.generation} leader {record.leader or '-'}"
            return f"group {record.group} {protocol} {place} [{members}]"
        case GroupForgotten():
            return f"group {record.group} gone"


def shown(response: Message) -> str:
    """A response as one line."""
    match response:
        case JoinGroupResponse():
            if response.error_code:
                return f"{code(response.error_code)} {response.member_id}".rstrip()
            says = " ".join(member.member_id for member in response.members)
            return (
                f"joined as {response.member_id}, generation {response.generation_id}, leader {response.leader}, "
                f"{response.protocol_name}" + (f", members {says}" if says else "")
            ) + (", skip assignment" if response.skip_assignment else "")
        case SyncGroupResponse():
            return code(response.error_code) if response.error_code else f"plan {response.assignment.decode() or '-'}"
        case LeaveGroupResponse():
            each = [f"{m.member_id or m.group_instance_id} {code(m.error_code)}" for m in response.members]
            return ", ".join([code(response.error_code), *each])
        case HeartbeatResponse():
            return code(response.error_code)
        case OffsetCommitResponse():
            return " ".join(
                f"{topic.name}-{partition.partition_index} {code(partition.error_code)}"
                for topic in response.topics
                for partition in topic.partitions
            )
        case OffsetFetchResponseGroup():
            parts = [
                f"{topic.name}-{p.partition_index}={p.committed_offset}"
                + (f"@{p.committed_leader_epoch}" if p.committed_leader_epoch != -1 else "")
                + (f"({p.metadata})" if p.metadata else "")
                for topic in response.topics
                for p in topic.partitions
            ]
            return " ".join(parts) or "nothing"
        case OffsetDeleteResponse():
            each = [
                f"{topic.name}-{partition.partition_index} {code(partition.error_code)}"
                for topic in response.topics
                for partition in topic.partitions
            ]
            return ", ".join([code(response.error_code), *each])
        case DescribedGroup():
            members = ", ".join(
                f"{m.member_id} of {m.client_id}{m.client_host} says {len(m.member_metadata)} does "
                f"{m.member_assignment.decode() or '-'}"
                for m in response.members
            )
            return (
                f"{code(response.error_code)} {response.group_state} {response.protocol_type or '-'}/"
                f"{response.protocol_data or '-'} [{members}]"
            )
        case DeletableGroupResult():
            return code(response.error_code)
        case _:
            return repr(response)


def code(number: int) -> str:
    return ErrorCode(number).name
