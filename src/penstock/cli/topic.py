"""`penstock topic`: topics are made, shown, changed and deleted."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from penstock.cli.options import (
    NameValue,
    TopicName,
    bootstrap_option,
    confirm,
    output_option,
    yes_option,
)
from penstock.cli.output import Row, Size, counted, id_text, show_fields, show_json, show_table
from penstock.cli.positions import Kind, Position, PositionType
from penstock.cli.running import failure, run

if TYPE_CHECKING:
    from penstock.cli.topic_facts import TopicFacts
    from penstock.client.cluster import Cluster
    from penstock.client.configs import Config
    from penstock.client.metadata import Partition, Topic, TopicPartition

name_argument = click.argument("name", type=TopicName(), metavar="TOPIC")


@click.group()
def topic() -> None:
    """Make, show, change and delete topics."""


@topic.command()
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
@bootstrap_option
def create(
    *,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: Sequence[tuple[str, str]],
    output: str,
    bootstrap: str,
) -> None:
    """Make a topic."""
    from penstock.client.admin import CreatedTopic, NewTopic, create_topics
    from penstock.client.errors import unwrap

    wanted = NewTopic(
        name=name, partitions=partitions or -1, replication_factor=replication_factor or -1, configs=dict(configs)
    )

    async def work(cluster: "Cluster") -> CreatedTopic:
        return unwrap(await create_topics(cluster, [wanted]))[name]

    made = run(bootstrap, work)
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
        click.echo(f"made topic {name} with {counted(made.partitions, 'partition')}")


@topic.command("list")
@click.option("--internal", is_flag=True, help="Also those that brokers have for themselves.")
@output_option
@bootstrap_option
def list_(internal: bool, output: str, bootstrap: str) -> None:
    """Show all topics.

    Messages are counted by offsets: compaction and transactions leave some that have no message.
    """
    from penstock.cli.topic_facts import keys_of, look_at

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

    rows = run(bootstrap, work)
    if output == "json":
        show_json(rows)
    elif rows:
        show_table(["topic", "partitions", "replicas", "messages", "size"], rows)
    else:
        click.echo("there are no topics; make one with: penstock topic create NAME", err=True)


@topic.command()
@name_argument
@click.option("--all-configs", is_flag=True, help="Also those that have their default.")
@output_option
@bootstrap_option
def describe(name: str, all_configs: bool, output: str, bootstrap: str) -> None:
    """Show a topic's partitions and configs.

    Of a compacted topic also how much of each partition is clean, with one value for each key, and how much is dirty
    and waits for compaction; what is neither is too new for it.
    """
    from penstock.cli.topic_facts import look_at
    from penstock.client.configs import ConfigSource, Resource, ResourceType, describe_configs
    from penstock.client.errors import unwrap

    async def work(cluster: "Cluster") -> "tuple[Topic, TopicFacts, list[Config]]":
        found = await cluster.topic(name, fresh=True)
        resource = Resource(ResourceType.TOPIC, name)
        configs = unwrap(await describe_configs(cluster, [resource]))[resource]
        return found, await look_at(cluster, [found]), list(configs.values())

    found, facts, configs = run(bootstrap, work)
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
    columns = ["partition", "leader", "epoch", "replicas", "isr", "start", "end", "messages", "size"]
    show_table(columns + (["clean", "dirty"] if facts.compaction else []), partitions)
    click.echo()
    if shown:
        show_table(["config", "value", "from"], shown)
    else:
        click.echo("all configs have their default; --all-configs shows them")


@topic.command()
@name_argument
@click.option("--set", "-s", "to_set", type=NameValue(), multiple=True, help="Give a config this value.")
@click.option("--unset", "-u", "to_unset", multiple=True, metavar="NAME", help="Give a config its default again.")
@bootstrap_option
def alter(name: str, to_set: Sequence[tuple[str, str]], to_unset: Sequence[str], bootstrap: str) -> None:
    """Change a topic's configs.

    Those not named stay as they are.
    """
    from penstock.client.configs import ConfigChange, Operation, Resource, ResourceType, alter_configs
    from penstock.client.errors import unwrap

    if not to_set and not to_unset:
        raise click.UsageError("nothing to change: give --set name=value or --unset name")
    changes = [ConfigChange(config, value) for config, value in to_set]
    changes += [ConfigChange(config, None, Operation.DELETE) for config in to_unset]
    if len({change.name for change in changes}) < len(changes):
        raise click.UsageError("a config can be changed in one way only: it is named twice")

    async def work(cluster: "Cluster") -> None:
        # The topic first: a broker that does not know it cannot say which one was meant.
        await cluster.topic(name, fresh=True)
        unwrap(await alter_configs(cluster, {Resource(ResourceType.TOPIC, name): changes}))

    run(bootstrap, work)
    click.echo(f"changed {counted(len(changes), 'config')} of topic {name}")


@topic.command("add-partitions")
@name_argument
@click.option("--count", type=click.IntRange(min=1), required=True, metavar="TOTAL", help="How many there are then.")
@bootstrap_option
def add_partitions(name: str, count: int, bootstrap: str) -> None:
    """Give a topic more partitions.

    Keys may go to other partitions from then on, so the order of messages with one key is not kept over it.
    """
    from penstock.client import admin
    from penstock.client.errors import unwrap

    async def work(cluster: "Cluster") -> None:
        unwrap(await admin.add_partitions(cluster, {name: count}))

    run(bootstrap, work)
    click.echo(f"topic {name} has {counted(count, 'partition')} now")


@topic.command()
@name_argument
@click.option(
    "--partition", "-p", "partitions", type=click.IntRange(min=0), metavar="N", multiple=True, help="Only this one."
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
@bootstrap_option
def trim(*, name: str, partitions: Sequence[int], before: Position, output: str, yes: bool, bootstrap: str) -> None:
    """Delete the oldest messages of a topic.

    An offset is one of a certain partition, so name it, unless the topic has only one.
    """
    from penstock.client.admin import delete_records
    from penstock.client.errors import unwrap

    async def plan(cluster: "Cluster") -> "dict[TopicPartition, int]":
        return await offsets_before(cluster, await cluster.topic(name, fresh=True), partitions, before)

    offsets = run(bootstrap, plan)
    confirm(f"Delete the messages of {name} {describe_plan(offsets, before)}?", yes=yes)

    async def work(cluster: "Cluster") -> "dict[TopicPartition, int]":
        return unwrap(await delete_records(cluster, offsets))

    starts = run(bootstrap, work)
    rows: list[Row] = [{"topic": key.topic, "partition": key.partition, "start": starts[key]} for key in sorted(starts)]
    if output == "json":
        show_json(rows)
    else:
        show_table(["topic", "partition", "start"], rows)


@topic.command()
@click.argument("names", type=TopicName(), nargs=-1, required=True, metavar="TOPIC...")
@yes_option
@bootstrap_option
def delete(names: Sequence[str], yes: bool, bootstrap: str) -> None:
    """Delete topics with all their messages."""
    from penstock.client.admin import delete_topics
    from penstock.client.errors import ClientError

    names = list(dict.fromkeys(names))
    confirm(f"Delete {', '.join(names)} with all messages?", yes=yes)

    async def work(cluster: "Cluster") -> dict[str, ClientError | None]:
        return await delete_topics(cluster, names)

    outcomes = run(bootstrap, work)
    for name, outcome in outcomes.items():
        if outcome is None:
            click.echo(f"deleted topic {name}")
    errors = [failure(outcome) for outcome in outcomes.values() if outcome is not None]
    for error in errors[:-1]:
        error.show()
    if errors:
        raise errors[-1]


async def offsets_before(
    cluster: "Cluster", found: "Topic", partitions: Sequence[int], before: Position
) -> "dict[TopicPartition, int]":
    """Up to where each partition is to be trimmed."""
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
        "start": facts.starts.get(key),
        "end": facts.ends.get(key),
        "messages": facts.messages(key),
        "size": None if size is None else Size(size),
    }
    if compaction is None:
        return row
    return {**row, "clean": Size(compaction.clean_bytes), "dirty": Size(compaction.dirty_bytes)}


def total(parts: Iterable[int | None]) -> int | None:
    """The sum, if all of it is known."""
    known = list(parts)
    return None if None in known else sum(part for part in known if part is not None)


def total_size(parts: Iterable[int | None]) -> Size | None:
    size = total(parts)
    return None if size is None else Size(size)
