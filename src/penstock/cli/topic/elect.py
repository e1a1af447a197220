"""`penstock topic elect` lets preferred replicas lead; or, where there is no leader, one that may lack records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from penstock.cli.help import examples
from penstock.cli.options import ClientConfig, TopicName, client_options, confirm, output_option, yes_option
from penstock.cli.output import Row, counted, show_json, show_table
from penstock.cli.running import failure, run

if TYPE_CHECKING:
    from penstock.client.cluster.cluster import Cluster
    from penstock.client.errors import ClientError
    from penstock.client.metadata import Topic, TopicPartition

# Limits the partitions that a question names one by one.
NAMED = 10


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partition without a leader: the replica that would lead, None if none is alive, and those that have
    everything. If none is known to have, since the metadata was imported, it is the one whose log goes farthest."""

    key: "TopicPartition"
    leader: int | None
    whole: tuple[int, ...]

    @property
    def would_lead(self) -> str:
        if self.leader is None:
            return "no broker, as no replica is alive"
        return f"broker {self.leader}" if self.whole else "the broker that is alive whose log goes farthest"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`error` says why a partition has no other leader; False if it needs none."""

    elected: "bool | ClientError"
    leader: int


@click.command(
    epilog=examples(
        "penstock topic elect orders",
        "penstock topic elect --all-topics",
        "penstock topic elect orders --partition 3 --unclean",
    )
)
@click.argument("name", type=TopicName(), metavar="[TOPIC]", required=False)
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=click.IntRange(min=0),
    metavar="N",
    multiple=True,
    help="Only this one; may be given several times.",
)
@click.option("--all-topics", is_flag=True, help="The partitions of all topics.")
@click.option("--unclean", is_flag=True, help="Where there is no leader, take one that may lack acknowledged records.")
@output_option
@yes_option
@client_options
def elect(
    *,
    name: str | None,
    partitions: Sequence[int],
    all_topics: bool,
    unclean: bool,
    output: str,
    yes: bool,
    client: ClientConfig,
) -> None:
    """Choose the leaders of partitions.

    The first replica of each partition leads again, if it is in sync; that costs clients a moment, and no record.

    With --unclean partitions without a leader get one: a replica that is alive; after an import of metadata, the one
    whose log goes farthest. Acknowledged records that it lacks are lost, also when the broker that has them comes back;
    so first try to start that one.
    """
    if (name is None) != all_topics or (partitions and all_topics):
        raise click.UsageError("name a topic, with --partition if you like, or give --all-topics")
    outcomes = _elect_unclean(client, name, partitions, yes=yes) if unclean else _elect(client, name, partitions)
    _show(outcomes, output, unclean=unclean)
    errors = [failure(each.elected) for each in outcomes.values() if not isinstance(each.elected, bool)]
    for error in errors[:-1]:
        error.show()
    if errors:
        raise errors[-1]


def _elect(client: ClientConfig, name: str | None, partitions: Sequence[int]) -> "dict[TopicPartition, Outcome]":
    async def work(cluster: "Cluster") -> "dict[TopicPartition, Outcome]":
        keys = None if name is None else keys_of(await cluster.topic(name, fresh=True), partitions)
        return await _outcomes(cluster, keys, unclean=False)

    return run(client, work)


def _elect_unclean(
    client: ClientConfig, name: str | None, partitions: Sequence[int], *, yes: bool
) -> "dict[TopicPartition, Outcome]":
    candidates = run(client, lambda cluster: _candidates(cluster, name, partitions))
    if not candidates:
        return {}
    confirm(question(candidates), yes=yes)
    return run(client, lambda cluster: _outcomes(cluster, [each.key for each in candidates], unclean=True))


async def _outcomes(
    cluster: "Cluster", keys: "list[TopicPartition] | None", *, unclean: bool
) -> "dict[TopicPartition, Outcome]":
    from penstock.client.admin.elections import elect_leaders, leaders

    elected = await elect_leaders(cluster, keys, unclean=unclean)
    leading = await leaders(cluster, elected)
    return {key: Outcome(elected[key], leading[key]) for key in sorted(elected)}


async def _candidates(cluster: "Cluster", name: str | None, partitions: Sequence[int]) -> list[Candidate]:
    from penstock.client.admin.brokers import describe_cluster
    from penstock.client.admin.elections import eligible_leaders

    topics = await cluster.all_topics() if name is None else [await cluster.topic(name, fresh=True)]
    alive = {broker.id for broker in (await describe_cluster(cluster)).brokers}
    eligible = await eligible_leaders(cluster, [topic.name for topic in topics])
    return [
        Candidate(
            key,
            next((replica for replica in partition.replicas if replica in alive), None),
            partition.isr or eligible.get(key, ()),
        )
        for topic in topics
        for key in keys_of(topic, partitions)
        if (partition := topic.partition(key.partition)).leader < 0
    ]


def keys_of(topic: "Topic", partitions: Sequence[int]) -> "list[TopicPartition]":
    """The partitions of a topic that are asked for; all, if none are named."""
    from penstock.client.metadata import TopicPartition

    numbers = sorted(set(partitions)) or range(len(topic.partitions))
    return [TopicPartition(topic.name, topic.partition(number).index) for number in numbers]


def question(candidates: Sequence[Candidate]) -> str:
    """What an operator has to know before records are given up."""
    named = [
        f"{each.key} would be led by {each.would_lead}"
        + (f", and all its acknowledged records are on {_brokers(each.whole)}" if each.whole else "")
        for each in candidates[:NAMED]
    ]
    more = f"; and {len(candidates) - NAMED} more" if len(candidates) > NAMED else ""
    return (
        f"{'; '.join(named)}{more}. Acknowledged records that the new leaders lack are lost for good. Elect leaders "
        f"of {counted(len(candidates), 'partition')} nevertheless?"
    )


def _brokers(brokers: Sequence[int]) -> str:
    return f"broker{'s' * (len(brokers) > 1)} {' and '.join(map(str, brokers))}"


def _show(outcomes: "Mapping[TopicPartition, Outcome]", output: str, *, unclean: bool) -> None:
    rows: list[Row] = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "elected": each.elected is True,
            "leader": each.leader if each.leader >= 0 else None,
        }
        for key, each in outcomes.items()
    ]
    if output == "json":
        show_json(rows)
    elif elected := [row for row in rows if row["elected"]]:
        click.echo(f"elected leaders of {counted(len(elected), 'partition')}")
        show_table(["topic", "partition", "leader"], elected)
    elif all(isinstance(each.elected, bool) for each in outcomes.values()):
        click.echo("every partition has a leader" if unclean else "every partition is led by its first replica")
