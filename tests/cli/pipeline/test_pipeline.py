"""`penstock pipeline`: its commands, and that they cost nothing until they are used."""

import click
import pytest
from click.testing import CliRunner

from penstock.cli.main import penstock
from penstock.cli.pipeline.pipeline import COMMANDS, pipeline


def test_without_a_command_it_tells_which_there_are() -> None:
    result = CliRunner().invoke(penstock, ["pipeline"])
    assert result.exit_code == 2
    for name in COMMANDS:
        assert name in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_has_the_first_line_of_each_command(name: str) -> None:
    command = pipeline.get_command(click.Context(pipeline), name)
    assert command is not None
    assert COMMANDS[name].help == command.get_short_help_str(limit=200)
