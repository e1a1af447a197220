"""These functions write and read what members of a consumer group exchange, subscriptions and assignments, in Kafka's
formats."""

import re
from collections.abc import Collection, Iterable, Mapping
from struct import Struct
from typing import Final, TypeAlias

from penstock.client.assignments import read_assignment
from penstock.client.errors import BadReplyError
from penstock.client.metadata import TopicPartition
from penstock.machines.assignors import NO_GENERATION, Assignor, Candidate, Partition
from penstock.protocol import codec
from penstock.protocol.errors import DecodeError
from penstock.protocol.schemas.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)

Wanted: TypeAlias = frozenset[str] | re.Pattern[str]
"""The topics that a member asks for: their names, or a pattern that the whole name of a topic has to match."""

_VERSION: Final = Struct(">h")
_SUBSCRIPTION_VERSION: Final = ConsumerProtocolSubscription.schema.versions.last
# All versions of it are alike so far, and every client reads the first.
_ASSIGNMENT_VERSION: Final = 0


def write_subscription(
    assignor: Assignor,
    topics: Collection[str],
    *,
    owned: frozenset[TopicPartition] = frozenset(),
    generation: int = NO_GENERATION,
    rack: str = "",
) -> bytes:
    """The bytes in which a member describes itself to one of its assignors when it joins."""
    user_data = getattr(assignor, "user_data", None)
    message = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data(owned, generation) if user_data is not None else None,
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in _by_topic(owned).items()
        ],
        generation_id=generation,
        rack_id=rack or None,
    )
    return _VERSION.pack(_SUBSCRIPTION_VERSION) + codec.encode(message, _SUBSCRIPTION_VERSION)


def read_subscription(data: bytes, instance_id: str | None = None) -> Candidate:
    """What a member has written when it joined, for the leader. BadReplyError if it cannot be read."""
    try:
        if len(data) < _VERSION.size or (version := _VERSION.unpack_from(data)[0]) < 0:
            raise DecodeError("it has no version")
        # A later version begins like the last one that is known.
        known = min(version, _SUBSCRIPTION_VERSION)
        message, _ = codec.decoder(ConsumerProtocolSubscription, known)(memoryview(data), _VERSION.size)
    except DecodeError as error:
        raise BadReplyError(f"a member of the group sent what is no subscription of a consumer ({error})") from error
    return Candidate(
        topics=frozenset(message.topics),
        owned=frozenset((each.topic, number) for each in message.owned_partitions for number in each.partitions),
        generation=message.generation_id,
        instance_id=instance_id,
        rack=message.rack_id,
        user_data=None if message.user_data is None else bytes(message.user_data),
    )


def write_assignment(partitions: Iterable[Partition]) -> bytes:
    """The bytes in which the leader sends a member its assignment."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in _by_topic(partitions).items()
        ]
    )
    return _VERSION.pack(_ASSIGNMENT_VERSION) + codec.encode(message, _ASSIGNMENT_VERSION)


def read_own_assignment(data: bytes) -> frozenset[TopicPartition]:
    """The partitions that a member gets. BadReplyError if they cannot be read."""
    found = read_assignment(data)
    if found is None:
        raise BadReplyError("the group's leader sent what is no assignment of a consumer: is it another kind of group?")
    return frozenset(found)


def make_plan(
    assignor: Assignor, members: Mapping[str, Candidate], partitions: Mapping[str, int]
) -> dict[str, list[Partition]]:
    """The assignor's plan, checked: one that is the user's own may be wrong. ValueError says how."""
    plan = {
        member: [(str(topic), int(number)) for topic, number in given]
        for member, given in assignor.assign(members, partitions).items()
    }
    owners: dict[Partition, str] = {}
    for member, given in plan.items():
        if member not in members:
            raise ValueError(f"assignor {assignor.name!r} gives partitions to {member!r}, who is no member")
        for partition in given:
            topic, number = partition
            if not 0 <= number < partitions.get(topic, 0):
                raise ValueError(f"assignor {assignor.name!r} gives away {topic}-{number}, which does not exist")
            if topic not in members[member].topics:
                raise ValueError(
                    f"assignor {assignor.name!r} gives {topic}-{number} to {member!r}, who does not subscribe to it"
                )
            if partition in owners:
                raise ValueError(
                    f"assignor {assignor.name!r} gives {topic}-{number} to {owners[partition]!r} and to {member!r}"
                )
            owners[partition] = member
    return plan


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics
