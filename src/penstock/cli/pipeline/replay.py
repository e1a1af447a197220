"""`penstock pipeline replay` sends the rows of a Delta table to a topic."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import click

from penstock.cli.options import TopicName, bootstrap_option, output_option
from penstock.cli.output import Timestamp, counted, show_json, show_table
from penstock.cli.pipeline.jobs import ask_first, client_settings, pipeline_errors, spark_options, spark_session
from penstock.cli.positions import Kind, PositionType, parse_duration

_EPILOG = """\b
What came on a day, into a topic of its own:
  penstock pipeline replay /lake/orders --to orders-again --since @2026-07-01 --until @2026-07-02
"""
_TIME = "a date of ISO 8601 or milliseconds since 1970 after an @, or a time before now (d, h, m, s, ms)."


class TimeType(click.ParamType[int | timedelta, Any]):
    """A point in time, or a duration before now. A duration stays one: the replay may have begun earlier, and counts
    from then."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | timedelta:
        if isinstance(value, int | timedelta):
            return value
        text = str(value)
        ago_ms = parse_duration(text[1:]) if text.startswith("-") else None
        if ago_ms is None:
            return PositionType(Kind.TIME).convert(text, param, ctx).value
        try:
            return timedelta(milliseconds=ago_ms)
        except OverflowError:
            self.fail(f"{text!r} is too long ago", param, ctx)


@click.command(epilog=_EPILOG)
@click.argument("path", metavar="PATH")
@click.option("--to", required=True, type=TopicName(), metavar="TOPIC", help="The topic, which must be there.")
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=click.IntRange(min=0),
    metavar="N",
    multiple=True,
    help="Only this one of the table; may be given several times.",
)
@click.option("--from-offset", type=click.IntRange(min=0), default=0, metavar="N", help="Begin there.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="End before it.")
@click.option("--since", type=TimeType(), metavar="@TIME|-1h", help=f"Only messages from then on: {_TIME}")
@click.option("--until", type=TimeType(), metavar="@TIME|-1h", help=f"Only messages from before: {_TIME}")
@click.option("--by-key", is_flag=True, help="Choose partitions by key, instead of those that the messages came from.")
@click.option(
    "--timestamps",
    type=click.Choice(["original", "now"]),
    default="original",
    show_default=True,
    help="Whether messages keep their time. The original is in their headers in any case.",
)
@spark_options
@output_option
@bootstrap_option
def replay(
    *,
    path: str,
    to: str,
    partitions: Sequence[int],
    from_offset: int,
    to_offset: int | None,
    since: int | timedelta | None,
    until: int | timedelta | None,
    by_key: bool,
    timestamps: str,
    master: str | None,
    conf: Sequence[tuple[str, str]],
    settings: Sequence[tuple[str, str]],
    output: str,
    bootstrap: str,
) -> None:
    """Send the rows of a Delta table to a topic.

    Headers say where each message comes from: penstock-original-topic, -partition, -offset and -timestamp. The order
    within a partition is kept. A replay that was interrupted goes on where it was when it is called again in the same
    way; a few megabytes of each partition may then come twice. So long ago (--since -1d) is then counted from the first
    run. Notes in _replays in the table's folder say how far it is: without them it begins anew.
    """
    from penstock.cli.pipeline.progress import PipelineProgress

    client = client_settings(bootstrap, settings)
    with pipeline_errors():
        from penstock.spark.lake.replaying import open_table

        ask_first(client, [to])
        open_table(path)
    with spark_session(master, conf, f"penstock replay {path}") as spark, PipelineProgress("messages") as progress:
        from penstock.spark.lake.replaying import replay as run

        result = run(
            spark,
            path,
            to,
            bootstrap=client,
            partitions=partitions or None,
            from_offset=from_offset,
            to_offset=to_offset,
            since=since,
            until=until,
            partition_by="key" if by_key else "original",
            timestamps="now" if timestamps == "now" else "original",
            watch=lambda told: progress.show("replaying", told.rows, told.total),
        )
    rows = [{"partition": number, "messages": count} for number, count in result.rows.items()]
    if output == "json":
        show_json({"path": result.path, "topic": to, "sent": rows, "sent_before": result.resumed_rows})
        return
    if rows:
        show_table(["partition", "messages"], rows)
    click.echo(f"{counted(sum(result.rows.values()), 'message')} sent to {to}")
    if result.resumed_rows:
        click.echo(f"{counted(result.resumed_rows, 'message')} had been sent before, by a run that was interrupted")
    if result.resumed_ms is not None and timedelta in map(type, (since, until)):
        began = Timestamp(result.resumed_ms)
        click.echo(f"so long ago was counted from the start of the run that was interrupted, {began}")
