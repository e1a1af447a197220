"""Completion of commands, options and topic names by the shell."""

import click

SHELLS = ("bash", "zsh", "fish")


@click.command(epilog='For this session: eval "$(penstock completion bash)". For all: put that line into ~/.bashrc.')
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes a shell complete commands.

    The script is for the shell to read: fish takes it with `penstock completion fish | source`.
    """
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    assert complete is not None, "click knows the shells that we name"
    click.echo(complete(ctx.find_root().command, {}, "penstock", "_PENSTOCK_COMPLETE").source())
