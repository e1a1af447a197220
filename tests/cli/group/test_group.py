"""Groups on a real broker: listed, described, deleted."""

import json
from collections.abc import Callable

from click.testing import Result

from penstock.cli.group.group import partitions_text
from penstock.client.metadata import TopicPartition
from tests.cli.conftest import Running
from tests.cli.groups import commit, member_of

Call = Callable[..., Result]


def test_the_list_has_groups_with_their_states(cli: Call, broker: Running, topic: str) -> None:
    commit(broker, "listed-idle", {(topic, 0): 0})
    with member_of(broker, "listed-busy", {topic: [0]}):
        rows = {row["group"]: row for row in json.loads(cli("group", "list", "--output", "json").stdout)}
        assert rows["listed-busy"] == {
            "group": "listed-busy",
            "state": "Stable",
            "type": "classic",
            "protocol": "consumer",
            "coordinator": 0,
        }
        assert (rows["listed-idle"]["state"], rows["listed-idle"]["protocol"]) == ("Empty", None)
        table = cli("group", "list", "--state", "stable", "--type", "classic").stdout.splitlines()
        assert table[0].split() == ["GROUP", "STATE", "TYPE", "PROTOCOL", "COORDINATOR"]
        assert [line.split() for line in table[1:]] == [["listed-busy", "Stable", "classic", "consumer", "0"]]
    assert "there are no such groups" in cli("group", "list", "--state", "dead").stderr
    assert "'sleepy' is not one of" in cli("group", "list", "--state", "sleepy", exit_code=2).stderr


def test_a_description_has_members_and_offsets(cli: Call, broker: Running, topic: str) -> None:
    cli("produce", topic, input="a\nb\nc\n")
    commit(broker, "described", {(topic, 0): 1})
    with member_of(broker, "described", {topic: [0]}) as member:
        told = json.loads(cli("group", "describe", "described", "--output", "json").stdout)
        shown = cli("group", "describe", "described").stdout
    assert told == {
        "group": "described",
        "state": "Stable",
        "protocol_type": "consumer",
        "protocol": "range",
        "coordinator": 0,
        "members": [
            {
                "member": member.member_id,
                "instance": None,
                "client": "worker",
                "host": "127.0.0.1",
                "partitions": {topic: [0]},
            }
        ],
        "offsets": [{"topic": topic, "partition": 0, "committed": 1, "end": 3, "lag": 2, "client": "worker"}],
    }
    assert "members        1" in shown
    assert f"worker  127.0.0.1  {topic} 0" in shown
    assert shown.splitlines()[-1].split() == [topic, "0", "1", "3", "2", "worker"]


def test_what_clients_call_themselves_is_not_obeyed_by_a_terminal(cli: Call, broker: Running, topic: str) -> None:
    sly = "red\x1b[31m\x9b2J\nError: all is lost"
    with member_of(broker, "obeyed", {topic: [0]}, client_id=sly):
        results = [
            cli("group", "describe", "obeyed"),
            cli("group", "describe", "obeyed", "--output", "json"),
            cli("group", "lag", "obeyed"),
            cli("group", "seek", "--yes", "obeyed", "--to", "beginning", "--topic", topic, exit_code=1),
            cli("group", "seek", "--yes", "obeyed", "--to", "beginning", "--topic", topic, "--dry-run"),
        ]
    for result in results:
        shown = result.stdout + result.stderr
        assert "all is lost" in shown
        assert [x for x in shown.split("\n") if not (x.isprintable() and not x.startswith("Error: all"))] == []
    assert json.loads(results[1].stdout)["members"][0]["client"] == sly


def test_a_group_without_members_or_offsets_is_described_too(cli: Call, broker: Running, topic: str) -> None:
    with member_of(broker, "nothing-yet", raw=b"\xff own"):
        told = json.loads(cli("group", "describe", "nothing-yet", "--output", "json").stdout)
        shown = cli("group", "describe", "nothing-yet").stdout
    assert told["members"][0]["partitions"] is None
    assert told["members"][0]["assignment_base64"] == "/yBvd24="
    assert "0xff206f776e" in shown
    assert "nothing is committed" in shown
    commit(broker, "nobody-in-it", {(topic, 0): 0})
    assert "MEMBER" not in cli("group", "describe", "nobody-in-it").stdout


def test_an_unknown_group_brings_the_near_name(cli: Call, broker: Running, topic: str) -> None:
    commit(broker, "near-group", {(topic, 0): 0})
    for args in (["describe", "near-grup"], ["lag", "near-grup"], ["seek", "--yes", "near-grup", "--to", "end"]):
        assert "did you mean 'near-group'?" in cli("group", *args, exit_code=1).stderr, args
    assert "did you mean 'near-group'?" in cli("group", "delete", "--yes", "near-grup", exit_code=1).stderr


def test_deleting_tells_of_each_group(cli: Call, broker: Running, topic: str) -> None:
    commit(broker, "deleted-group", {(topic, 0): 0})
    with member_of(broker, "deleted-never"):
        result = cli("group", "delete", "--yes", "never-was", "deleted-group", "deleted-never", exit_code=1)
    assert result.stdout == "deleted group deleted-group\n"
    assert "there is no such group" in result.stderr
    assert "group 'deleted-never': the group has members: stop them first" in result.stderr
    cli("group", "describe", "deleted-group", exit_code=1)


def test_partitions_in_a_row_are_written_as_one() -> None:
    keys = [TopicPartition("b", 1), *(TopicPartition("a", number) for number in (0, 1, 2, 5, 7, 8))]
    assert partitions_text(keys) == "a 0-2,5,7-8; b 1"
    assert partitions_text([]) == ""
