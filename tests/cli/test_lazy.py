"""Groups that import a command when it is used."""

import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.cli.lazy import Entry, LazyGroup

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


def test_an_unknown_command_is_wrong_usage(group: LazyGroup) -> None:
    assert CliRunner().invoke(group, ["gret"]).exit_code == 2
