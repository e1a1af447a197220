"""Writes the page of the command line, from the commands themselves."""

import inspect
from collections.abc import Iterator

import click

from penstock.cli.main import penstock
from tools.reference.tables import table

INTRODUCTION = """\
# The command line

<!-- Written by `python -m tools.reference` from the commands in src/penstock/cli. Change those. -->

Every command has `-h` and `--help`, with what stands here. Exit codes: 0 it worked, 1 it failed, 2 it was called
wrongly, 130 it was interrupted. Tables are for people; with `-O json` a command prints JSON for programs.
"""


def render_commands() -> str:
    root = click.Context(penstock, info_name="penstock", **penstock.context_settings)
    return "\n".join([INTRODUCTION, *_overview(root), *_command(root, penstock)])


def commands(context: click.Context, command: click.Command) -> Iterator[tuple[click.Context, click.Command]]:
    """The command, and those below it in the order of its help, each with its context."""
    yield context, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            if not below.hidden:
                yield from commands(click.Context(below, context, name, **below.context_settings), below)


def _overview(root: click.Context) -> Iterator[str]:
    leaves = [(context, each) for context, each in commands(root, penstock) if not isinstance(each, click.Group)]
    rows = (
        (f"[`{context.command_path}`](#{context.command_path.replace(' ', '-')})", each.get_short_help_str(200))
        for context, each in leaves
    )
    yield from table(("Name", "What it does"), rows)


def _command(root: click.Context, program: click.Command) -> Iterator[str]:
    for context, command in commands(root, program):
        if isinstance(command, click.Group):
            if context is root:
                yield from _options(context, command)
            continue
        yield f"## {context.command_path}\n"
        yield f"    {context.command_path} {' '.join(command.collect_usage_pieces(context))}\n"
        yield from _text(command.help)
        yield from _options(context, command)
        yield from _text(command.epilog)


def _options(context: click.Context, command: click.Command) -> Iterator[str]:
    records = [each.get_help_record(context) for each in command.get_params(context)]
    shown = [(name, " ".join(meaning.split())) for name, meaning in filter(None, records)]
    # An argument that needs no words stands in the line of usage, and help is the same everywhere.
    rows = [(f"`{name}`", meaning) for name, meaning in shown if meaning and not name.endswith("--help")]
    if rows:
        yield from table(("Name", "Meaning"), rows)


def _text(text: str | None) -> Iterator[str]:
    """Paragraphs; what must not be wrapped is code."""
    for paragraph in inspect.cleandoc(text or "").split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield from (f"    {line}" for line in paragraph.splitlines()[1:])
            yield ""
        elif paragraph:
            yield f"{paragraph}\n"
