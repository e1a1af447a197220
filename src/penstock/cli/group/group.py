"""`penstock group` lists, describes and deletes consumer groups."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from penstock.cli.group.lag import lag
from penstock.cli.group.seek import seek
from penstock.cli.help import examples
from penstock.cli.lazy import NearGroup
from penstock.cli.options import ClientConfig, GroupName, client_options, confirm, output_option, yes_option
from penstock.cli.output import Row, bytes_field, show_fields, show_json, show_table, warn
from penstock.cli.running import failure, run

if TYPE_CHECKING:
    from penstock.client.admin.groups import GroupListing, GroupMember
    from penstock.client.admin.lag import GroupLag, PartitionLag
    from penstock.client.cluster.cluster import Cluster
    from penstock.client.metadata import TopicPartition

# Kafka's names. The last two are states of groups whose partitions the coordinator assigns itself (KIP-848).
STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Assigning", "Reconciling")
TYPES = ("classic", "consumer", "share", "streams")


@click.group(cls=NearGroup)
def group() -> None:
    """Look at consumer groups and move them."""


group.add_command(lag)
group.add_command(seek)


@group.command("list", epilog=examples("penstock group list", "penstock group list --state empty"))
@click.option(
    "--state", "-s", "states", type=click.Choice(STATES, case_sensitive=False), multiple=True, help="Only those in it."
)
@click.option(
    "--type", "-t", "types", type=click.Choice(TYPES, case_sensitive=False), multiple=True, help="Only those of it."
)
@output_option
@client_options
def list_(states: Sequence[str], types: Sequence[str], output: str, client: ClientConfig) -> None:
    """Show all groups.

    A group is empty when it has no members, and its offsets are kept for a while; it is stable when its members have
    shared out their partitions.
    """
    from penstock.client.admin.groups import all_listed, list_groups
    from penstock.client.errors import ClientError

    async def work(cluster: "Cluster") -> "list[GroupListing]":
        listed = await list_groups(cluster, states=states, types=types)
        for outcome in listed.values():
            if isinstance(outcome, ClientError):
                warn(outcome)
        if listed and all(isinstance(outcome, ClientError) for outcome in listed.values()):
            raise click.ClickException("no broker has told of its groups")
        return all_listed(listed)

    rows: list[Row] = [
        {
            "group": each.group,
            "state": each.state or None,
            "type": each.type or None,
            "protocol": each.protocol_type or None,
            "coordinator": each.coordinator,
        }
        for each in run(client, work)
    ]
    if output == "json":
        show_json(rows)
    elif rows:
        show_table(
            ["group", "state", "type", "protocol", "coordinator"], rows, spare=["protocol", "type", "coordinator"]
        )
    else:
        what = "such groups" if states or types else "groups: a consumer makes one when it first joins or commits"
        click.echo(f"there are no {what}", err=True)


@group.command(
    epilog=examples("penstock group describe billing", "penstock group describe billing -O json | jq .offsets")
)
@click.argument("name", type=GroupName(), metavar="GROUP")
@output_option
@client_options
def describe(name: str, output: str, client: ClientConfig) -> None:
    """Show a group: its state, its members, and its offsets.

    Each member has the partitions that it was given. A partition without a committed offset is read from where the
    consumer's auto.offset.reset says.
    """
    from penstock.client.admin.lag import LagMeter

    async def work(cluster: "Cluster") -> "tuple[GroupLag, int]":
        found = await LagMeter(cluster, name).measure(ages=False)
        return found, (await cluster.coordinator(name)).id

    found, coordinator = run(client, work)
    facts: dict[str, object] = {
        "group": name,
        "state": found.group.state,
        "protocol_type": found.group.protocol_type or None,
        "protocol": found.group.protocol or None,
        "coordinator": coordinator,
    }
    offsets = [offset_row(each) for each in found.partitions]
    if output == "json":
        members = [member_fields(each) for each in found.group.members]
        show_json({**facts, "members": members, "offsets": offsets})
        return
    show_fields({**facts, "members": len(found.group.members)})
    if found.group.members:
        click.echo()
        columns = ["member", "instance", "client", "host", "partitions"]
        show_table(columns, map(member_row, found.group.members), spare=["instance", "member", "host"])
    click.echo()
    if offsets:
        show_table(["topic", "partition", "committed", "end", "lag", "client"], offsets, spare=["client", "end"])
    else:
        click.echo("nothing is committed")


@group.command(epilog=examples("penstock group delete billing", "penstock group delete billing audit --yes"))
@click.argument("names", type=GroupName(), nargs=-1, required=True, metavar="GROUP...")
@yes_option
@client_options
def delete(names: Sequence[str], yes: bool, client: ClientConfig) -> None:
    """Delete groups with all their offsets.

    Only a group without members can be deleted. Consumers that come back to it begin as new ones do, where their
    auto.offset.reset says.
    """
    from penstock.client.admin.groups import delete_groups
    from penstock.client.errors import ClientError

    names = list(dict.fromkeys(names))
    confirm(f"Delete {', '.join(names)} with all offsets?", yes=yes)

    async def work(cluster: "Cluster") -> dict[str, ClientError | None]:
        return await delete_groups(cluster, names)

    outcomes = run(client, work)
    for name, outcome in outcomes.items():
        if outcome is None:
            click.echo(f"deleted group {name}")
    errors = [failure(outcome) for outcome in outcomes.values() if outcome is not None]
    for error in errors[:-1]:
        error.show()
    if errors:
        raise errors[-1]


def offset_row(each: "PartitionLag") -> Row:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "committed": each.committed,
        "end": each.end,
        "lag": each.messages,
        "client": each.member.client_id if each.member is not None else None,
    }


def member_row(member: "GroupMember") -> Row:
    """A member as a row of a table."""
    told = None if member.partitions is None else partitions_text(member.partitions) or None
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "partitions": told if member.partitions is not None else member.assignment,
    }


def member_fields(member: "GroupMember") -> Row:
    """A member as JSON. The assignment of a member that is no consumer is shown as bytes."""
    partitions: dict[str, list[int]] | None = None
    if member.partitions is not None:
        partitions = {}
        for key in member.partitions:
            partitions.setdefault(key.topic, []).append(key.partition)
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "partitions": partitions,
        **(bytes_field("assignment", member.assignment) if member.partitions is None else {}),
    }


def partitions_text(keys: "Iterable[TopicPartition]") -> str:
    """`orders 0-2,5; payments 1`"""
    topics: dict[str, list[list[int]]] = {}
    for key in sorted(keys):
        runs = topics.setdefault(key.topic, [])
        if runs and runs[-1][1] == key.partition - 1:
            runs[-1][1] = key.partition
        else:
            runs.append([key.partition, key.partition])
    return "; ".join(
        f"{topic} {','.join(str(first) if first == last else f'{first}-{last}' for first, last in runs)}"
        for topic, runs in topics.items()
    )
