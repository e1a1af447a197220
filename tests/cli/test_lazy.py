"""Groups that import a command when it is used."""

import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.cli.lazy import Entry, LazyGroup
from penstock.cli.main import penstock

MODULE = """
import click

@click.command()
def greet():
    click.echo("hello")
"""


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LazyGroup:
    (tmp_path / "lazily_loaded.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    entries = {"greet": Entry("lazily_loaded:greet", "Say hello."), "broken": Entry("no_such_module:x", "Never used.")}
    return LazyGroup("group", entries=entries)


def test_a_command_is_imported_when_it_is_used(group: LazyGroup) -> None:
    assert CliRunner().invoke(group, ["greet"]).output == "hello\n"
    assert sys.modules.pop("lazily_loaded").__name__ == "lazily_loaded"


def test_help_and_other_commands_do_not_import_it(group: LazyGroup) -> None:
    result = CliRunner().invoke(group, ["--help"])
    assert result.exit_code == 0
    assert "Say hello." in result.output
    assert "Never used." in result.output
    assert "lazily_loaded" not in sys.modules


def test_commands_are_listed_in_the_order_of_the_table(group: LazyGroup) -> None:
    assert group.list_commands(click.Context(group)) == ["greet", "broken"]


def test_an_unknown_command_brings_the_near_name(group: LazyGroup) -> None:
    result = CliRunner().invoke(group, ["gret"])
    assert result.exit_code == 2
    assert "group has no command 'gret': did you mean 'greet'?" in result.stderr
    far = CliRunner().invoke(group, ["xyz"])
    assert "group has no command 'xyz': there are greet, broken" in far.stderr


def test_groups_that_are_not_lazy_name_the_near_command_too() -> None:
    for args, near in ((["topic", "lst"], "list"), (["grup"], "group"), (["group", "Describe"], "describe")):
        assert f"did you mean {near!r}?" in CliRunner().invoke(penstock, args).stderr


def test_the_list_of_commands_has_whole_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    shown = " ".join(CliRunner().invoke(penstock, ["topic", "--help"]).stdout.split())
    assert "Delete topics with all their messages." in shown
