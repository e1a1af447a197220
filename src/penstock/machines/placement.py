"""Chooses the brokers of partitions: of a new one, whose leaders are spread evenly over brokers and racks, and of one
that gets more replicas. The replicas of a partition are on different racks."""

from collections import Counter, defaultdict
from collections.abc import Container, Mapping, Sequence
from heapq import heapify, heapreplace
from itertools import chain, zip_longest


def place(
    partitions: int,
    replication_factor: int,
    racks: Mapping[int, str | None],
    *,
    led: Mapping[int, int],
    led_in_topic: Mapping[int, int],
) -> list[tuple[int, ...]]:
    """Replicas of each new partition, its leader first.

    `racks` has every broker that may be chosen; there must be as many as replicas. `led` says how many partitions each
    leads, and `led_in_topic` how many of this topic; a broker that is missing leads none.
    """
    assert 1 <= replication_factor <= len(racks), f"{replication_factor} replicas on {len(racks)} brokers"
    if len(racks) == 1:
        # There is nothing to choose, however many they are.
        return [tuple(racks)] * partitions
    ring = _ring(racks)
    # Least loaded first, within the topic and then in all; among equals the ring alternates between racks.
    order = [
        (led_in_topic.get(broker, 0), led.get(broker, 0), position, broker) for position, broker in enumerate(ring)
    ]
    heapify(order)
    placed = []
    for _ in range(partitions):
        in_topic, in_all, position, leader = order[0]
        heapreplace(order, (in_topic + 1, in_all + 1, position, leader))
        others = ring[position + 1 :] + ring[:position]
        # Another start each time, or the followers of one leader would always be the same brokers.
        turn = in_topic % len(others) if others else 0
        placed.append(_with_followers(leader, others[turn:] + others[:turn], replication_factor, racks))
    return placed


def extend(
    partitions: Sequence[Sequence[int]],
    replication_factor: int,
    racks: Mapping[int, str | None],
    *,
    held: Mapping[int, int],
) -> list[tuple[int, ...]]:
    """The replicas that each partition of a topic has, and after them as many more as it lacks.

    `racks` has every broker that may be chosen; there must be enough of them. `held` says how many replicas each broker
    has, of all topics. New replicas go to racks where the partition has none, and there to the broker that has the
    fewest of this topic, and of all.
    """
    ring = {broker: position for position, broker in enumerate(_ring(racks))}
    in_topic, in_all = Counter(replica for replicas in partitions for replica in replicas), Counter(held)
    extended = []
    for replicas in partitions:
        chosen = list(replicas)
        while len(chosen) < replication_factor:
            used = {_rack(replica, racks) for replica in chosen}

            def cost(broker: int, used: set[str | int] = used) -> tuple[bool, int, int, int]:
                return _rack(broker, racks) in used, in_topic[broker], in_all[broker], ring[broker]

            new = min((broker for broker in ring if broker not in chosen), key=cost)
            chosen.append(new)
            in_topic[new] += 1
            in_all[new] += 1
        extended.append(tuple(chosen))
    return extended


def problem(
    assignment: Sequence[tuple[int, Sequence[int]]],
    brokers: Container[int],
    *,
    live: Container[int],
    first: int,
    replication_factor: int,
) -> str | None:
    """What is wrong with partitions and brokers that a client chose for a topic; None if they are possible.

    The partitions must be those that follow each other from the first on, in any order. A new replica needs a broker
    that is alive.
    """
    if sorted(partition for partition, _ in assignment) != list(range(first, first + len(assignment))):
        return f"the {len(assignment)} partitions assigned must follow each other from {first} on, each of them once"
    for partition, replicas in assignment:
        if not replicas:
            return f"partition {partition} needs a broker"
        if len(set(replicas)) < len(replicas):
            return f"partition {partition} cannot be twice on a broker: {list(replicas)}"
        if unknown := [broker for broker in replicas if broker not in brokers]:
            return f"partition {partition} cannot be on broker {unknown[0]}, which does not exist"
        if dead := [broker for broker in replicas if broker not in live]:
            return f"partition {partition} cannot be on broker {dead[0]}, which is not alive"
        if len(replicas) != replication_factor:
            count = f"{len(replicas)} replica{'s' * (len(replicas) > 1)}"
            return f"partition {partition} has {count} where its topic has {replication_factor}"
    return None


def _ring(racks: Mapping[int, str | None]) -> list[int]:
    """All brokers, neighbours in different racks where that can be. A broker without a rack is a rack of its own."""
    by_rack: defaultdict[str | int, list[int]] = defaultdict(list)
    for broker in sorted(racks):
        by_rack[_rack(broker, racks)].append(broker)
    rounds = zip_longest(*by_rack.values())
    return [broker for broker in chain.from_iterable(rounds) if broker is not None]


def _with_followers(
    leader: int, candidates: list[int], replication_factor: int, racks: Mapping[int, str | None]
) -> tuple[int, ...]:
    chosen = [leader]
    used = {_rack(leader, racks)}
    left_over = []
    for broker in candidates:
        if len(chosen) == replication_factor:
            break
        if (rack := _rack(broker, racks)) in used:
            left_over.append(broker)
        else:
            used.add(rack)
            chosen.append(broker)
    # There are fewer racks than replicas: the rest shares.
    return (*chosen, *left_over[: replication_factor - len(chosen)])


def _rack(broker: int, racks: Mapping[int, str | None]) -> str | int:
    rack = racks.get(broker)
    return broker if rack is None else rack
