"""`penstock group seek` moves the committed offsets of a group."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from penstock.cli.help import examples
from penstock.cli.options import ClientConfig, GroupName, TopicName, client_options, confirm, output_option, yes_option
from penstock.cli.output import Row, counted, show_json, show_table, warn
from penstock.cli.positions import Kind, Position, PositionType
from penstock.cli.running import run
from penstock.protocol.printable import printable

if TYPE_CHECKING:
    from penstock.client.admin.group_offsets import CommittedOffset
    from penstock.client.admin.groups import GroupDescription
    from penstock.client.cluster.cluster import Cluster
    from penstock.client.metadata import Topic, TopicPartition

_EXAMPLES = examples(
    "penstock group seek billing --to earliest --dry-run",
    "penstock group seek billing --to earliest",
    "penstock group seek billing --to -1h",
    "penstock group seek billing --to @2026-01-31T12:00:00Z",
    "penstock group seek billing --topic orders --partition 0 --to 42",
    "penstock group seek new-group --topic orders --to latest",
)


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
@client_options
def seek(
    *,
    name: str,
    topics: Sequence[str],
    partitions: Sequence[int],
    to: Position,
    dry_run: bool,
    output: str,
    yes: bool,
    client: ClientConfig,
) -> None:
    """Let a group go on elsewhere.

    Its members have to be stopped first, since they would go on from where they are and commit that. Of a time it is
    the first message that is not older; if there is none, the end. An offset is one of a certain partition, so name
    it, unless there is only one. A group that does not exist yet is made by it, if --topic says what it is to read.
    """
    from penstock.client.admin.group_offsets import CommittedOffset, commit_offsets
    from penstock.client.errors import unwrap

    async def plan(cluster: "Cluster") -> "tuple[GroupDescription | None, list[Move]]":
        return await plan_moves(cluster, name, topics=topics, partitions=partitions, to=to)

    found, moves = run(client, plan)
    if found is not None and found.members:
        refusal = (
            f"group {name!r} has {counted(len(found.members), 'member')} ({_clients(found)}), who would go on from "
            "where they are: stop them, and ask again when the group is empty; one that was killed counts until its "
            "session ends"
        )
        if not dry_run:
            raise click.ClickException(refusal)
        warn(refusal)
    if not dry_run:
        what = f"Move {name}" if found is not None else f"There is no group {name} yet. Make it begin as said"
        confirm(f"{what} in {describe_moves(moves)}?", yes=yes)

        async def work(cluster: "Cluster") -> None:
            offsets = {move.partition: CommittedOffset(move.new) for move in moves}
            unwrap(await commit_offsets(cluster, name, offsets))

        run(client, work)
    rows: list[Row] = [
        {"topic": move.partition.topic, "partition": move.partition.partition, "old": move.old, "new": move.new}
        for move in moves
    ]
    if output == "json":
        show_json(rows)
    else:
        show_table(["topic", "partition", "old", "new"], rows, spare=["old"])


async def plan_moves(
    cluster: "Cluster", name: str, *, topics: Sequence[str], partitions: Sequence[int], to: Position
) -> "tuple[GroupDescription | None, list[Move]]":
    """The changes of a seek, partition by partition, and the group as it is now; None if there is none."""
    from penstock.cli.partition_ranges import locate, partition_ranges
    from penstock.client.admin.group_offsets import group_offsets
    from penstock.client.admin.groups import describe_groups
    from penstock.client.errors import UnknownGroupError, unwrap
    from penstock.client.metadata import TopicPartition

    found: GroupDescription | None = None
    committed: dict[TopicPartition, CommittedOffset] = {}
    try:
        found = unwrap(await describe_groups(cluster, [name]))[name]
        committed = unwrap(await group_offsets(cluster, [name]))[name]
    except UnknownGroupError as error:
        if not topics:
            error.add_note("to make it, say with --topic what it is to read")
            raise
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
    """The topics that were named, otherwise those that the group has committed and that still exist."""
    from penstock.client.errors import UnknownTopicError, unwrap

    names = list(dict.fromkeys(topics)) or sorted({key.topic for key in committed})
    if not names:
        raise click.ClickException(f"group {name!r} has committed nothing: say which --topic it is to read")
    outcomes = await cluster.topics(names, fresh=True)
    if not topics:
        gone = [topic for topic, outcome in outcomes.items() if isinstance(outcome, UnknownTopicError)]
        for topic in gone:
            warn(f"there is no topic {topic} any more, so it is left out")
            del outcomes[topic]
    return list(unwrap(outcomes).values())


def describe_moves(moves: Sequence[Move]) -> str:
    names = sorted({move.partition.topic for move in moves})
    return f"{counted(len(moves), 'partition')} of {printable(', '.join(names))}"


def _clients(found: "GroupDescription") -> str:
    """Names a few of the clients that have to be stopped."""
    shown = [printable(f"{member.client_id} on {member.host}") for member in found.members[:3]]
    return ", ".join(shown + ["..."] * (len(found.members) > 3))
