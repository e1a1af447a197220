"""`penstock pipeline stats` shows what topics carry: as tables, files, pictures and messages."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.options import TopicName, bootstrap_option, output_option
from penstock.cli.output import Rate, Row, Size, Timestamp, counted, show_json, show_table
from penstock.cli.pipeline.jobs import ask_first, client_settings, pipeline_errors, spark_options, spark_session
from penstock.cli.positions import Kind, Position, PositionType, parse_duration

if TYPE_CHECKING:
    from penstock.spark.statistics.buckets import Distribution
    from penstock.spark.statistics.run import Stats

_EPILOG = """\b
Everything that two topics have:
  penstock pipeline stats orders payments
The last hour, with pictures, and for a dashboard:
  penstock pipeline stats orders --last 1h --plots pictures --publish
With what was archived:
  penstock pipeline stats orders --lake /lake/orders --parquet counts
"""
# What narrow terminals do without, in this order.
_SPARE = ("removed", "unnumbered", "missing", "producers", "min", "mean", "without_key", "bytes", "p95")
_TIME = "a date of ISO 8601 or milliseconds since 1970 after an @, or a time before now (d, h, m, s, ms)."


class DurationType(click.ParamType[int, Any]):
    """A duration in milliseconds, written as 90s or 1d12h."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = parse_duration(str(value))
        if not found:
            self.fail(f"{value!r} is no time: write one as 1h, 90s or 1d12h", param, ctx)
        return found


@click.command(epilog=_EPILOG)
@click.argument("topics", type=TopicName(), metavar="TOPIC...", nargs=-1, required=True)
@click.option("--since", type=PositionType(Kind.TIME), metavar="@TIME|-1h", help=f"Only messages from then on: {_TIME}")
@click.option("--until", type=PositionType(Kind.TIME), metavar="@TIME|-1h", help=f"Only messages from before: {_TIME}")
@click.option("--last", type=DurationType(), metavar="1h", help="Only messages of the last hour, say.")
@click.option(
    "--lake",
    "lakes",
    metavar="[TOPIC=]PATH",
    multiple=True,
    help="Count what is in this archive too; with several topics, say whose it is.",
)
@click.option("--top", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="Rows of a table.")
@click.option("--parquet", metavar="FOLDER", help="Write everything to Parquet files there.")
@click.option(
    "--plots", metavar="FOLDER", help="Draw pictures there: traffic, sizes, partitions and, where it is known, latency."
)
@click.option("--publish", is_flag=True, help="Send a message for each topic to the topic penstock.stats.")
@spark_options
@output_option
@bootstrap_option
def stats(
    *,
    topics: Sequence[str],
    since: Position | None,
    until: Position | None,
    last: int | None,
    lakes: Sequence[str],
    top: int,
    parquet: str | None,
    plots: str | None,
    publish: bool,
    master: str | None,
    conf: Sequence[tuple[str, str]],
    settings: Sequence[tuple[str, str]],
    output: str,
    bootstrap: str,
) -> None:
    """Count what topics have.

    Messages and bytes by partition, hour and key, sizes and latencies, and what the producers' sequence numbers tell:
    whether anything came twice or not at all. Everything is read once.
    """
    if last is not None and since is not None:
        raise click.UsageError("--last and --since both say where to begin: give one of them")
    since_ms = None if since is None else since.value
    if last is not None:
        since_ms = time.time_ns() // 1_000_000 - last
    folders = _lakes(topics, lakes)
    client = client_settings(bootstrap, settings)
    from penstock.cli.pipeline.progress import PipelineProgress

    with pipeline_errors():
        from penstock.spark.statistics.plan import load_lake

        ask_first(client, topics)
        for folder in (folders or {}).values():
            load_lake(folder)
    with spark_session(master, conf, f"penstock stats {' '.join(topics)}") as spark:
        with PipelineProgress("messages") as progress:
            from penstock.spark.statistics.run import stats as run

            result = run(
                spark,
                topics,
                bootstrap=client,
                since=since_ms,
                until=None if until is None else until.value,
                lake=folders,
                top=top,
                watch=lambda told: progress.show("counting", told.done, told.total),
            )
        tell(result, top=top, output=output, parquet=parquet, plots=plots, publish_to=client if publish else None)


def tell(
    result: "Stats",
    *,
    top: int,
    output: str,
    parquet: str | None = None,
    plots: str | None = None,
    publish_to: Mapping[str, Any] | None = None,
) -> None:
    """Print the result, and then write and send it, so that no error of the latter costs what was counted."""
    if output == "json":
        _show_json(result)
    else:
        show_stats(result, top)
    try:
        for line in _hand_over(result, parquet, plots, publish_to):
            if output != "json":
                click.echo(line)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise click.ClickException(f"not everything is written: {error}") from error


def _hand_over(
    result: "Stats", parquet: str | None, plots: str | None, publish_to: Mapping[str, Any] | None
) -> Iterator[str]:
    """Write and send what the user asked for, and say so."""
    if parquet is not None:
        from penstock.spark.statistics.files import write_tables

        yield from (f"written: {path}" for path in write_tables(result, parquet))
    if plots is not None:
        from penstock.spark.statistics.plots import draw_plots

        yield from (f"written: {path}" for path in draw_plots(result, plots))
    if publish_to is not None:
        from penstock.spark.statistics.topic import publish_stats

        publish_stats(result, publish_to)
        yield f"{counted(len(result.topics), 'message')} sent to penstock.stats"


def show_stats(result: "Stats", top: int) -> None:
    """Print tables for people; of long ones only the `top` rows that matter most."""
    _show_topics(result)
    many = len(result.topics) > 1
    _section(
        "partitions, the hottest first",
        [
            {"topic": each.topic, "partition": each.partition, "messages": each.messages, "bytes": Size(each.bytes)}
            | {"times_mean": f"{each.heat:.2f}"}
            for each in sorted(result.partitions, key=lambda each: (-each.heat, each.topic, each.partition))
        ],
        top,
        many=many,
    )
    _section("hours (UTC), the latest first", _hours(result), top, many=many)
    _section(
        "keys, the most frequent first",
        [
            {"topic": each.topic, "key": each.key, "messages": each.messages, "bytes": Size(each.bytes)}
            | {"share": f"{100 * each.share:.1f} %"}
            for each in sorted(result.keys, key=lambda each: -each.messages)
        ],
        top,
        many=many,
    )
    _show_audit(result, top, many=many)


def _show_topics(result: "Stats") -> None:
    rows: list[Row] = [
        {"topic": each.topic, "messages": each.messages, "bytes": Size(each.bytes), "keys": each.keys}
        | {"without_key": each.without_key}
        for each in result.topics
    ]
    show_table(list(rows[0]), rows, spare=_SPARE)
    spreads = [(each.topic, each.sizes) for each in result.topics if each.sizes is not None]
    _section("sizes in bytes", [_spread(*each) for each in spreads], len(spreads), many=True)
    spreads = [(each.topic, each.latency_ms) for each in result.topics if each.latency_ms is not None]
    _section(
        "latency in ms, from the producer's time to the broker's",
        [_spread(*each) for each in spreads],
        len(spreads),
        many=True,
    )
    if unknown := [each.topic for each in result.topics if each.messages and each.latency_ms is None]:
        click.echo(
            f"\nlatency of {', '.join(unknown)}: not known, for messages carry one time only "
            "(message.timestamp.type=LogAppendTime adds the broker's)"
        )
    for each in result.topics:
        if each.ahead:
            click.echo(f"\n{counted(each.ahead, 'message')} of {each.topic} came before they were sent: compare clocks")


def _show_audit(result: "Stats", top: int, *, many: bool) -> None:
    names = ("numbered", "unnumbered", "producers", "duplicates", "gaps", "removed", "missing_offsets")
    rows: list[Row] = [
        {"topic": each.topic, "partition": each.partition}
        | {name.removesuffix("_offsets"): getattr(each, name) for name in names}
        for each in sorted(result.audits, key=lambda each: -(each.duplicates + each.gaps))
    ]
    _section("sequence numbers of producers, by partition", rows, top, many=many)
    found = [
        {"topic": each.topic, "partition": each.partition, **asdict(finding), "kind": str(finding.kind)}
        for each in result.audits
        for finding in each.findings
    ]
    wanted = [row for row in found if row["kind"] != "removed"]
    _section("duplicates and gaps", wanted, top, many=many)
    if result.audits and not any(each.duplicates or each.gaps for each in result.audits):
        numbered = sum(each.numbered for each in result.audits)
        click.echo(f"\nno duplicate and no gap among {counted(numbered, 'numbered message')}")


def _section(title: str, rows: Sequence[Row], top: int, *, many: bool) -> None:
    if not rows:
        return
    click.echo(f"\n{title}" + (f" ({top:,} of {len(rows):,})" if len(rows) > top else ""))
    show_table([name for name in rows[0] if many or name != "topic"], rows[:top], spare=_SPARE)


def _hours(result: "Stats") -> list[Row]:
    from penstock.spark.statistics.topic import by_hour

    found = [
        (hour_ms, each.topic, messages, size)
        for each in result.topics
        for hour_ms, messages, size in by_hour([hour for hour in result.hours if hour.topic == each.topic])
    ]
    return [
        {"topic": topic, "hour": _hour_text(hour_ms), "messages": messages, "bytes": Size(size)}
        | {"rate": Rate(messages / 3600)}
        for hour_ms, topic, messages, size in sorted(found, key=lambda each: each[0], reverse=True)
    ]


def _hour_text(hour_ms: int) -> str:
    """An hour as text up to the minutes, if it is a valid date: a producer may send any number."""
    text = str(Timestamp(hour_ms))
    return text[:16] if text.endswith("Z") else text


def _spread(topic: str, found: "Distribution") -> Row:
    names = ("min", "mean", "p50", "p95", "p99", "max")
    return {"topic": topic} | {name: round(getattr(found, name)) for name in names}


def _show_json(result: "Stats") -> None:
    from penstock.spark.statistics.topic import describe

    show_json([describe(result, each) for each in result.topics])


def _lakes(topics: Sequence[str], lakes: Sequence[str]) -> dict[str, str] | None:
    """The lake of each topic that has one."""
    if not lakes:
        return None
    found = {}
    for each in lakes:
        name, equals, path = each.partition("=")
        if equals and name in topics:
            found[name] = path
        elif len(set(topics)) == 1:
            found[topics[0]] = each
        else:
            raise click.UsageError(f"--lake {each} may be that of any topic: write it as TOPIC={each}")
    return found
