"""`penstock topic` makes, shows, changes, trims and deletes topics."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from penstock.cli.help import examples
from penstock.cli.lazy import NearGroup
from penstock.cli.options import (
    ClientConfig,
    NameValue,
    TopicName,
    client_options,
    confirm,
    output_option,
    yes_option,
)
from penstock.cli.output import Row, Size, counted, id_text, show_fields, show_json, show_table
from penstock.cli.positions import Kind, Position, PositionType
from penstock.cli.running import failure, run
from penstock.cli.topic.elect import elect

if TYPE_CHECKING:
    from penstock.cli.topic.facts import TopicFacts
    from penstock.client.admin.configs import Config
    from penstock.client.cluster.cluster import Cluster
    from penstock.client.metadata import Partition, Topic, TopicPartition

name_argument = click.argument("name", type=TopicName(), metavar="TOPIC")


@click.group(cls=NearGroup)
def topic() -> None:
    """Make, show, change and delete topics."""


@topic.command(
    epilog=examples(
        "penstock topic create orders",
        "penstock topic create orders --partitions 6 --config retention.ms=86400000",
        "penstock topic create accounts --config cleanup.policy=compact",
    )
)
@click.argument("name", metavar="TOPIC")
@click.option("--partitions", "-p", type=click.IntRange(min=1), metavar="N", help="How many.  [default: the broker's]")
@click.option(
    "--replication-factor",
    "-r",
    type=click.IntRange(min=1),
    metavar="N",
    help="Replicas of each.  [default: the broker's]",
)
@click.option(
    "--config", "-c", "configs", type=NameValue(), multiple=True, help="A config of the topic, such as retention.ms=-1."
)
@output_option
@client_options
def create(
    *,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: Sequence[tuple[str, str]],
    output: str,
    client: ClientConfig,
) -> None:
    """Make a topic."""
    from penstock.client.admin.topics import CreatedTopic, NewTopic, create_topics
    from penstock.client.errors import unwrap

    wanted = NewTopic(
        name=name, partitions=partitions or -1, replication_factor=replication_factor or -1, configs=dict(configs)
    )

    async def work(cluster: "Cluster") -> CreatedTopic:
        return unwrap(await create_topics(cluster, [wanted]))[name]

    made = run(client, work)
    if output == "json":
        show_json(
            {
                "topic": made.name,
                "topic_id": id_text(made.topic_id),
                "partitions": made.partitions,
                "replication_factor": made.replication_factor,
            }
        )
    else:
        each = f", {made.replication_factor} replicas of each" if made.replication_factor > 1 else ""
        click.echo(f"made topic {name} with {counted(made.partitions, 'partition')}{each}")


@topic.command("list", epilog=examples("penstock topic list", "penstock topic list -O json | jq -r .[].topic"))
@click.option("--internal", is_flag=True, help="Also those that brokers have for themselves.")
@output_option
@client_options
def list_(internal: bool, output: str, client: ClientConfig) -> None:
    """Show all topics.

    Messages are counted by offsets: compaction and transactions leave some that have no message.
    """
    from penstock.cli.topic.facts import keys_of, look_at

    async def work(cluster: "Cluster") -> list[Row]:
        topics = [each for each in await cluster.all_topics() if internal or not each.is_internal]
        facts = await look_at(cluster, topics)
        return [
            {
                "topic": each.name,
                "partitions": len(each.partitions),
                "replicas": max((len(partition.replicas) for partition in each.partitions), default=0),
                "messages": total(facts.messages(key) for key in keys_of(each)),
                "size": total_size(facts.sizes.get(key) for key in keys_of(each)),
            }
            for each in topics
        ]

    rows = run(client, work)
    if output == "json":
        show_json(rows)
    elif rows:
        columns = ["topic", "partitions", "replicas", "messages", "size"]
        show_table(columns, rows, spare=["replicas", "partitions"])
    else:
        click.echo("there are no topics; make one with: penstock topic create NAME", err=True)


@topic.command(epilog=examples("penstock topic describe orders", "penstock topic describe orders --all-configs"))
@name_argument
@click.option("--all-configs", is_flag=True, help="Also those that have their default.")
@output_option
@client_options
def describe(name: str, all_configs: bool, output: str, client: ClientConfig) -> None:
    """Show a topic's partitions and configs.

    ISR are the replicas that are in sync, out of sync those that are not; of the latter ELR may lead nevertheless, for
    they have everything that was acknowledged.

    Of a compacted topic also how much of each partition is clean, with one value for each key, and how much is dirty
    and waits for compaction; what is neither is too new for it.
    """
    from penstock.cli.topic.facts import look_at
    from penstock.client.admin.configs import ConfigSource, Resource, ResourceType, describe_configs
    from penstock.client.errors import unwrap

    async def work(cluster: "Cluster") -> "tuple[Topic, TopicFacts, list[Config]]":
        found = await cluster.topic(name, fresh=True)
        resource = Resource(ResourceType.TOPIC, name)
        configs = unwrap(await describe_configs(cluster, [resource]))[resource]
        return found, await look_at(cluster, [found]), list(configs.values())

    found, facts, configs = run(client, work)
    partitions = [partition_row(found, each, facts) for each in found.partitions]
    shown: list[Row] = [
        {"config": each.name, "value": each.value, "from": each.source.name.lower().replace("_", " ")}
        for each in sorted(configs, key=lambda each: each.name)
        if all_configs or each.source is not ConfigSource.DEFAULT
    ]
    if output == "json":
        show_json(
            {
                "topic": found.name,
                "topic_id": id_text(found.topic_id),
                "is_internal": found.is_internal,
                "partitions": partitions,
                "configs": shown,
            }
        )
        return
    show_fields({"topic": found.name, "topic_id": id_text(found.topic_id), "partitions": len(partitions)})
    click.echo()
    some = [column for column in ("elr", "out_of_sync") if any(each[column] for each in partitions)]
    columns = ["partition", "leader", "epoch", "replicas", "isr", *some, "start", "end", "messages", "size"]
    show_table(
        columns + (["clean", "dirty"] if facts.compaction else []),
        partitions,
        spare=["epoch", "replicas", "isr", "start", "clean", "dirty", "elr", "leader", "out_of_sync"],
    )
    click.echo()
    if shown:
        show_table(["config", "value", "from"], shown, spare=["from"])
    else:
        click.echo("all configs have their default; --all-configs shows them")


@topic.command(
    epilog=examples(
        "penstock topic alter orders --set retention.ms=86400000 --set max.message.bytes=2000000",
        "penstock topic alter orders --unset retention.ms",
        "penstock topic alter orders --replication-factor 3",
    )
)
@name_argument
@click.option("--set", "-s", "to_set", type=NameValue(), multiple=True, help="Give a config this value.")
@click.option("--unset", "-u", "to_unset", multiple=True, metavar="NAME", help="Give a config its default again.")
@click.option(
    "--replication-factor",
    "-r",
    type=click.IntRange(min=1),
    metavar="N",
    help="Let each partition have this many replicas.",
)
@click.option("--no-wait", is_flag=True, help="Do not wait until new replicas are in sync.")
@client_options
def alter(
    *,
    name: str,
    to_set: Sequence[tuple[str, str]],
    to_unset: Sequence[str],
    replication_factor: int | None,
    no_wait: bool,
    client: ClientConfig,
) -> None:
    """Change a topic's configs, or how many replicas it has.

    Configs not named stay as they are.

    Replicas are added on brokers that have few, in other racks if there are any. They copy each partition from its
    leader while it is read and written as ever. The command waits until they are in sync; to interrupt it ends the
    waiting, not the copying. Replicas cannot be removed yet.
    """
    from penstock.client.admin.configs import ConfigChange, Operation, Resource, ResourceType, alter_configs
    from penstock.client.errors import unwrap

    if not to_set and not to_unset and replication_factor is None:
        raise click.UsageError("nothing to change: give --set name=value, --unset name or --replication-factor N")
    changes = [ConfigChange(config, value) for config, value in to_set]
    changes += [ConfigChange(config, None, Operation.DELETE) for config in to_unset]
    if len({change.name for change in changes}) < len(changes):
        raise click.UsageError("a config can be changed in one way only: it is named twice")

    async def work(cluster: "Cluster") -> None:
        # The topic is looked up first: a broker that does not know it cannot say which one was meant.
        await cluster.topic(name, fresh=True)
        if changes:
            unwrap(await alter_configs(cluster, {Resource(ResourceType.TOPIC, name): changes}))
            click.echo(f"changed {counted(len(changes), 'config')} of topic {name}")
        if replication_factor is not None:
            await alter_replicas(cluster, name, replication_factor, waits=not no_wait)

    run(client, work)


@topic.command("add-partitions", epilog=examples("penstock topic add-partitions orders --count 6"))
@name_argument
@click.option("--count", type=click.IntRange(min=1), required=True, metavar="TOTAL", help="How many there are then.")
@client_options
def add_partitions(name: str, count: int, client: ClientConfig) -> None:
    """Give a topic more partitions.

    Keys may go to other partitions from then on, so the order of messages with one key is not kept over it.
    """
    from penstock.client.admin.topics import add_partitions
    from penstock.client.errors import unwrap

    async def work(cluster: "Cluster") -> None:
        unwrap(await add_partitions(cluster, {name: count}))

    run(client, work)
    click.echo(f"topic {name} has {counted(count, 'partition')} now")


@topic.command(
    epilog=examples(
        "penstock topic trim orders --before -7d",
        "penstock topic trim orders --before @2026-01-31T12:00:00Z",
        "penstock topic trim orders --partition 0 --before 1000 --yes",
    )
)
@name_argument
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=click.IntRange(min=0),
    metavar="N",
    multiple=True,
    help="Only this one; may be given several times.",
)
@click.option(
    "--before",
    type=PositionType(Kind.OFFSET, Kind.TIME, Kind.END),
    required=True,
    metavar="OFFSET|@TIME|-7d|end",
    help="What lies before it is deleted; -7d is what is older than seven days (d, h, m, s, ms).",
)
@output_option
@yes_option
@client_options
def trim(
    *, name: str, partitions: Sequence[int], before: Position, output: str, yes: bool, client: ClientConfig
) -> None:
    """Delete the oldest messages of a topic.

    An offset is one of a certain partition, so name it, unless the topic has only one.
    """
    from penstock.client.admin.offsets import delete_records
    from penstock.client.errors import unwrap

    async def plan(cluster: "Cluster") -> "dict[TopicPartition, int]":
        return await offsets_before(cluster, await cluster.topic(name, fresh=True), partitions, before)

    offsets = run(client, plan)
    confirm(f"Delete the messages of {name} {describe_plan(offsets, before)}?", yes=yes)

    async def work(cluster: "Cluster") -> "dict[TopicPartition, int]":
        return unwrap(await delete_records(cluster, offsets))

    starts = run(client, work)
    rows: list[Row] = [{"topic": key.topic, "partition": key.partition, "start": starts[key]} for key in sorted(starts)]
    if output == "json":
        show_json(rows)
    else:
        show_table(["topic", "partition", "start"], rows, spare=["topic"])


@topic.command(epilog=examples("penstock topic delete orders", "penstock topic delete orders payments --yes"))
@click.argument("names", type=TopicName(), nargs=-1, required=True, metavar="TOPIC...")
@yes_option
@client_options
def delete(names: Sequence[str], yes: bool, client: ClientConfig) -> None:
    """Delete topics with all their messages."""
    from penstock.client.admin.topics import delete_topics
    from penstock.client.errors import ClientError

    names = list(dict.fromkeys(names))
    confirm(f"Delete {', '.join(names)} with all messages?", yes=yes)

    async def work(cluster: "Cluster") -> dict[str, ClientError | None]:
        return await delete_topics(cluster, names)

    outcomes = run(client, work)
    for name, outcome in outcomes.items():
        if outcome is None:
            click.echo(f"deleted topic {name}")
    errors = [failure(outcome) for outcome in outcomes.values() if outcome is not None]
    for error in errors[:-1]:
        error.show()
    if errors:
        raise errors[-1]


topic.add_command(elect)


async def alter_replicas(cluster: "Cluster", name: str, factor: int, *, waits: bool) -> None:
    from penstock.cli.topic.replicas import change_factor, until_in_sync

    targets = await change_factor(cluster, name, factor)
    if not targets:
        click.echo(f"all partitions of topic {name} have {counted(factor, 'replica')} already")
        return
    click.echo(f"{counted(len(targets), 'partition')} of topic {name} will have {counted(factor, 'replica')}")
    if waits:
        await until_in_sync(cluster, name, targets)
        click.echo(f"all {counted(factor, 'replica')} of {counted(len(targets), 'partition')} are in sync")
    else:
        click.echo(f"see who is in sync with: penstock topic describe {name}")


async def offsets_before(
    cluster: "Cluster", found: "Topic", partitions: Sequence[int], before: Position
) -> "dict[TopicPartition, int]":
    """The offset up to which each partition is to be trimmed."""
    from penstock.cli.partition_ranges import locate, partition_ranges
    from penstock.client.metadata import TopicPartition

    numbers = sorted(set(partitions)) or range(len(found.partitions))
    if before.kind is Kind.OFFSET and len(numbers) > 1:
        raise click.UsageError(f"{found.name} has {len(numbers)} partitions: say of which, with --partition")
    ranges = await partition_ranges(
        cluster, [TopicPartition(found.name, found.partition(number).index) for number in numbers]
    )
    for key, each in ranges.items():
        if before.kind is Kind.OFFSET and not each.start <= before.value <= each.stop:
            raise click.ClickException(
                f"offset {before.value} is not in {key}, which goes from {each.start} to {each.stop}"
            )
    return await locate(cluster, before, ranges)


def describe_plan(offsets: "dict[TopicPartition, int]", before: Position) -> str:
    if len(offsets) == 1:
        ((key, offset),) = offsets.items()
        return f"in partition {key.partition} before offset {offset}"
    what = "that are there now" if before.kind is Kind.END else "before that time"
    return f"in {len(offsets)} partitions {what}"


def partition_row(found: "Topic", partition: "Partition", facts: "TopicFacts") -> Row:
    from penstock.client.metadata import TopicPartition

    key = TopicPartition(found.name, partition.index)
    size, compaction = facts.sizes.get(key), facts.compaction.get(key)
    row = {
        "partition": partition.index,
        "leader": partition.leader if partition.leader >= 0 else None,
        "epoch": partition.leader_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "elr": facts.eligible.get(key, ()),
        "out_of_sync": [replica for replica in partition.replicas if replica not in partition.isr],
        "start": facts.starts.get(key),
        "end": facts.ends.get(key),
        "messages": facts.messages(key),
        "size": None if size is None else Size(size),
    }
    if compaction is None:
        return row
    return {**row, "clean": Size(compaction.clean_bytes), "dirty": Size(compaction.dirty_bytes)}


def total(parts: Iterable[int | None]) -> int | None:
    """The sum; None unless all parts are known."""
    known = list(parts)
    return None if None in known else sum(part for part in known if part is not None)


def total_size(parts: Iterable[int | None]) -> Size | None:
    size = total(parts)
    return None if size is None else Size(size)
