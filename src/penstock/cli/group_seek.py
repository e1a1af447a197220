"""`penstock group seek`: a group goes on elsewhere."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from penstock.cli.options import GroupName, TopicName, bootstrap_option, confirm, output_option, yes_option
from penstock.cli.output import Row, counted, show_json, show_table
from penstock.cli.positions import Kind, Position, PositionType
from penstock.cli.running import run

if TYPE_CHECKING:
    from penstock.client.cluster import Cluster
    from penstock.client.groups import CommittedOffset, GroupDescription
    from penstock.client.metadata import Topic, TopicPartition

_EXAMPLES = """\b
Examples:
  penstock group seek billing --to earliest --dry-run
  penstock group seek billing --to earliest
  penstock group seek billing --to -1h                      what came in the last hour
  penstock group seek billing --to @2026-01-31T12:00:00Z
  penstock group seek billing --topic orders --partition 0 --to 42"""


class Move(NamedTuple):
    partition: "TopicPartition"
    old: int | None
    new: int


@click.command(epilog=_EXAMPLES)
@click.argument("name", type=GroupName(), metavar="GROUP")
@click.option(
    "--topic",
    "-t",
    "topics",
    type=TopicName(),
    multiple=True,
    metavar="TOPIC",
    help="Only this one; may be given several times.  [default: all that it has committed]",
)
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Only this one; may be given several times.",
)
@click.option(
    "--to",
    type=PositionType(words=("earliest", "latest")),
    required=True,
    metavar="earliest|latest|N|-N|@TIME|-1h",
    help="Where to go on: an offset, so many before the end, at a time (milliseconds since 1970 or a date of ISO "
    "8601), or so long ago (in d, h, m, s, ms).",
)
@click.option("--dry-run", "-n", is_flag=True, help="Only show what would change.")
@output_option
@yes_option
@bootstrap_option
def seek(
    *,
    name: str,
    topics: Sequence[str],
    partitions: Sequence[int],
    to: Position,
    dry_run: bool,
    output: str,
    yes: bool,
    bootstrap: str,
) -> None:
    """Let a group go on elsewhere.

    Its members have to be stopped first, since they would go on from where they are and commit that. Of a time it is
    the first message that is not older; if there is none, the end. An offset is one of a certain partition, so name
    it, unless there is only one.
    """
    from penstock.client.errors import unwrap
    from penstock.client.groups import CommittedOffset, commit_offsets

    async def plan(cluster: "Cluster") -> "tuple[GroupDescription, list[Move]]":
        return await plan_moves(cluster, name, topics=topics, partitions=partitions, to=to)

    found, moves = run(bootstrap, plan)
    if found.members:
        refusal = (
            f"group {name!r} has {counted(len(found.members), 'member')} ({_clients(found)}), who would go on from "
            "where they are: stop them, and ask again when the group is empty; one that was killed counts until its "
            "session ends"
        )
        if not dry_run:
            raise click.ClickException(refusal)
        click.echo(f"Warning: {refusal}", err=True)
    if not dry_run:
        confirm(f"Move {name} in {describe_moves(moves)}?", yes=yes)

        async def work(cluster: "Cluster") -> None:
            offsets = {move.partition: CommittedOffset(move.new) for move in moves}
            unwrap(await commit_offsets(cluster, name, offsets))

        run(bootstrap, work)
    rows: list[Row] = [
        {"topic": move.partition.topic, "partition": move.partition.partition, "old": move.old, "new": move.new}
        for move in moves
    ]
    if output == "json":
        show_json(rows)
    else:
        show_table(["topic", "partition", "old", "new"], rows)


async def plan_moves(
    cluster: "Cluster", name: str, *, topics: Sequence[str], partitions: Sequence[int], to: Position
) -> "tuple[GroupDescription, list[Move]]":
    """What a seek changes, partition by partition, and the group as it is now."""
    from penstock.cli.partition_ranges import locate, partition_ranges
    from penstock.client.errors import unwrap
    from penstock.client.groups import describe_groups, group_offsets
    from penstock.client.metadata import TopicPartition

    found = unwrap(await describe_groups(cluster, [name]))[name]
    committed = unwrap(await group_offsets(cluster, [name]))[name]
    known = await _topics(cluster, name, topics, committed)
    if partitions and len(known) > 1:
        raise click.UsageError(f"{name} reads {len(known)} topics: say of which, with --topic")
    keys = [
        TopicPartition(topic.name, topic.partition(number).index)
        for topic in known
        for number in (sorted(set(partitions)) or range(len(topic.partitions)))
    ]
    if to.kind is Kind.OFFSET and len(keys) > 1:
        raise click.UsageError(f"an offset is one of a certain partition, and here are {len(keys)}: say --partition")
    ranges = await partition_ranges(cluster, keys)
    for key, there in ranges.items():
        if to.kind is Kind.OFFSET and not there.start <= to.value <= there.stop:
            raise click.ClickException(
                f"offset {to.value} is not in {key}, which goes from {there.start} to {there.stop}"
            )
    new = await locate(cluster, to, ranges)
    return found, [Move(key, committed[key].offset if key in committed else None, new[key]) for key in keys]


async def _topics(
    cluster: "Cluster", name: str, topics: Sequence[str], committed: "dict[TopicPartition, CommittedOffset]"
) -> "list[Topic]":
    """Those that were named, else those that the group has committed and that still exist."""
    from penstock.client.errors import UnknownTopicError, unwrap

    names = list(dict.fromkeys(topics)) or sorted({key.topic for key in committed})
    if not names:
        raise click.ClickException(f"group {name!r} has committed nothing: say which --topic it is to read")
    outcomes = await cluster.topics(names, fresh=True)
    if not topics:
        gone = [topic for topic, outcome in outcomes.items() if isinstance(outcome, UnknownTopicError)]
        for topic in gone:
            click.echo(f"Warning: there is no topic {topic} any more, so it is left out", err=True)
            del outcomes[topic]
    return list(unwrap(outcomes).values())


def describe_moves(moves: Sequence[Move]) -> str:
    names = sorted({move.partition.topic for move in moves})
    return f"{counted(len(moves), 'partition')} of {', '.join(names)}"


def _clients(found: "GroupDescription") -> str:
    """A few of those who have to be stopped."""
    shown = [f"{member.client_id} on {member.host}" for member in found.members[:3]]
    return ", ".join(shown + ["..."] * (len(found.members) > 3))
