"""What is wrong with a cluster, by facts alone."""

from penstock.cli.cluster.findings import HealthFacts, Kind, Severity
from penstock.cli.cluster.health import diagnose, is_healthy, summary
from penstock.client.metadata import TopicPartition
from tests.cli.cluster.ill import cluster, of_kind, only, partition


def test_a_healthy_broker_alone_says_so_in_one_line() -> None:
    facts = HealthFacts(controller=0, alive={0}, partitions=[partition(0, (0,), (0,))], new_replicas=1)
    assert diagnose(facts) == []
    assert summary(facts, []) == "healthy: 1 broker, 1 topic of 1 partition"
    assert summary(HealthFacts(controller=0, alive={0}), []) == "healthy: 1 broker, no topics"


def test_a_healthy_cluster_says_that_all_replicas_are_in_sync() -> None:
    facts = cluster(partition(0, (0, 1, 2), (0, 1, 2)), partition(1, (1, 2, 0), (0, 1, 2), index=1), new_replicas=3)
    assert diagnose(facts) == []
    assert summary(facts, []) == "healthy: 3 brokers, 1 topic of 2 partitions, all replicas in sync"


def test_without_a_controller_nothing_changes() -> None:
    found = only(cluster(controller=None))
    assert (found.kind, found.severity) == (Kind.NO_CONTROLLER, Severity.BROKEN)
    assert "Messages go on" in found.means


def test_a_partition_without_a_leader_names_the_brokers_that_have_everything() -> None:
    facts = cluster(
        partition(-1, (0, 1, 2), (1, 2)),
        partition(-1, (0, 1, 2), (), eligible=(2,), index=1),
        partition(-1, (1, 2, 0), (2, 1), index=2),
        away=(1, 2),
    )
    both, eligible = [each for each in diagnose(facts) if each.kind is Kind.NO_LEADER]
    assert (both.brokers, [key.partition for key in both.partitions]) == ((1, 2), [0, 2])
    assert "one of brokers 1 and 2" in both.means
    assert (eligible.brokers, [key.partition for key in eligible.partitions]) == ((2,), [1])
    assert "Start broker 2, with its number and its folder." in eligible.advice
    assert {each.severity for each in (both, eligible)} == {Severity.BROKEN}


def test_an_unclean_election_is_offered_only_where_another_replica_is_alive() -> None:
    with_another = of_kind(cluster(partition(-1, (0, 1), (1,)), away=(1,)), Kind.NO_LEADER)
    assert with_another.commands == ("penstock topic elect orders --unclean",)
    assert "are lost" in with_another.advice
    alone = of_kind(cluster(partition(-1, (1,), (1,)), away=(1,)), Kind.NO_LEADER)
    assert alone.commands == ()
    assert "lost" not in alone.advice


def test_a_broker_that_is_alive_and_does_not_lead_is_waited_for() -> None:
    found = of_kind(cluster(partition(-1, (1,), (1,))), Kind.NO_LEADER)
    assert "Wait for broker 1" in found.advice
    assert "Start" not in found.advice


def test_groups_wait_for_the_topic_that_has_their_offsets() -> None:
    groups = of_kind(cluster(partition(-1, (1,), (1,), is_internal=True), away=(1,)), Kind.NO_LEADER)
    assert "groups" in groups.means
    assert "groups" not in of_kind(cluster(partition(-1, (1,), (1,)), away=(1,)), Kind.NO_LEADER).means


def test_below_min_isr_producers_are_refused_and_eligible_replicas_are_named() -> None:
    facts = cluster(partition(0, (0, 1, 2), (0,), needed=2, eligible=(1,)), away=(1,))
    found = of_kind(facts, Kind.BELOW_MIN_ISR)
    assert (found.severity, found.brokers) == (Severity.BROKEN, (1, 2))
    assert "NOT_ENOUGH_REPLICAS" in found.means
    assert "broker 1 may lead" in found.means
    assert "Start broker 1" in found.advice
    assert "Wait for broker 2" in found.advice


def test_enough_in_sync_replicas_refuse_nothing() -> None:
    facts = cluster(partition(0, (0, 1, 2), (0, 1), needed=2), away=(2,))
    assert [each.kind for each in diagnose(facts)] == [Kind.BROKER_AWAY]


def test_a_broker_that_is_away_puts_what_it_holds_at_risk() -> None:
    facts = cluster(partition(0, (0, 1, 2), (0, 1)), partition(0, (0, 1), (0, 1), topic="bills"), away=(2,))
    found = only(facts)
    assert (found.kind, found.severity, found.brokers) == (Kind.BROKER_AWAY, Severity.AT_RISK, (2,))
    assert found.partitions == (TopicPartition("orders", 0),)
    assert "1 partition" in found.means


def test_a_broker_that_is_away_and_holds_nothing_is_no_illness() -> None:
    facts = cluster(partition(0, (0, 1), (0, 1)), away=(2,))
    assert only(facts).severity is Severity.HINT
    assert is_healthy(diagnose(facts))


def test_a_broker_that_is_alive_and_not_in_sync_is_behind_by_about_so_many_bytes() -> None:
    found = only(cluster(partition(0, (0, 1, 2), (0, 1)), behind={2: 3 << 20}))
    assert (found.kind, found.severity, found.brokers) == (Kind.BROKER_BEHIND, Severity.AT_RISK, (2,))
    assert "about 3.0 MiB behind" in found.what
    assert "behind" not in only(cluster(partition(0, (0, 1, 2), (0, 1)))).what


def test_a_broker_that_does_not_answer_is_told() -> None:
    assert only(cluster(silent=[1])).kind is Kind.BROKER_SILENT


def test_another_leader_than_the_first_replica_is_a_hint() -> None:
    facts = cluster(partition(1, (0, 1, 2), (0, 1, 2)))
    found = only(facts)
    assert (found.kind, found.severity) == (Kind.OTHER_LEADER, Severity.HINT)
    assert found.commands == ("penstock topic elect --all-topics",)
    assert is_healthy([found])
    assert summary(facts, [found]).startswith("healthy:")


def test_a_first_replica_that_cannot_lead_gives_no_hint() -> None:
    assert Kind.OTHER_LEADER not in {
        each.kind for each in diagnose(cluster(partition(1, (0, 1, 2), (1, 2)), partition(-1, (0,), (0,), index=1)))
    }


def test_the_worst_comes_first_and_problems_are_counted_without_hints() -> None:
    facts = cluster(
        partition(1, (0, 1), (0, 1)),
        partition(0, (0, 2), (0,), index=1),
        partition(-1, (2, 1), (2,), index=2),
        away=(2,),
    )
    findings = diagnose(facts)
    assert [each.severity for each in findings] == [Severity.BROKEN, Severity.AT_RISK, Severity.HINT]
    assert not is_healthy(findings)
    assert summary(facts, findings) == "not healthy: 2 problems"


def test_what_is_under_way_is_no_problem_and_not_all_is_in_sync() -> None:
    facts = cluster(partition(0, (0, 1, 2), (0, 1), adding=(2,)))
    findings = diagnose(facts)
    assert [each.kind for each in findings] == [Kind.REASSIGNING]
    assert is_healthy(findings)
    assert summary(facts, findings) == "healthy: 3 brokers, 1 topic of 1 partition"


def test_a_log_that_a_broker_does_not_serve_is_not_told_as_being_behind_too() -> None:
    facts = cluster(partition(0, (0, 1), (0,)), offline={1: [TopicPartition("orders", 0)]})
    assert only(facts).kind is Kind.LOG_OFFLINE


def test_groups_wait_with_their_offsets_below_min_isr() -> None:
    facts = cluster(partition(0, (0, 1, 2), (0,), needed=2, is_internal=True), away=(1, 2))
    assert "groups whose offsets are there" in of_kind(facts, Kind.BELOW_MIN_ISR).means


def test_imported_partitions_wait_for_all_replicas() -> None:
    waiting = [partition(-1, (0, 1, 2), (), index=index) for index in range(2)]
    found = of_kind(cluster(*waiting, away=(2,)), Kind.IMPORTED)
    assert (found.severity, found.brokers) == (Severity.BROKEN, (2,))
    assert "2 partitions have no leader since an import: orders-0" in found.what
    assert "Start broker 2" in found.advice
    assert found.commands == ("penstock topic elect orders --unclean",)
    found = only(cluster(*waiting))
    assert (found.kind, found.commands) == (Kind.IMPORTED, ())
    assert "its own log says it" in found.advice
