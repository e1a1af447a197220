"""Leaders that operators choose, in real clusters."""

import json
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import penstock
from penstock.cli.topic.elect import NAMED, Candidate, keys_of, question
from penstock.client.errors import UnknownPartitionError
from penstock.client.metadata import Partition, Topic, TopicPartition
from penstock.testing import Cluster

Call = Callable[..., Result]
KEY = TopicPartition("orders", 0)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    settings = {"auto.leader.rebalance.enable": "false"}
    with Cluster(2, settings, storage="memory") as made:
        made.create_topic("orders", 2)
        made.until_in_sync()
        yield made


def elect(cluster: Cluster, *options: str, exit_code: int = 0) -> Result:
    running = [node.bootstrap for node in cluster.brokers if node.is_running]
    result = CliRunner().invoke(penstock, ["-b", ",".join(running), "topic", "elect", *options])
    assert result.exit_code == exit_code, (result.stdout, result.stderr, result.exception)
    return result


def lose_the_leader(cluster: Cluster) -> None:
    """Broker 0 alone has everything, and is away; broker 1 is back."""
    cluster.stop(1)
    cluster.until_leaders()
    cluster.stop(0)
    cluster.start(1)
    cluster.until_controller()
    assert [cluster.leader_of("orders", number) for number in range(2)] == [None, None]


def test_the_first_replica_leads_again(cluster: Cluster) -> None:
    before = [cluster.leader_of("orders", number) for number in range(2)]
    assert elect(cluster, "orders").stdout == "every partition is led by its first replica\n"
    cluster.restart(1)
    cluster.until_in_sync()
    assert [cluster.leader_of("orders", number) for number in range(2)] == [0, 0]
    moved = before.index(1)
    shown = elect(cluster, "orders", "-O", "json")
    assert json.loads(shown.stdout)[moved] == {"topic": "orders", "partition": moved, "elected": True, "leader": 1}
    assert [cluster.leader_of("orders", number) for number in range(2)] == before


def test_of_all_topics_only_what_changes_is_shown(cluster: Cluster) -> None:
    cluster.create_topic("bills")
    cluster.restart(1)
    cluster.until_in_sync()
    shown = elect(cluster, "--all-topics").stdout.splitlines()
    assert shown[1].split() == ["TOPIC", "PARTITION", "LEADER"]
    assert all(line.split()[2] == "1" for line in shown[2:])
    assert elect(cluster, "--all-topics").stdout == "every partition is led by its first replica\n"


def test_a_first_replica_that_is_away_is_an_error(cluster: Cluster) -> None:
    cluster.stop(1)
    cluster.until_leaders()
    refused = elect(cluster, "orders", exit_code=1)
    assert "PREFERRED_LEADER_NOT_AVAILABLE" in refused.stderr


def test_an_unclean_election_is_refused_without_a_terminal_and_says_what_is_lost(cluster: Cluster) -> None:
    lose_the_leader(cluster)
    refused = elect(cluster, "orders", "--unclean", exit_code=2).stderr
    assert "orders-0 would be led by broker 1" in refused
    assert "all its acknowledged records are on broker 0" in refused
    assert "lost for good" in refused
    assert cluster.leader_of("orders", 0) is None


def test_an_unclean_election_names_the_leader_and_is_counted(cluster: Cluster) -> None:
    lose_the_leader(cluster)
    shown = elect(cluster, "orders", "--partition", "1", "--unclean", "--yes").stdout.splitlines()
    assert shown[0] == "elected leaders of 1 partition"
    assert shown[-1].split() == ["orders", "1", "1"]
    assert [cluster.leader_of("orders", number) for number in range(2)] == [None, 1]
    assert elect(cluster, "orders", "-p", "1", "--unclean").stdout == "every partition has a leader\n"
    elect(cluster, "--all-topics", "--unclean", "--yes")
    assert [cluster.leader_of("orders", number) for number in range(2)] == [1, 1]
    assert cluster.brokers[1]._production().services.controlling.unclean_elections == 2


def test_a_topic_or_all_of_them_are_named(cli: Call, topic: str) -> None:
    for options in ([], [topic, "--all-topics"], ["--all-topics", "--partition", "0"]):
        assert "name a topic" in cli("topic", "elect", *options, exit_code=2).stderr
    assert "did you mean" in cli("topic", "elect", f"{topic}x", exit_code=1).stderr


def test_a_question_names_few_of_many_partitions_and_those_that_no_broker_can_lead() -> None:
    many = [Candidate(TopicPartition("orders", number), 1, (0, 2)) for number in range(NAMED + 2)]
    asked = question(many)
    assert "on brokers 0 and 2" in asked
    assert "and 2 more" in asked
    assert f"orders-{NAMED}" not in asked
    assert "no replica is alive" in question([Candidate(KEY, None, ())])
    assert "led by the broker that is alive whose log goes farthest" in question([Candidate(KEY, 1, ())])


def test_only_partitions_that_exist_are_elected() -> None:
    topic = Topic("orders", b"", False, tuple(Partition(number, 0, 0, (0,), (0,)) for number in range(2)))
    assert keys_of(topic, []) == [KEY, TopicPartition("orders", 1)]
    assert keys_of(topic, [0, 0]) == [KEY]
    with pytest.raises(UnknownPartitionError):
        keys_of(topic, [2])
