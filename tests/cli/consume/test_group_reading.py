"""The command as a member of a consumer group."""

import json
import signal
import subprocess
from collections.abc import Callable

from click.testing import Result

Call = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[bytes]"]


def committed(cli: Call, group: str) -> dict[tuple[str, int], int]:
    told = json.loads(cli("group", "describe", group, "--output", "json").stdout)
    assert told["members"] == [], "the command has left the group"
    return {(row["topic"], row["partition"]): row["committed"] for row in told["offsets"]}


def test_a_group_goes_on_after_what_was_printed(cli: Call, topic: str) -> None:
    cli("produce", topic, input="0\n1\n2\n3\n4\n")
    assert cli("consume", topic, "--group", "read-1", "--count", "2").stdout == "0\n1\n"
    assert committed(cli, "read-1") == {(topic, 0): 2}
    assert cli("consume", topic, "--group", "read-1", "--until", "4").stdout == "2\n3\n"
    assert committed(cli, "read-1") == {(topic, 0): 4}
    assert cli("consume", topic, "-g", "read-1").stdout == "4\n"
    assert cli("consume", topic, "-g", "read-1").stdout == ""
    assert committed(cli, "read-1") == {(topic, 0): 5}


def test_a_group_that_has_committed_nothing_begins_where_it_is_told(cli: Call, topic: str) -> None:
    cli("produce", topic, input="0\n1\n")
    assert cli("consume", topic, "-g", "read-2", "--offset", "end").stdout == ""
    assert cli("consume", topic, "-g", "read-3", "--offset", "beginning").stdout == "0\n1\n"
    assert cli("consume", topic, "-g", "read-4", "-X", "auto.offset.reset=latest").stdout == ""
    for option in ("1", "-1", "-1h"):
        assert "penstock group seek" in cli("consume", topic, "-g", "g", "-o", option, exit_code=2).stderr
    assert "exclude each other" in cli("consume", topic, "-g", "g", "-p", "0", exit_code=2).stderr


def test_messages_with_other_keys_count_as_read(cli: Call, topic: str) -> None:
    cli("produce", topic, "-K", ":", input="a:0\nb:1\na:2\nb:3\n")
    assert cli("consume", topic, "-g", "read-5", "--key", "b", "--count", "1").stdout == "1\n"
    assert committed(cli, "read-5") == {(topic, 0): 2}
    assert cli("consume", topic, "-g", "read-5", "--key", "a").stdout == "2\n"
    assert committed(cli, "read-5") == {(topic, 0): 4}


def test_several_topics_with_empty_partitions_are_read_to_their_ends(cli: Call, topic: str) -> None:
    cli("topic", "create", "read-empty", "-p", "3")
    cli("produce", topic, input="x\n")
    cli("produce", "read-empty", "-p", "1", input="y\n")
    shown = cli("consume", topic, "read-empty", "--group", "read-6", "-O", "json").stdout.splitlines()
    assert sorted(json.loads(line)["value"] for line in shown) == ["x", "y"]
    assert committed(cli, "read-6") == {(topic, 0): 1, ("read-empty", 1): 1}


def test_nothing_is_printed_or_committed_beyond_the_count(cli: Call) -> None:
    cli("topic", "create", "read-count", "-p", "3")
    for partition in "012":
        cli("produce", "read-count", "-p", partition, input="a\nb\n")
    # All partitions come with one poll, or at least with two.
    printed = cli("consume", "read-count", "-g", "read-8", "--count", "2").stdout.split()
    printed += cli("consume", "read-count", "-g", "read-8", "--count", "3").stdout.split()
    assert len(printed) == 5
    assert sum(committed(cli, "read-8").values()) == 5
    assert len(cli("consume", "read-count", "-g", "read-8").stdout.split()) == 1


def test_an_unknown_topic_brings_the_near_name(cli: Call, topic: str) -> None:
    assert f"did you mean {topic!r}" in cli("consume", topic[:-1], "--group", "g", exit_code=1).stderr


def test_a_member_that_gets_no_partition_ends_and_says_so(cli: Call, program: Start, topic: str) -> None:
    cli("produce", topic, input="x\n")
    # The assignor goes by the names of members, which begin with those of their clients.
    first, last = ["-X", "client.id=a"], ["-X", "client.id=z"]
    holder = program(*first, "consume", topic, "--group", "read-7", "--follow", stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"x\n"
    second = cli(*last, "consume", topic, "--group", "read-7")
    assert (second.stdout, second.stderr) == ("", "Warning: the other members of the group have all partitions\n")
    holder.send_signal(signal.SIGINT)
    assert holder.wait(30) == 0
    assert committed(cli, "read-7") == {(topic, 0): 1}
