"""All commands of the program, as click has them."""

from collections.abc import Iterator

import click

from penstock.cli.main import penstock


def commands(group: click.Group = penstock, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Each command that does something, with its name as it is called, such as `topic list`."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command
