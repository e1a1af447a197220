"""`penstock completion` prints the script by which a shell completes commands, options and topic names."""

import click

from penstock.cli.help import examples

SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog=examples(
        'eval "$(penstock completion bash)"   in this session; for all, put the line into ~/.bashrc',
        'eval "$(penstock completion zsh)"    likewise, in ~/.zshrc',
        "penstock completion fish | source",
    )
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes a shell complete commands.

    The script is for the shell to read. Names of topics and groups are asked of the cluster.
    """
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    assert complete is not None, "click knows the shells that we name"
    click.echo(complete(ctx.find_root().command, {}, "penstock", "_PENSTOCK_COMPLETE").source())
