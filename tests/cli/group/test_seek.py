"""Groups are moved on a real broker."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from penstock.cli.group.seek import Move, describe_moves
from penstock.client.metadata import TopicPartition
from tests.cli.conftest import Running
from tests.cli.groups import commit, member_of
from tests.cli.test_options import Start, on_a_terminal

Call = Callable[..., Result]


def seek(cli: Call, group: str, *args: str) -> dict[tuple[str, int], tuple[int | None, int]]:
    rows = json.loads(cli("group", "seek", "--yes", group, "--output", "json", *args).stdout)
    return {(row["topic"], row["partition"]): (row["old"], row["new"]) for row in rows}


def committed(cli: Call, group: str) -> dict[tuple[str, int], int]:
    told = json.loads(cli("group", "describe", group, "--output", "json").stdout)
    return {(row["topic"], row["partition"]): row["committed"] for row in told["offsets"]}


@pytest.mark.parametrize(
    ("to", "new"),
    [("earliest", 2), ("latest", 5), ("3", 3), ("-1", 4), ("-1h", 2), ("@0", 2), ("@2999-01-01", 5), ("-0s", 5)],
    ids=lambda value: str(value).removeprefix("@"),
)
def test_a_group_goes_on_where_it_is_told(cli: Call, broker: Running, topic: str, to: str, new: int) -> None:
    cli("produce", topic, input="0\n1\n2\n3\n4\n")
    cli("topic", "trim", "--yes", topic, "--before", "2")
    group = f"moved-{to}"
    commit(broker, group, {(topic, 0): 4})
    assert seek(cli, group, "--to", to, "--dry-run") == {(topic, 0): (4, new)}
    assert committed(cli, group) == {(topic, 0): 4}, "a dry run changes nothing"
    assert seek(cli, group, "--to", to) == {(topic, 0): (4, new)}
    assert committed(cli, group) == {(topic, 0): new}


def test_a_time_is_that_of_the_first_message_that_is_not_older(cli: Call, broker: Running, topic: str) -> None:
    cli("produce", topic, input="0\n")
    cli("produce", topic, input="1\n")
    first, second = (int(line) for line in cli("consume", topic, "--format", r"%T\n").stdout.split())
    commit(broker, "by-time", {(topic, 0): 0})
    assert seek(cli, "by-time", "--to", f"@{second}") == {(topic, 0): (0, 0 if first == second else 1)}


def test_topics_and_partitions_can_be_chosen(cli: Call, broker: Running) -> None:
    for name in ("seek-a", "seek-b"):
        cli("topic", "create", name, "--partitions", "2")
        for partition in "01":
            cli("produce", name, "--partition", partition, input="x\ny\n")
    commit(broker, "chosen", {("seek-a", 0): 1, ("seek-b", 1): 1})
    everything = {("seek-a", 0): (1, 2), ("seek-a", 1): (None, 2), ("seek-b", 0): (None, 2), ("seek-b", 1): (1, 2)}
    assert seek(cli, "chosen", "--to", "latest", "--dry-run") == everything
    assert seek(cli, "chosen", "-t", "seek-b", "--to", "0", "-p", "1") == {("seek-b", 1): (1, 0)}
    assert seek(cli, "chosen", "-t", "seek-b", "-t", "seek-a", "--to", "latest").keys() == everything.keys()
    assert (
        "say of which, with --topic"
        in cli("group", "seek", "--yes", "chosen", "-p", "1", "--to", "end", exit_code=2).stderr
    )
    several = cli("group", "seek", "--yes", "chosen", "-t", "seek-a", "--to", "1", exit_code=2)
    assert "an offset is one of a certain partition, and here are 2" in several.stderr
    beyond = cli("group", "seek", "--yes", "chosen", "-t", "seek-a", "-p", "0", "--to", "9", exit_code=1)
    assert "offset 9 is not in seek-a-0, which goes from 0 to 2" in beyond.stderr
    assert (
        "has 2 partitions"
        in cli("group", "seek", "--yes", "chosen", "-t", "seek-a", "-p", "7", "--to", "1", exit_code=1).stderr
    )
    assert (
        "did you mean 'seek-a'"
        in cli("group", "seek", "--yes", "chosen", "-t", "seek-aa", "--to", "end", exit_code=1).stderr
    )
    cli("group", "seek", "--yes", "chosen", "--to", "somewhere", exit_code=2)


def test_a_group_with_members_is_not_moved(cli: Call, broker: Running, topic: str) -> None:
    commit(broker, "in-use", {(topic, 0): 0})
    with member_of(broker, "in-use", {topic: [0]}):
        refused = cli("group", "seek", "--yes", "in-use", "--to", "latest", exit_code=1)
        assert "group 'in-use' has 1 member (worker on 127.0.0.1)" in refused.stderr
        assert "stop them, and ask again when the group is empty" in refused.stderr
        dry = cli("group", "seek", "--yes", "in-use", "--to", "latest", "--dry-run")
        assert "Warning: group 'in-use' has 1 member" in dry.stderr
        assert dry.stdout.splitlines()[1].split() == [topic, "0", "0", "0"]
    cli("group", "seek", "--yes", "in-use", "--to", "latest")


def test_a_group_without_offsets_needs_a_topic(cli: Call, broker: Running, topic: str) -> None:
    with member_of(broker, "no-offsets"):
        refused = cli("group", "seek", "--yes", "no-offsets", "--to", "earliest", "--dry-run", exit_code=1)
    assert "has committed nothing: say which --topic" in refused.stderr


def test_a_group_that_does_not_exist_yet_can_be_told_where_to_begin(cli: Call, topic: str) -> None:
    cli("produce", topic, input="a\nb\n")
    missing = cli("group", "seek", "--yes", "not-yet", "--to", "latest", exit_code=1)
    assert "there is no such group" in missing.stderr
    assert "to make it, say with --topic what it is to read" in missing.stderr
    assert seek(cli, "not-yet", "--topic", topic, "--to", "1", "--dry-run") == {(topic, 0): (None, 1)}
    cli("group", "describe", "not-yet", exit_code=1)
    assert seek(cli, "not-yet", "--topic", topic, "--to", "1") == {(topic, 0): (None, 1)}
    assert committed(cli, "not-yet") == {(topic, 0): 1}
    assert cli("consume", topic, "--group", "not-yet").stdout == "b\n"


def test_on_a_terminal_it_is_asked_before_a_group_is_moved(
    cli: Call, broker: Running, program: Start, topic: str
) -> None:
    cli("produce", topic, input="a\n")
    commit(broker, "asked", {(topic, 0): 1})
    code, seen = on_a_terminal(program, "group", "seek", "asked", "--to", "earliest", answer=b"n\n")
    assert code == 1
    assert f"Move asked in 1 partition of {topic}? [y/N]" in " ".join(seen.split())
    assert committed(cli, "asked") == {(topic, 0): 1}
    code, _ = on_a_terminal(program, "group", "seek", "asked", "--to", "earliest", "--yes", answer=b"")
    assert code == 0
    assert committed(cli, "asked") == {(topic, 0): 0}


def test_moves_are_summed_up_by_their_topics() -> None:
    moves = [Move(TopicPartition(topic, 0), None, 1) for topic in ("b", "a")]
    assert describe_moves(moves) == "2 partitions of a, b"
