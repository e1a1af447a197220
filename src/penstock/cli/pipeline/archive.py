"""`penstock pipeline archive` adds what a topic has to a Delta table, and deletes it from the log on demand."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from penstock.cli.options import GroupName, bootstrap_option, output_option, topic_argument
from penstock.cli.output import Size, counted, show_json, show_table
from penstock.cli.pipeline.jobs import ask_first, client_settings, pipeline_errors, spark_options, spark_session
from penstock.cli.positions import Kind, Position, PositionType

if TYPE_CHECKING:
    from penstock.spark.lake.archiving import ArchiveResult
    from penstock.spark.lake.files import Compression

_EPILOG = """\b
Every hour, keeping the log small:
  penstock pipeline archive orders --to /lake/orders --truncate
Only what is older than a day:
  penstock pipeline archive orders --to /lake/orders --until -1d
On a cluster:
  penstock pipeline archive orders --to /lake/orders --master spark://host:7077
"""


@click.command(epilog=_EPILOG)
@topic_argument
@click.option("--to", required=True, metavar="PATH", help="The folder of the Delta table, which is made if need be.")
@click.option("--truncate", is_flag=True, help="Read back and check what is archived, then delete it from the log.")
@click.option(
    "--group",
    type=GroupName(),
    metavar="GROUP",
    help="Where to commit how far the archive is, for penstock.retention.hold.group.  [default: archive.TOPIC]",
)
@click.option(
    "--until",
    type=PositionType(Kind.TIME),
    metavar="@TIME|-1h",
    help="Leave alone what came later: a date of ISO 8601 or milliseconds since 1970 after an @, or a time before now "
    "(d, h, m, s, ms).",
)
@click.option("--max-messages", type=click.IntRange(min=1), metavar="N", help="Add about N at most.")
@click.option("--max-bytes", type=click.IntRange(min=1), metavar="N", help="Add about N at most.")
@click.option(
    "--compression",
    type=click.Choice(["zstd", "snappy", "none"]),
    default="zstd",
    show_default=True,
    help="Of the files: snappy is written sooner, and takes about twice the room.",
)
@click.option(
    "--skip-lost",
    is_flag=True,
    help="Go on after records that were deleted before they were archived, and although others have taken some from "
    "the table since.",
)
@spark_options
@output_option
@bootstrap_option
def archive(
    *,
    topic: str,
    to: str,
    truncate: bool,
    group: str | None,
    until: Position | None,
    max_messages: int | None,
    max_bytes: int | None,
    skip_lost: bool,
    compression: "Compression",
    master: str | None,
    conf: Sequence[tuple[str, str]],
    settings: Sequence[tuple[str, str]],
    output: str,
    bootstrap: str,
) -> None:
    """Add what a topic has to a Delta table.

    A run begins where the table ends and makes one commit, so each message is in the table once, whatever happens; one
    that is interrupted has changed nothing. Two at a time do no harm: the slower one is refused.
    """
    from penstock.cli.pipeline.progress import PipelineProgress

    client = client_settings(bootstrap, settings)
    with pipeline_errors():
        from penstock.spark.lake.archiving import source_of
        from penstock.spark.lake.lake import Lake

        told = ask_first(client, [topic])[topic]
        # A table of another topic is refused.
        Lake.load(to).ends(source_of(told))
    with (
        spark_session(master, conf, f"penstock archive {topic}") as spark,
        PipelineProgress("messages") as progress,
    ):
        from penstock.spark.lake.archiving import archive as run

        result = run(
            spark,
            topic,
            to,
            bootstrap=client,
            truncate=truncate,
            group=group,
            until=None if until is None else until.value,
            max_messages=max_messages,
            max_bytes=max_bytes,
            skip_lost=skip_lost,
            compression=compression,
            watch=lambda told: progress.show(told.stage, told.done, told.total),
        )
    _show(result, output)


def _show(result: "ArchiveResult", output: str) -> None:
    rows = [
        {
            "partition": each.partition,
            "start": each.start,
            "end": each.end,
            "messages": each.rows,
            "size": Size(each.size),
            "files": each.files,
            "truncated_to": result.truncated.get(each.partition),
        }
        for each in result.added
    ]
    if output == "json":
        show_json(
            {
                "topic": result.topic,
                "path": result.path,
                "version": result.version,
                "group": result.group,
                "added": rows,
                "ends": {str(number): end for number, end in result.ends.items()},
                "truncated": {str(number): start for number, start in result.truncated.items()},
            }
        )
        return
    if rows:
        columns = ["partition", "start", "end", "messages", "size", "files"]
        shown = [*columns, "truncated_to"] if result.truncated else columns
        show_table(shown, rows, spare=["files", "size", "start"])
        click.echo(f"{counted(result.rows, 'message')} added to {result.path}, now at version {result.version}")
    else:
        click.echo(f"{result.path} has everything that {result.topic} has")
        for number, start in result.truncated.items():
            click.echo(f"partition {number} begins at {start:,} now")
