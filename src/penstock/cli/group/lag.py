"""`penstock group lag` shows how far a group is behind, once or repeatedly."""

import math
import sys
from typing import TYPE_CHECKING

import click

from penstock.cli.help import examples
from penstock.cli.options import ClientConfig, GroupName, client_options, output_option
from penstock.cli.output import Duration, Rate, Row, counted, obeys_escapes, show_fields, show_json, show_table
from penstock.cli.running import run

if TYPE_CHECKING:
    from penstock.client.admin.lag import GroupLag, PartitionLag
    from penstock.client.cluster.cluster import Cluster

_COLUMNS = ("topic", "partition", "committed", "end", "lag", "behind", "rate", "catch_up", "client")
# What a narrow terminal leaves out, in this order.
_SPARE = ("client", "committed", "end", "catch_up", "rate")

_NO_COMMIT = "unknown, since no commit came while we looked: try --interval 10"

_EXAMPLES = examples(
    "penstock group lag billing",
    "penstock group lag billing --interval 10   rates over ten seconds",
    "penstock group lag billing --interval 0    at once, without rates",
    "penstock group lag billing --watch         again and again, until Ctrl-C",
    "penstock group lag billing -O json | jq .total.lag",
)


@click.command(epilog=_EXAMPLES)
@click.argument("name", type=GroupName(), metavar="GROUP")
@click.option(
    "--interval",
    "-i",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Look twice, so far apart, for the rates; 0 looks once.",
)
@click.option("--watch", "-w", is_flag=True, help="Look again after each interval, until Ctrl-C.")
@output_option
@client_options
def lag(name: str, interval: float, watch: bool, output: str, client: ClientConfig) -> None:
    """Show how far a group is behind.

    LAG counts the messages that are not processed. BEHIND is the age of the oldest of them. RATE is how many are
    processed in a second, by what the group commits, and CATCH UP how long it takes at this rate, while producers go
    on as they do, until nothing is left: never, if they are faster.

    Consumers commit every five seconds unless they were told otherwise. If no commit came while we looked, for less
    than that, there is no rate: look for longer.
    """
    from penstock.client.admin.lag import LagMeter

    if watch and not interval:
        raise click.UsageError("--watch needs an --interval above 0")

    async def work(cluster: "Cluster") -> None:
        import asyncio

        meter = LagMeter(cluster, name)
        # The first of two measurements needs no ages, which cost a fetch for each partition.
        found = await meter.measure(ages=watch or not interval)
        if watch:
            show(found, output, watch=True)
        while interval:
            await asyncio.sleep(interval)
            found = await meter.measure()
            if not watch:
                break
            show(found, output, watch=True)
        if not watch:
            show(found, output)

    try:
        run(client, work)
    except KeyboardInterrupt:
        if not watch:
            raise


def show(found: "GroupLag", output: str, *, watch: bool = False) -> None:
    """Print one measurement. Those of --watch replace each other on a terminal, and are lines in JSON."""
    if output == "json":
        show_json(lag_fields(found), indent=None if watch else 2)
        return
    if watch:
        if obeys_escapes(sys.stdout):
            click.clear()
        else:
            click.echo()
    show_fields({name: value for name, value in total_fields(found).items() if value is not None})
    click.echo()
    if found.partitions:
        show_table(_COLUMNS, map(partition_row, found.partitions), spare=_SPARE)
    else:
        click.echo("nothing is committed, and no member has a partition")


def total_fields(found: "GroupLag") -> dict[str, object]:
    """The group as a whole, for people."""
    rates, messages = found.rates, found.messages
    consumed = rates.consumed if rates is not None else None
    return {
        "group": found.group.group,
        "state": f"{found.group.state}, {counted(len(found.group.members), 'member')}",
        "lag": None if messages is None else ", ".join([counted(messages, "message"), *_unknown(found)]),
        "behind": _duration(found.seconds),
        "rate": _NO_COMMIT if rates is not None and consumed is None else _rate(consumed),
        "produced": _rate(rates.produced if rates is not None else None),
        "catch_up": _duration(found.catch_up_seconds),
    }


def _unknown(found: "GroupLag") -> list[str]:
    """Says what the total leaves out: partitions without a committed offset."""
    count = sum(each.messages is None for each in found.partitions)
    return [f"not counting {counted(count, 'partition')} of which nothing is known"] if count else []


def partition_row(each: "PartitionLag") -> Row:
    """A partition as a row of a table."""
    consumed = each.rates.consumed if each.rates is not None else None
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "committed": each.committed,
        "end": each.end,
        "lag": each.messages,
        "behind": _duration(each.seconds),
        "rate": _rate(consumed),
        "catch_up": _duration(each.catch_up_seconds),
        "client": each.member.client_id if each.member is not None else None,
    }


def lag_fields(found: "GroupLag") -> Row:
    """The whole measurement as JSON; unknown values are null."""
    return {
        "group": found.group.group,
        "state": found.group.state,
        "members": len(found.group.members),
        "total": _measured(found),
        "partitions": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "committed": each.committed,
                "end": each.end,
                **_measured(each),
                "member": each.member.member_id if each.member is not None else None,
                "client": each.member.client_id if each.member is not None else None,
            }
            for each in found.partitions
        ],
    }


def _measured(each: "GroupLag | PartitionLag") -> Row:
    rates, catch_up = each.rates, each.catch_up_seconds
    return {
        "lag": each.messages,
        "lag_seconds": _rounded(each.seconds),
        "consumed_per_second": _rounded(rates.consumed if rates is not None else None),
        "produced_per_second": _rounded(rates.produced if rates is not None else None),
        "catch_up_seconds": None if catch_up is None or math.isinf(catch_up) else _rounded(catch_up),
        # JSON has no infinity.
        "never_catches_up": None if catch_up is None else math.isinf(catch_up),
    }


def _duration(seconds: float | None) -> Duration | None:
    return None if seconds is None else Duration(seconds)


def _rate(value: float | None) -> Rate | None:
    return None if value is None else Rate(value)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
