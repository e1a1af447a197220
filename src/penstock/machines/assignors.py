"""Assignors share partitions out among the members of a consumer group: range, roundrobin, cooperative-sticky, or the
user's own.

The names are Kafka's, so that members of other clients can agree on them with ours.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, runtime_checkable

Partition: TypeAlias = tuple[str, int]
"""A topic and the number of one of its partitions."""
Plan: TypeAlias = Mapping[str, Iterable[Partition]]
"""What each member gets, by its id."""

NO_GENERATION: Final = -1


@dataclass(slots=True, frozen=True, kw_only=True)
class Candidate:
    """A member of the group, as it has described itself."""

    topics: frozenset[str]
    owned: frozenset[Partition] = frozenset()
    """What it has, and would like to keep."""
    generation: int = NO_GENERATION
    """The generation in which it got that; a later one is to be believed."""
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes | None = None


@runtime_checkable
class Assignor(Protocol):
    """What an assignor of your own has to have. All members of a group must know it, by its name.

    It may also have `is_cooperative = True`: then members keep what they have while the group is rebalancing, and its
    plans must never give a member what another one still owns (KIP-429). And a method `user_data(owned, generation)`,
    whose bytes the leader finds in `Candidate.user_data`.
    """

    @property
    def name(self) -> str: ...

    def assign(self, members: Mapping[str, Candidate], partitions: Mapping[str, int]) -> Plan:
        """Give each partition to a member that subscribes to its topic. `partitions` has the number of them, by
        topic."""
        ...


def is_cooperative(assignor: Assignor) -> bool:
    return bool(getattr(assignor, "is_cooperative", False))


class Range:
    """A member gets neighbouring partitions of each topic: topics with as many partitions are shared out alike.

    >>> members = {"a": Candidate(topics=frozenset({"t"})), "b": Candidate(topics=frozenset({"t"}))}
    >>> Range().assign(members, {"t": 3})
    {'a': [('t', 0), ('t', 1)], 'b': [('t', 2)]}
    """

    name: Final = "range"

    def assign(self, members: Mapping[str, Candidate], partitions: Mapping[str, int]) -> dict[str, list[Partition]]:
        plan: dict[str, list[Partition]] = {member: [] for member in members}
        order = _in_order(members)
        for topic, count in sorted(partitions.items()):
            readers = [member for member in order if topic in members[member].topics]
            if not readers:
                continue
            share, rest = divmod(count, len(readers))
            begin = 0
            for number, member in enumerate(readers):
                end = begin + share + (number < rest)
                plan[member] += [(topic, index) for index in range(begin, end)]
                begin = end
        return plan


class RoundRobin:
    """The partitions of all topics are dealt out one by one.

    >>> members = {"a": Candidate(topics=frozenset({"t"})), "b": Candidate(topics=frozenset({"t"}))}
    >>> RoundRobin().assign(members, {"t": 3})
    {'a': [('t', 0), ('t', 2)], 'b': [('t', 1)]}
    """

    name: Final = "roundrobin"

    def assign(self, members: Mapping[str, Candidate], partitions: Mapping[str, int]) -> dict[str, list[Partition]]:
        plan: dict[str, list[Partition]] = {member: [] for member in members}
        order = _in_order(members)
        turn = 0
        for topic, index in _all(partitions):
            for step in range(len(order)):
                member = order[(turn + step) % len(order)]
                if topic in members[member].topics:
                    plan[member].append((topic, index))
                    turn += step + 1
                    break
        return plan


class CooperativeSticky:
    """Shares are as equal as subscriptions allow, and members keep what they have as far as that allows. What goes from
    one member to another is left out at first: when its owner has let it go, the group shares out again."""

    name: Final = "cooperative-sticky"
    is_cooperative: Final = True

    def assign(self, members: Mapping[str, Candidate], partitions: Mapping[str, int]) -> dict[str, list[Partition]]:
        owners = _owners(members, partitions)
        claimed = frozenset().union(*(candidate.owned for candidate in members.values()))
        plan: dict[str, list[Partition]] = {member: [] for member in members}
        for partition, member in sorted(_balance(members, partitions, owners).items()):
            if owners.get(partition) == member or partition not in claimed:
                plan[member].append(partition)
        return plan

    def user_data(self, owned: frozenset[Partition], generation: int) -> bytes:
        """The generation alone: Java's assignor of this name reads it from here where the subscription has no field for
        it, and what is owned from the subscription."""
        return generation.to_bytes(4, "big", signed=True)


RANGE: Final = Range()
ROUND_ROBIN: Final = RoundRobin()
COOPERATIVE_STICKY: Final = CooperativeSticky()
BY_NAME: Final[Mapping[str, Assignor]] = {each.name: each for each in (RANGE, ROUND_ROBIN, COOPERATIVE_STICKY)}


def _all(partitions: Mapping[str, int]) -> list[Partition]:
    return [(topic, index) for topic, count in sorted(partitions.items()) for index in range(count)]


def _in_order(members: Mapping[str, Candidate]) -> list[str]:
    """Static members first, by the names that they keep: a restart changes nothing."""
    return sorted(members, key=lambda member: (members[member].instance_id or "\U0010ffff", member))


def _owners(members: Mapping[str, Candidate], partitions: Mapping[str, int]) -> dict[Partition, str]:
    """The present owner of each partition. Of two members that claim one, that of the later generation has it; if that
    does not decide it, neither has."""
    claims: dict[Partition, list[str]] = defaultdict(list)
    for member, candidate in members.items():
        for topic, index in candidate.owned:
            if topic in candidate.topics and index < partitions.get(topic, 0):
                claims[topic, index].append(member)
    owners = {}
    for partition, claimants in claims.items():
        latest = max(members[member].generation for member in claimants)
        entitled = [member for member in claimants if members[member].generation == latest]
        if len(entitled) == 1:
            owners[partition] = entitled[0]
    return owners


def _balance(
    members: Mapping[str, Candidate], partitions: Mapping[str, int], owners: Mapping[Partition, str]
) -> dict[Partition, str]:
    """The partitions that each member should have."""
    order = _in_order(members)
    readers = {topic: [member for member in order if topic in members[member].topics] for topic in partitions}
    wanted = dict(owners)
    load = dict.fromkeys(order, 0)
    for member in owners.values():
        load[member] += 1

    # Those that fewest may have are given first: the others are there to even it out.
    free = [partition for partition in _all(partitions) if partition not in owners and readers[partition[0]]]
    for partition in sorted(free, key=lambda each: len(readers[each[0]])):
        member = min(readers[partition[0]], key=load.__getitem__)
        wanted[partition] = member
        load[member] += 1

    # Every move makes the sum of the squares of the loads smaller, so that there is an end to it.
    while _even_out(wanted, load, readers):
        pass
    return wanted


def _even_out(wanted: dict[Partition, str], load: dict[str, int], readers: Mapping[str, Sequence[str]]) -> bool:
    """Move partitions to members that have at least two less; whether any were."""
    has_moved = False
    # Of a member that has to give, the last partitions go first: a member that joins gets the ends.
    for partition in sorted(wanted, reverse=True):
        giver = wanted[partition]
        taker = min(readers[partition[0]], key=load.__getitem__)
        if load[giver] - load[taker] >= 2:
            wanted[partition] = taker
            load[giver] -= 1
            load[taker] += 1
            has_moved = True
    return has_moved
