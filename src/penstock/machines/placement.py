"""Which brokers hold a new partition: leaders even over brokers and racks, the replicas of one in different racks."""

from collections import defaultdict
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
    leads, and `led_in_topic` how many of this topic; who is missing leads none.
    """
    assert 1 <= replication_factor <= len(racks), f"{replication_factor} replicas on {len(racks)} brokers"
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


def problem(
    assignment: Sequence[tuple[int, Sequence[int]]], brokers: Container[int], *, first: int, replication_factor: int
) -> str | None:
    """What is wrong with partitions and brokers that somebody chose for a topic; None if they are possible.

    The partitions must be those that follow each other from the first on, in any order.
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
        if len(replicas) != replication_factor:
            return f"partition {partition} has {len(replicas)} replicas where its topic has {replication_factor}"
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
    rack = racks[broker]
    return broker if rack is None else rack
