"""The command `penstock` lists its nouns and turns errors into messages and exit codes.

Exit codes: 0 it worked, 1 it failed, 2 it was called wrongly, 130 it was interrupted.
"""

import os
import sys
from collections.abc import Sequence
from io import StringIO
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from penstock import __version__
from penstock.cli.help import examples
from penstock.cli.lazy import Entry, LazyGroup
from penstock.cli.options import bootstrap_option, setting_option
from penstock.cli.output import terminal_width, wrapped
from penstock.protocol.printable import printable

INTERRUPTED = 130
# Longer lines are hard to read.
HELP_WIDTH = 100

COMMANDS = {
    "serve": Entry("penstock.cli.serve:serve", "Run a broker.", is_local=True),
    "ping": Entry("penstock.cli.ping:ping", "Report whether a broker answers."),
    "topic": Entry("penstock.cli.topic.topic:topic", "Make, show, change and delete topics."),
    "produce": Entry("penstock.cli.produce.produce:produce", "Send lines as messages."),
    "consume": Entry("penstock.cli.consume.consume:consume", "Print the messages of topics."),
    "cluster": Entry(
        "penstock.cli.cluster.cluster:cluster",
        "Look at brokers, move a node into a cluster, and save what ZooKeeper has.",
    ),
    "group": Entry("penstock.cli.group.group:group", "Look at consumer groups and move them."),
    "message": Entry("penstock.cli.message:message", "Look at single messages."),
    "pipeline": Entry("penstock.cli.pipeline.pipeline:pipeline", "Run data pipelines on Spark."),
    "log": Entry("penstock.cli.log.log:log", "Look into the files of a data folder.", is_local=True),
    "completion": Entry(
        "penstock.cli.completion:completion", "Print what makes a shell complete commands.", is_local=True
    ),
}

_EXAMPLES = examples(
    "penstock serve",
    "penstock topic create orders --partitions 3",
    "echo 'hello' | penstock produce orders",
    "penstock consume orders --follow",
    "penstock -b broker.example:9092 topic list",
)


class Program(LazyGroup):
    """The program reports errors in a sentence, without a traceback, and turns them into exit codes."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        try:
            # Only `ctx.exit` returns a number.
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra) or 0
        except click.ClickException as error:
            _show(error)
            code = error.exit_code
        except click.Abort:
            code = INTERRUPTED
        sys.exit(code)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        # Otherwise click takes every terminal to be 50 cells wide at least.
        extra.setdefault("terminal_width", min(terminal_width(), HELP_WIDTH))
        return super().make_context(info_name, args, parent, **extra)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        for option, param in (("-b", "bootstrap"), ("-X", "settings")):
            is_given = ctx.get_parameter_source(param) is ParameterSource.COMMANDLINE
            if is_given and name is not None and self.entries[name].is_local:
                ctx.fail(f"{name} connects to no cluster: {option} before it means nothing, so leave it out")
        return name, command, rest

    def invoke(self, ctx: click.Context) -> None:
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of our output, such as `head`, has closed it.
            _silence(sys.stdout)


def _show(error: click.ClickException) -> None:
    """Print an error without control characters: it may quote what a broker or another client has sent."""
    shown = StringIO()
    error.show(shown)
    for line in shown.getvalue().removesuffix("\n").split("\n"):
        click.echo(wrapped(printable(line)), err=True)


def _silence(stream: Any) -> None:
    """Discard what is still buffered: the interpreter would complain about it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)


@click.group(
    cls=Program,
    entries=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    epilog=_EXAMPLES,
)
@bootstrap_option
@setting_option
@click.version_option(__version__, prog_name="penstock")
def penstock(**_: object) -> None:
    """Penstock, a message queue that speaks Apache Kafka's wire protocol.

    Which cluster is meant can be said before the command or after it.
    """


def main() -> None:
    """The entry point of the console script."""
    penstock.main(prog_name="penstock")
