"""Findings name brokers and partitions in these words, and show a few commands at most."""

from collections.abc import Iterable, Sequence
from itertools import islice

from penstock.cli.cluster.findings import Replicas
from penstock.cli.output import counted
from penstock.client.metadata import TopicPartition, named

COMMANDS = 5
"""The most commands that one finding shows; a thousand topics may need the same one."""


def brokers(numbers: Sequence[int]) -> str:
    *most, last = map(str, numbers)
    return f"brokers {', '.join(most)} and {last}" if most else f"broker {last}"


def one_of(numbers: Sequence[int]) -> str:
    return brokers(numbers) if len(numbers) == 1 else f"one of {brokers(numbers)}"


def have(partitions: Sequence[Replicas], what: str) -> str:
    return f"{counted(len(partitions), 'partition')} {'has' if len(partitions) == 1 else 'have'} {what}"


def names(partitions: Sequence[Replicas]) -> str:
    return named(each.key for each in partitions)


def keys(partitions: Sequence[Replicas]) -> tuple[TopicPartition, ...]:
    return tuple(each.key for each in partitions)


def topics(partitions: Sequence[Replicas]) -> list[str]:
    return sorted({each.key.topic for each in partitions})


def first_topics(partitions: Sequence[Replicas]) -> str:
    found = topics(partitions)
    more = f" and {len(found) - COMMANDS} more" if len(found) > COMMANDS else ""
    return f"{', '.join(found[:COMMANDS])}{more}"


def limited(commands: Iterable[str]) -> tuple[str, ...]:
    return tuple(islice(commands, COMMANDS))


def with_groups(partitions: Sequence[Replicas]) -> str:
    """What it means for groups, whose offsets are in a topic of the cluster's own."""
    return ", and so do groups whose offsets are there" if any(each.is_internal for each in partitions) else ""
