"""Scripts for shells, and what they are offered."""

import os
import subprocess
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from penstock.cli.completion import SHELLS
from penstock.cli.main import penstock
from tests.cli.conftest import PROGRAM, Running
from tests.cli.groups import commit


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_a_script_that_asks_us(shell: str) -> None:
    result = CliRunner().invoke(penstock, ["completion", shell])
    assert result.exit_code == 0
    assert f"_PENSTOCK_COMPLETE={shell}_complete" in result.output


def test_bash_understands_its_script() -> None:
    script = CliRunner().invoke(penstock, ["completion", "bash"]).output
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def offered(words: str, **environment: str) -> list[str]:
    asked = {"_PENSTOCK_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(PROGRAM, env={**os.environ, **asked, **environment}, capture_output=True, check=True)
    return [line.partition(",")[2] for line in done.stdout.decode().splitlines() if line]


def test_commands_and_options_are_completed() -> None:
    assert offered("penstock t") == ["topic"]
    assert offered("penstock topic a") == ["add-partitions", "alter"]
    assert offered("penstock consume --fo") == ["--follow", "--format"]
    assert offered("penstock consume --offset e") == ["end"]


def test_topics_are_completed(broker: Running, cli: Callable[..., Result], topic: str) -> None:
    assert offered(f"penstock consume {topic[:-3]}", PENSTOCK_BOOTSTRAP=broker.address) == [topic]
    assert offered(f"penstock consume --bootstrap {broker.address} {topic[:-3]}") == [topic]


def test_groups_are_completed(broker: Running, topic: str) -> None:
    commit(broker, "completed-group", {(topic, 0): 0})
    assert offered("penstock group lag comp", PENSTOCK_BOOTSTRAP=broker.address) == ["completed-group"]
    assert offered("penstock group seek x --to l", PENSTOCK_BOOTSTRAP=broker.address) == ["latest"]


def test_without_a_broker_nothing_is_offered_and_nothing_said() -> None:
    assert offered("penstock consume o", PENSTOCK_BOOTSTRAP="127.0.0.1:1") == []
    assert offered("penstock group lag o", PENSTOCK_BOOTSTRAP="127.0.0.1:1") == []
