"""Makes a captured request at home on the stage: with names that its broker has, it gets past the first check."""

from random import Random
from typing import Any, Final, TypeAlias

from penstock.protocol.schema import Message
from tests.protocol.messages import Field, fields_of
from tools.fuzz_frames import names

Place: TypeAlias = tuple[Message, Field]
_SLOTS: Final = 300
"""Fields of a request among which one is chosen."""


def settle(message: Message, version: int, rng: Random) -> None:
    """Put names and numbers of the stage into a request; all its topics are one."""
    number = rng.randrange(len(names.TOPICS))
    for owner, field in places(message, version):
        if (value := _known(owner, field, number, rng)) is not None:
            setattr(owner, field.name, [value] if field.row.is_array else value)


def places(message: Message, version: int) -> list[Place]:
    """Every field of the request and of what is in it; of long arrays, those of the first elements."""
    found: list[Place] = []
    waiting = [message]
    while waiting and len(found) < _SLOTS:
        owner = waiting.pop()
        for field in fields_of(type(owner), version):
            found.append((owner, field))
            if not isinstance(field.row.element, str) and (value := getattr(owner, field.name)) is not None:
                waiting += value[:3] if field.row.is_array else [value]
    return found


def _known(owner: Message, field: Field, number: int, rng: Random) -> Any:
    """A value that the stage knows; None if the one that is there is as good."""
    match field.name:
        case "topic" | "topic_name" | "topic_names":
            return names.TOPICS[number]
        case "name":
            is_topic = "Topic" in type(owner).__name__ and not type(owner).__name__.endswith("Config")
            return names.TOPICS[number] if is_topic and "Creatable" not in type(owner).__name__ else None
        case "topic_id":
            return names.TOPIC_IDS[number]
        case "resource_name":
            return names.TOPICS[number] if getattr(owner, "resource_type", 2) == 2 else "0"
        case "group_id" | "groups" | "groups_names" | "key" | "coordinator_keys":
            return rng.choice(names.GROUPS) if field.row.element == "string" else None
        case "member_id":
            # Most members join with none.
            return "" if type(owner).__name__ == "JoinGroupRequest" and rng.random() < 0.6 else names.MEMBER
        case "generation_id" | "generation_id_or_member_epoch":
            return names.GENERATION
        case "group_instance_id":
            return None if getattr(owner, field.name) is None or rng.random() < 0.5 else "stage-instance"
        case "partition" | "partition_index" | "index" | "partition_indexes" | "partitions":
            return rng.randrange(names.PARTITIONS) if field.row.element == "int32" else None
        case "session_timeout_ms" | "rebalance_timeout_ms":
            return 600_000
        case "current_leader_epoch" | "last_fetched_epoch" | "session_id":
            return rng.choice((-1, 0))
    return None
