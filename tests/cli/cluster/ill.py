"""Clusters that are not well, as facts, and what health says of them."""

from typing import Any

from penstock.cli.cluster.findings import Finding, HealthFacts, Kind, Replicas
from penstock.cli.cluster.health import diagnose
from penstock.client.metadata import TopicPartition


def partition(
    leader: int, replicas: tuple[int, ...], isr: tuple[int, ...], *, topic: str = "orders", index: int = 0, **more: Any
) -> Replicas:
    return Replicas(TopicPartition(topic, index), leader, replicas, isr, **more)


def cluster(*partitions: Replicas, away: tuple[int, ...] = (), **more: Any) -> HealthFacts:
    """Three brokers, of which some are away."""
    facts = {"controller": 0, "alive": {0, 1, 2} - {*away}, "away": away, "partitions": partitions, **more}
    return HealthFacts(**facts)


def only(facts: HealthFacts) -> Finding:
    [finding] = diagnose(facts)
    return finding


def of_kind(facts: HealthFacts, kind: Kind) -> Finding:
    [finding] = [each for each in diagnose(facts) if each.kind is kind]
    return finding
