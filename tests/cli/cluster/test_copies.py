"""What health says of replicas and racks, by facts alone."""

import pytest

from penstock.cli.cluster.findings import HealthFacts, Kind, Severity
from penstock.cli.cluster.health import diagnose, is_healthy
from penstock.cli.cluster.words import COMMANDS
from tests.cli.cluster.ill import cluster, only, partition

RACKS = {0: "cellar", 1: "cellar", 2: "attic"}


def test_a_topic_with_one_replica_on_purpose_is_a_hint_with_the_command_that_raises_it() -> None:
    facts = cluster(
        partition(0, (0,), (0,), topic="small"),
        partition(0, (0, 1, 2), (0, 1, 2), topic="whole"),
        new_replicas=3,
    )
    found = only(facts)
    assert (found.kind, found.severity) == (Kind.FEWER_THAN_DEFAULT, Severity.HINT)
    assert found.commands == ("penstock topic alter small --replication-factor 3",)
    assert "loss of 1 disk loses messages" in found.means
    assert is_healthy([found])


def test_fewer_replicas_than_the_topics_own_min_isr_asks_for_are_a_problem() -> None:
    found = only(cluster(partition(0, (0,), (0,), topic="small", asked=2), new_replicas=3))
    assert (found.kind, found.severity) == (Kind.FEW_REPLICAS, Severity.AT_RISK)
    assert found.commands == ("penstock topic alter small --replication-factor 2",)


def test_fewer_replicas_than_other_partitions_of_the_topic_are_a_problem() -> None:
    found = only(cluster(partition(0, (0, 1), (0, 1)), partition(1, (1,), (1,), index=1), new_replicas=2))
    assert (found.kind, [key.partition for key in found.partitions]) == (Kind.FEW_REPLICAS, [1])
    assert found.commands == ("penstock topic alter orders --replication-factor 2",)


def test_the_topic_of_groups_is_raised_without_a_command() -> None:
    offsets = partition(0, (0,), (0,), topic="__consumer_offsets", is_internal=True)
    found = only(cluster(offsets, new_replicas=3, new_offsets_replicas=3))
    assert (found.kind, found.severity, found.commands) == (Kind.FEW_REPLICAS, Severity.AT_RISK, ())
    assert "by itself" in found.advice
    assert "what groups have committed" in found.means


def test_the_topic_of_groups_has_enough_with_the_number_that_was_set_for_it() -> None:
    offsets = partition(0, (0,), (0,), topic="__consumer_offsets", is_internal=True)
    assert diagnose(cluster(offsets, new_replicas=3, new_offsets_replicas=1)) == []


@pytest.mark.parametrize("new_replicas", [None, 1])
def test_topics_that_have_what_a_new_one_gets_have_enough(new_replicas: int | None) -> None:
    assert diagnose(cluster(partition(0, (0,), (0,)), new_replicas=new_replicas)) == []


def test_of_many_topics_a_few_commands_are_shown_and_all_partitions_are_listed() -> None:
    many = [partition(0, (0,), (0,), topic=f"topic-{number}") for number in range(10)]
    found = only(cluster(*many, new_replicas=3))
    assert (len(found.commands), len(found.partitions)) == (COMMANDS, 10)
    assert "and 5 more" in found.what


def test_replicas_that_are_being_added_are_progress() -> None:
    found = only(cluster(partition(0, (0, 1, 2), (0,), adding=(1, 2)), to_copy=3 << 20))
    assert (found.kind, found.severity, found.brokers) == (Kind.REASSIGNING, Severity.UNDER_WAY, (1, 2))
    assert found.what.startswith("1 partition gets more replicas, on brokers 1 and 2, about 3.0 MiB to copy: orders-0")


def test_a_replica_that_fell_behind_is_told_though_others_are_being_added() -> None:
    facts = cluster(partition(0, (0, 1, 2), (0,), adding=(2,)))
    assert [each.kind for each in diagnose(facts)] == [Kind.BROKER_BEHIND, Kind.REASSIGNING]


def together(*replicas: int, racks: dict[int, str | None]) -> HealthFacts:
    return cluster(partition(replicas[0], replicas, replicas), racks=racks)


def test_a_partition_in_one_rack_of_several_is_at_risk() -> None:
    found = only(together(0, 1, racks={**RACKS}))
    assert (found.kind, found.severity) == (Kind.ONE_RACK, Severity.AT_RISK)
    assert found.commands == ("penstock topic alter orders --replication-factor 3",)


def test_without_another_broker_one_has_to_come() -> None:
    found = only(cluster(partition(0, (0, 1), (0, 1)), alive={0, 1}, racks={0: "cellar", 1: "cellar", 9: "attic"}))
    assert (found.kind, found.commands) == (Kind.ONE_RACK, ())
    assert "Add a broker" in found.advice


@pytest.mark.parametrize(
    ("replicas", "racks"),
    [
        ((0, 2), {**RACKS}),
        ((0,), {**RACKS}),
        ((0, 1), {0: "cellar", 1: "cellar", 2: "cellar"}),
        ((0, 1), {0: None, 1: None, 2: None}),
    ],
    ids=["two racks", "one replica", "one rack is all there is", "no racks"],
)
def test_racks_are_right_as_they_are(replicas: tuple[int, ...], racks: dict[int, str | None]) -> None:
    assert diagnose(together(*replicas, racks=racks)) == []


def test_a_broker_without_a_rack_among_others_that_have_one_gives_a_hint() -> None:
    found = only(together(0, 2, racks={0: "cellar", 1: None, 2: "attic"}))
    assert (found.kind, found.severity, found.brokers) == (Kind.NO_RACK, Severity.HINT, (1,))
