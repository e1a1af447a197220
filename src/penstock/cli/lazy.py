"""`LazyGroup` imports each of its commands when it is used, so that the others cost nothing; `NearGroup` names the
command that was meant when there is none of a name."""

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import click

from penstock.cli.help import HelpContext


class Entry(NamedTuple):
    """Where a command is (`module:name`), and the line that the group's help has for it."""

    target: str
    help: str
    is_local: bool = False
    """Whether it connects to no cluster, and so has no use for what is said of one before its name."""


class NearGroup(click.Group):
    """A group of commands that answers a name which it does not have with the nearest that it has."""

    context_class = HelpContext

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing and not name.startswith("-"):
            known = self.list_commands(ctx)
            near = get_close_matches(name.lower(), known, n=2)
            told = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(known)}"
            ctx.fail(f"{ctx.command_path} has no command {name!r}: {told}")
        resolved = super().resolve_command(ctx, args)
        if resolved[1] is not None:
            resolved[1].context_class = HelpContext
        return resolved

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with the whole first sentence of each, which is folded where it does not fit."""
        listed = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(limit=1000)) for name, command in listed if command is not None]
            )


class LazyGroup(NearGroup):
    """A group of commands that are imported when they are used."""

    def __init__(self, *args: Any, entries: Mapping[str, Entry], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry.target.partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.entries.items()])
