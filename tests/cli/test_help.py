"""Help that can be read at any width, with examples that can be run."""

import shlex

import click
import pytest
from click.testing import CliRunner

from penstock.cli.help import examples
from penstock.cli.main import penstock
from tests.cli.commands import commands

COMMANDS = dict(commands())


def examples_of(command: click.Command) -> list[str]:
    """The lines of a command's help that are commands: indented, and with the name of the program."""
    lines = (command.epilog or "").splitlines()
    # What explains an example stands after two spaces.
    return [line.strip().split("   ")[0] for line in lines if line.startswith("  ") and "penstock " in line]


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_an_example_of_itself(path: str) -> None:
    command = COMMANDS[path]
    assert any(f"penstock {path}" in line for line in examples_of(command))


@pytest.mark.parametrize("path", COMMANDS)
def test_every_example_is_a_command_that_can_be_parsed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Files that examples name need not be there.
    monkeypatch.setattr(click.Path, "convert", lambda _self, value, _param, _ctx: value)
    monkeypatch.setattr("penstock.cli.options.Setting._from_file", lambda *_: "secret")
    for line in examples_of(COMMANDS[path]):
        for part in line.replace("$(", "| ").replace(")", " ").replace("&&", "|").split("|"):
            words = shlex.split(part.replace('"', "") if "eval" in line else part)
            if words[:1] == ["penstock"]:
                parse(words[1:])


def parse(words: list[str]) -> None:
    """Read a command line as the program does, without running it. What is wrong with it is raised."""
    context = penstock.make_context("penstock", words)
    while isinstance(context.command, click.Group):
        name, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None
        context = command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("path", COMMANDS)
def test_options_have_one_name_and_an_explanation_each(path: str) -> None:
    command = COMMANDS[path]
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.help, param.opts
    options = [option for param in command.params for option in param.opts if option.startswith("-")]
    assert len(set(options)) == len(options)


def test_the_tree_of_commands_can_be_read_by_a_program() -> None:
    told = penstock.to_info_dict(click.Context(penstock, info_name="penstock"))
    delete = told["commands"]["topic"]["commands"]["delete"]
    assert delete["help"].startswith("Delete topics with all their messages.")
    assert "penstock topic delete orders" in delete["epilog"]
    options = {tuple(param["opts"]): param for param in delete["params"]}
    assert options["--bootstrap", "-b"]["envvar"] == "PENSTOCK_BOOTSTRAP"
    assert set(told["commands"]) == {path.split()[0] for path in COMMANDS}


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_help_fits_the_terminal_and_breaks_no_word(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for path in ["", *COMMANDS]:
        shown = CliRunner().invoke(penstock, [*path.split(), "--help"]).stdout
        # Examples are left as they are, so that they can be copied, and a choice among many cannot be broken.
        explained = shown.partition("Show this message")[0].splitlines()
        assert not [line for line in explained if len(line) > min(width, 100) and "|" not in line], path
        if "-X NAME=VALUE" in shown and path != "serve":
            assert "security.protocol=SSL" in shown, path


def test_examples_are_indented_below_their_title() -> None:
    assert examples("one", "two") == "\b\nExamples:\n  one\n  two"
