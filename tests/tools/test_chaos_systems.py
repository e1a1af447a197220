"""Apache Kafka beside Penstock: what it is set up with, whose turn it is, and the table of both."""

import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tools.chaos import __main__ as command
from tools.chaos.faults import FAULTS, pause_for_long, pause_shortly
from tools.chaos.progress import TURN_ROUNDS, plan, turns
from tools.chaos.report import comparison, summary
from tools.chaos.round import Result
from tools.chaos.scene import Scene
from tools.chaos.systems import PENSTOCK, SYSTEMS
from tools.chaos.systems.kafka import KafkaStage, properties_of

SYSTEM_NAMES = [PENSTOCK, "kafka", "kafka-6s"]


def test_kafka_is_set_up_for_acks_all_as_penstock_is() -> None:
    told = properties_of(2, Path("/data"), 9.0).splitlines()
    for line in (
        "node.id=2",
        "process.roles=broker,controller",
        "controller.quorum.voters=1@192.0.2.1:9093,2@192.0.2.2:9093,3@192.0.2.3:9093",
        "listeners=PLAINTEXT://192.0.2.2:9092,CONTROLLER://192.0.2.2:9093",
        "broker.session.timeout.ms=9000",
        "default.replication.factor=3",
        "min.insync.replicas=2",
        "offsets.topic.replication.factor=3",
    ):
        assert line in told


def test_kafka_is_not_told_settings_that_only_penstock_has() -> None:
    told = KafkaStage.topic_configs(cast(Any, None), {"penstock.flush": "os", "retention.ms": "1"})
    assert told == {"retention.ms": "1"}


def test_one_system_alone_has_all_rounds_in_one_turn() -> None:
    rounds = plan(["kill", "stop-long"], 10, 1)
    assert list(turns([PENSTOCK], rounds, 2)) == [(PENSTOCK, rounds)]


def test_systems_take_turns_forwards_and_backwards_and_each_has_all_rounds() -> None:
    rounds = plan(["kill", "stop-long"], TURN_ROUNDS + 1, 1)
    taken = list(turns(SYSTEM_NAMES, rounds, 2))
    assert [name for name, _ in taken] == [*SYSTEM_NAMES, *reversed(SYSTEM_NAMES)]
    for system in SYSTEM_NAMES:
        own = [some for name, some in taken if name == system]
        assert [len(some) for some in own] == [2 * TURN_ROUNDS, 2]
        assert {name: fault for some in own for name, fault in some.items()} == rounds


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("system", SYSTEM_NAMES)
def test_a_pause_is_shorter_or_longer_than_the_session_of_the_system(system: str, seed: int) -> None:
    session = SYSTEMS[system].session_seconds

    def seconds(fault: Any) -> float:
        broker = SimpleNamespace(pause=lambda: None, resume=lambda: None)
        stage = SimpleNamespace(session_seconds=session, brokers={1: broker})
        [lasting] = list(fault(Scene(cast(Any, stage), cast(Any, None), 1, Random(seed))))
        return float(lasting)

    assert 0 < seconds(pause_shortly) <= session - 3
    assert seconds(pause_for_long) >= session + 2


def test_the_table_sets_systems_side_by_side_with_their_sessions() -> None:
    gone = {"acks1": [1000, 2], "os": [900, 0]}
    results = {
        name: [
            Result(f"1-kill-{number}", "kill", back_seconds=number + 1.0, pause_seconds=number + 2.0, beside=gone)
            for number in numbers
        ]
        for name, numbers in zip(SYSTEM_NAMES, ([1, 2, 6], [4, 5, 9], [2, 3, 7]), strict=True)
    }
    results["kafka"].append(Result("1-stop-long-1", "stop-long", "leader", 2, problem="stuck"))
    told = comparison(results, "4.9.9")
    ours, theirs, with_our_session = [line for line in told.splitlines() if "| kill |" in line]
    assert ours.startswith("| Penstock, session 6 s | kill | kill -9 of a broker | 3 | 3.0 | 7.0 | 4.0 | 8.0 | 0 | 0 |")
    assert theirs.startswith("| Apache Kafka, session 9 s | kill |")
    assert "| 3 | 6.0 | 10.0 | 7.0 | 11.0 | 0 | 0 | 6 of 3,000 | 0 of 2,700 |" in theirs
    assert with_our_session.startswith("| Apache Kafka, session 6 s | kill |")
    assert "Apache Kafka 4.9.9" in told
    assert "- Apache Kafka, session 9 s: round 1-stop-long-1 (leader on host 2): stuck" in told
    assert "Kafka" not in summary(results[PENSTOCK])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--systems", "kafka,pigeons"], "pigeons: there is no such system"),
        (["--systems", "kafka", "--faults", "kill,zookeeper"], "zookeeper: of these systems only Penstock can have"),
        (["--systems", "kafka", "--replay", "1-kill-1"], "for Penstock alone"),
    ],
)
def test_the_command_refuses_what_other_systems_do_not_have(
    arguments: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["chaos", *arguments])
    with pytest.raises(SystemExit):
        command._arguments()
    assert complaint in capsys.readouterr().err


def test_all_systems_can_have_the_faults_that_need_nothing_but_brokers() -> None:
    assert [name for name, fault in FAULTS.items() if fault.is_for_all] == ["kill", "stop-short", "stop-long"]
