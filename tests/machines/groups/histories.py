"""Random requests to a shard of groups: good ones, bad ones, and poisonous ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from penstock.machines.groups.changes import DeleteGroup, DescribeGroup
from penstock.machines.groups.responses import Request
from penstock.machines.groups.shard import GroupShard
from penstock.protocol.schema import Message
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequestGroup,
)
from penstock.protocol.schemas.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.machines.groups.transcript import subscription

GROUPS = ("g", "h")
INSTANCES = (None, None, "one", "two")
TOPICS = ("t", "u")


@contextmanager
def seeded(seed: int) -> Iterator[Random]:
    """Chance that can be had again: whatever fails says the seed."""
    try:
        yield Random(seed)
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise


def random_request(chance: Random, shard: GroupShard, known_ids: list[str]) -> Request:
    """Something that a client might send; most of it fits the state of the group."""
    group_id = chance.choice(GROUPS)
    group = shard._groups.get(group_id)
    members = list(group.members.values()) if group else []
    member = chance.choice(members) if members and chance.random() < 0.9 else None
    member_id = member.member_id if member else chance.choice(["", "stranger", *known_ids[-4:]])
    instance_id = member.instance_id if member else chance.choice(INSTANCES)
    generation = (group.generation if group else 0) - (chance.random() < 0.1)
    match chance.choice(["join"] * 6 + ["sync"] * 6 + ["beat"] * 3 + ["commit"] * 3 + ["leave"] + ["admin"]):
        case "join":
            names = chance.choice([("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",), ("range",) * 2])
            return JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=chance.choice([6_000, 10_000, 10_000, 5_000]),
                rebalance_timeout_ms=chance.choice([8_000, 20_000]),
                member_id=member_id if chance.random() < 0.7 else "",
                group_instance_id=instance_id,
                protocol_type=chance.choice(["consumer"] * 9 + ["connect"]),
                protocols=[
                    JoinGroupRequestProtocol(name=name, metadata=subscription([chance.choice(TOPICS)]))
                    for name in names
                ],
            )
        case "sync":
            if group and group.leader and chance.random() < 0.5:
                member_id, instance_id = group.leader, group.members[group.leader].instance_id
            return SyncGroupRequest(
                group_id=group_id,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance_id,
                assignments=[
                    SyncGroupRequestAssignment(member_id=each.member_id, assignment=bytes([chance.randrange(9)]))
                    for each in members
                    if chance.random() < 0.9
                ],
            )
        case "beat":
            return HeartbeatRequest(
                group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=instance_id
            )
        case "commit":
            is_simple = chance.random() < 0.2
            return OffsetCommitRequest(
                group_id=group_id,
                generation_id_or_member_epoch=-1 if is_simple else generation,
                member_id="" if is_simple else member_id,
                group_instance_id=None if is_simple else instance_id,
                retention_time_ms=chance.choice([-1, -1, -1, 5_000]),
                topics=[
                    OffsetCommitRequestTopic(
                        name=chance.choice(TOPICS),
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=chance.randrange(3), committed_offset=chance.randrange(100)
                            )
                        ],
                    )
                ],
            )
        case "leave":
            leaving = [MemberIdentity(member_id=member_id, group_instance_id=instance_id)]
            if members and chance.random() < 0.3:
                leaving.append(MemberIdentity(member_id=chance.choice(members).member_id))
            if chance.random() < 0.2:
                leaving.append(MemberIdentity(group_instance_id="one"))
            return LeaveGroupRequest(group_id=group_id, members=leaving)
        case _:
            partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in range(3)]
            topic = OffsetDeleteRequestTopic(name=chance.choice(TOPICS), partitions=partitions)
            asked: list[Request] = [
                DeleteGroup(group_id),
                DescribeGroup(group_id),
                OffsetFetchRequestGroup(group_id=group_id, topics=None),
                OffsetDeleteRequest(group_id=group_id, topics=[topic]),
            ]
            return chance.choice(asked)


LENGTHS = (0, 1, 1_024, 1_025, 32_767, 32_768, 40_000)
"""Of texts: around what a name may have, around what the log can keep, and beyond both."""
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def poison(chance: Random, message: Message) -> None:
    """Make one of the fields as bad as the wire allows, or a little more."""
    name, row = chance.choice(list(type(message).schema.rows.items()))
    value = getattr(message, name)
    if row.is_array:
        if value and isinstance(value[0], Message) and chance.random() < 0.7:
            poison(chance, chance.choice(value))
        else:
            setattr(message, name, list(value or ()) * chance.choice((0, 20, 2_000)))
    elif row.kind == "string":
        setattr(message, name, chance.choice("n\0é🚀") * chance.choice(LENGTHS))
    elif row.kind == "bytes":
        setattr(message, name, bytes(chance.choice(LENGTHS)))
    elif row.kind in BITS:
        most = 1 << (BITS[row.kind] - 1)
        setattr(message, name, chance.choice((-most, -2, -1, 0, 1, most - 1)))
