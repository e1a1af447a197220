"""The command `penstock`: its nouns and verbs, and how it ends.

Exit codes: 0 it worked, 1 it failed, 2 it was called wrongly, 130 it was interrupted.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from penstock import __version__
from penstock.cli.lazy import Entry, LazyGroup

INTERRUPTED = 130

COMMANDS = {
    "serve": Entry("penstock.cli.serve:serve", "Run a broker."),
    "topic": Entry("penstock.cli.topic:topic", "Make, show, change and delete topics."),
    "produce": Entry("penstock.cli.produce:produce", "Send lines as messages."),
    "consume": Entry("penstock.cli.consume:consume", "Print the messages of a topic."),
    "group": Entry("penstock.cli.group:group", "Look at consumer groups and move them."),
    "message": Entry("penstock.cli.message:message", "Look at single messages."),
    "pipeline": Entry("penstock.cli.pipeline:pipeline", "Run data pipelines on Spark."),
    "log": Entry("penstock.cli.log:log", "Look into the files of a data folder."),
    "completion": Entry("penstock.cli.completion:completion", "Print what makes a shell complete commands."),
}


class Program(LazyGroup):
    """Errors are told in a sentence, without a traceback, and become exit codes."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        try:
            # Only `ctx.exit` brings a number.
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra) or 0
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        except click.Abort:
            code = INTERRUPTED
        sys.exit(code)

    def invoke(self, ctx: click.Context) -> None:
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever reads our output, `head` perhaps, has seen enough.
            _silence(sys.stdout)


def _silence(stream: Any) -> None:
    """Let what is still buffered go nowhere, or the interpreter complains about it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)


@click.group(
    cls=Program,
    entries=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)
@click.version_option(__version__, prog_name="penstock")
def penstock() -> None:
    """Penstock, a message queue that speaks Apache Kafka's wire protocol."""


def main() -> None:
    """What the console script calls."""
    penstock.main(prog_name="penstock")
