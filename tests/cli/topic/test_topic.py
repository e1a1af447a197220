"""Topics on a real broker; and on one that a test has made forgetful."""

import json
from collections.abc import Callable

from click.testing import CliRunner, Result

from penstock.cli.main import penstock
from penstock.cli.topic.topic import total
from penstock.testing import Cluster

Call = Callable[..., Result]


def described(cli: Call, topic: str, *options: str) -> dict[str, object]:
    told: dict[str, object] = json.loads(cli("topic", "describe", topic, "--output", "json", *options).stdout)
    return told


def test_a_topic_is_made_as_wished(cli: Call) -> None:
    made = cli("topic", "create", "made", "--partitions", "3", "-c", "retention.ms=5000", "--output", "json")
    told = json.loads(made.stdout)
    assert (told["topic"], told["partitions"], told["replication_factor"]) == ("made", 3, 1)
    shown = described(cli, "made")
    assert shown["topic_id"] == told["topic_id"]
    assert shown["configs"] == [{"config": "retention.ms", "value": "5000", "from": "topic"}]
    assert cli("topic", "create", "made-simply", "-p", "1").stdout == "made topic made-simply with 1 partition\n"


def test_a_topic_is_not_made_twice_nor_with_a_bad_name_or_config(cli: Call, topic: str) -> None:
    assert "TOPIC_ALREADY_EXISTS" in cli("topic", "create", topic, exit_code=1).stderr
    assert "INVALID_TOPIC_EXCEPTION" in cli("topic", "create", "no/slash", exit_code=1).stderr
    assert "INVALID_CONFIG" in cli("topic", "create", "new", "-c", "retention.ms=soon", exit_code=1).stderr
    cli("topic", "create", "new", "-c", "retention.ms", exit_code=2)
    cli("topic", "create", "new", "--partitions", "0", exit_code=2)


def test_errors_name_a_topic_once_and_count_its_partitions_in_english(cli: Call, topic: str) -> None:
    exists = cli("topic", "create", topic, exit_code=1).stderr
    assert exists.startswith(f"Error: topic {topic!r} already exists; ")
    assert exists.count(topic) == 1
    fewer = cli("topic", "add-partitions", topic, "--count", "1", exit_code=1).stderr
    assert fewer.startswith(f"Error: topic {topic!r} has 1 partition, of which there can only be more: 1 would not")


def test_the_list_has_messages_and_size(cli: Call, topic: str) -> None:
    cli("produce", topic, input="one\ntwo\n")
    rows = {row["topic"]: row for row in json.loads(cli("topic", "list", "--output", "json").stdout)}
    assert rows[topic]["partitions"] == 1
    assert rows[topic]["replicas"] == 1
    assert rows[topic]["messages"] == 2
    assert rows[topic]["size"] > 61
    table = cli("topic", "list").stdout.splitlines()
    assert table[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS", "MESSAGES", "SIZE"]
    assert any(line.split()[:4] == [topic, "1", "1", "2"] for line in table)


def test_replicas_are_shown_with_those_out_of_sync_and_those_that_may_lead_nevertheless() -> None:
    with Cluster(3, storage="memory") as cluster:
        cluster.create_topic("orders")
        cluster.until_in_sync()
        create = ["-b", cluster.brokers[0].bootstrap, "topic", "create", "bills", "-p", "2"]
        assert CliRunner().invoke(penstock, create).stdout == "made topic bills with 2 partitions, 3 replicas of each\n"
        describe = ["-b", cluster.brokers[0].bootstrap, "topic", "describe", "orders"]
        whole = CliRunner().invoke(penstock, describe).stdout
        assert "ELR" not in whole
        assert "OUT OF SYNC" not in whole
        for broker in (1, 2):
            cluster.stop(broker)
            cluster.until_leaders()
        torn = CliRunner().invoke(penstock, describe).stdout.splitlines()
        titles = next(line for line in torn if "PARTITION" in line)
        assert "ISR  ELR  OUT OF SYNC" in titles
        assert torn[torn.index(titles) + 1].split()[3:7] == ["0,1,2", "0", "2", "1,2"]
        told = json.loads(CliRunner().invoke(penstock, [*describe, "-O", "json"]).stdout)
        assert (told["partitions"][0]["elr"], told["partitions"][0]["out_of_sync"]) == ([2], [1, 2])


def test_a_description_has_partitions_and_what_differs_from_defaults(cli: Call, topic: str) -> None:
    cli("produce", topic, input="one\ntwo\n")
    partitions = described(cli, topic)["partitions"]
    assert isinstance(partitions, list)
    (partition,) = partitions
    size = partition.pop("size")
    assert size > 61
    assert partition == {
        "partition": 0,
        "leader": 0,
        "epoch": 0,
        "replicas": [0],
        "isr": [0],
        "elr": [],
        "out_of_sync": [],
        "start": 0,
        "end": 2,
        "messages": 2,
    }
    shown = cli("topic", "describe", topic).stdout
    assert "all configs have their default" in shown
    assert "PARTITION  LEADER  EPOCH" in shown
    assert "CLEAN" not in shown
    assert "segment.bytes" not in shown
    assert "segment.bytes" in cli("topic", "describe", topic, "--all-configs").stdout


def test_of_a_compacted_topic_clean_and_dirty_bytes_are_shown(cli: Call) -> None:
    cli("topic", "create", "compacted", "-p", "2", "-c", "cleanup.policy=compact")
    cli("produce", "compacted", "--key-separator", ":", input="a:1\nb:2\n")
    partitions = described(cli, "compacted")["partitions"]
    assert isinstance(partitions, list)
    # All is in active segments, which compaction does not touch.
    assert [(partition["clean"], partition["dirty"]) for partition in partitions] == [(0, 0)] * 2
    assert sum(partition["size"] for partition in partitions) > 0
    shown = cli("topic", "describe", "compacted").stdout
    header = next(line for line in shown.splitlines() if line.startswith("PARTITION"))
    assert header.split()[-3:] == ["SIZE", "CLEAN", "DIRTY"]


def test_an_unknown_topic_brings_the_near_name(cli: Call) -> None:
    cli("topic", "create", "near-enough", "-p", "1")
    for args in (
        ["describe", "near-enoug"],
        ["alter", "near-enoug", "--set", "retention.ms=1"],
        ["add-partitions", "near-enoug", "--count", "2"],
        ["trim", "--yes", "near-enoug", "--before", "end"],
        ["delete", "--yes", "near-enoug"],
    ):
        assert "did you mean 'near-enough'?" in cli("topic", *args, exit_code=1).stderr, args


def test_configs_are_set_and_unset(cli: Call, topic: str) -> None:
    changed = cli("topic", "alter", topic, "--set", "retention.ms=7", "--set", "cleanup.policy=compact")
    assert changed.stdout == f"changed 2 configs of topic {topic}\n"
    cli("topic", "alter", topic, "--unset", "cleanup.policy")
    assert described(cli, topic)["configs"] == [{"config": "retention.ms", "value": "7", "from": "topic"}]
    assert "INVALID_CONFIG" in cli("topic", "alter", topic, "--set", "retention=7", exit_code=1).stderr
    assert "nothing to change" in cli("topic", "alter", topic, exit_code=2).stderr
    twice = cli("topic", "alter", topic, "--set", "retention.ms=8", "--unset", "retention.ms", exit_code=2)
    assert "named twice" in twice.stderr


def test_partitions_are_added_up_to_a_total(cli: Call, topic: str) -> None:
    cli("topic", "add-partitions", topic, "--count", "3")
    partitions = described(cli, topic)["partitions"]
    assert isinstance(partitions, list)
    assert len(partitions) == 3
    assert "INVALID_PARTITIONS" in cli("topic", "add-partitions", topic, "--count", "2", exit_code=1).stderr


def test_history_is_trimmed_before_an_offset(cli: Call, topic: str) -> None:
    cli("produce", topic, input="0\n1\n2\n3\n")
    told = cli("topic", "trim", "--yes", topic, "--before", "3", "--output", "json").stdout
    assert json.loads(told) == [{"topic": topic, "partition": 0, "start": 3}]
    assert cli("consume", topic).stdout == "3\n"
    refused = cli("topic", "trim", "--yes", topic, "--before", "9", exit_code=1)
    assert f"offset 9 is not in {topic}-0, which goes from 3 to 4" in refused.stderr
    cli("topic", "trim", "--yes", topic, "--before", "end")
    assert cli("consume", topic).stdout == ""


def test_history_is_trimmed_before_a_time(cli: Call, topic: str) -> None:
    cli("produce", topic, input="old\n")
    sent_at = int(cli("consume", topic, "--format", "%T").stdout)
    cli("topic", "trim", "--yes", topic, "--before", f"@{sent_at}")
    assert cli("consume", topic).stdout == "old\n"
    cli("topic", "trim", "--yes", topic, "--before", f"@{sent_at + 1}")
    assert cli("consume", topic).stdout == ""


def test_an_offset_needs_a_partition_where_there_are_several(cli: Call) -> None:
    cli("topic", "create", "several", "--partitions", "2")
    for partition in "01":
        cli("produce", "several", "--partition", partition, input="a\nb\n")
    assert "say of which" in cli("topic", "trim", "--yes", "several", "--before", "1", exit_code=2).stderr
    cli("topic", "trim", "--yes", "several", "--before", "-1", exit_code=2)
    shown = cli("topic", "trim", "--yes", "several", "--partition", "1", "--before", "1").stdout
    assert shown.splitlines()[1].split() == ["several", "1", "1"]
    assert sorted(cli("consume", "several").stdout.split()) == ["a", "b", "b"]


def test_deleting_tells_of_each_topic(cli: Call, topic: str) -> None:
    result = cli("topic", "delete", "--yes", "never-was", topic, "nor-this", exit_code=1)
    assert result.stdout == f"deleted topic {topic}\n"
    assert result.stderr.count("there is no such topic") == 2
    cli("topic", "describe", topic, exit_code=1)


def test_a_sum_is_known_if_all_of_it_is() -> None:
    assert total([1, 2]) == 3
    assert total([]) == 0
    assert total([1, None]) is None
