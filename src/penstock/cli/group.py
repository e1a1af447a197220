"""`penstock group`: consumer groups are shown, moved and deleted."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from penstock.cli.group_lag import lag
from penstock.cli.group_seek import seek
from penstock.cli.options import GroupName, bootstrap_option, confirm, output_option, yes_option
from penstock.cli.output import Row, bytes_field, show_fields, show_json, show_table
from penstock.cli.running import failure, run

if TYPE_CHECKING:
    from penstock.client.cluster import Cluster
    from penstock.client.groups import GroupListing, GroupMember
    from penstock.client.lag import GroupLag, PartitionLag
    from penstock.client.metadata import TopicPartition

# As Kafka calls them; the last two are those of groups that the coordinator shares out itself (KIP-848).
STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Assigning", "Reconciling")
TYPES = ("classic", "consumer", "share", "streams")


@click.group()
def group() -> None:
    """Look at consumer groups and move them."""


group.add_command(lag)
group.add_command(seek)


@group.command("list", epilog="\b\nWhich groups nobody is in:\n  penstock group list --state empty")
@click.option(
    "--state", "-s", "states", type=click.Choice(STATES, case_sensitive=False), multiple=True, help="Only those in it."
)
@click.option(
    "--type", "-t", "types", type=click.Choice(TYPES, case_sensitive=False), multiple=True, help="Only those of it."
)
@output_option
@bootstrap_option
def list_(states: Sequence[str], types: Sequence[str], output: str, bootstrap: str) -> None:
    """Show all groups.

    A group is empty when nobody is in it, and its offsets are kept for a while; it is stable when its members have
    shared out their partitions.
    """
    from penstock.client.errors import ClientError
    from penstock.client.groups import all_listed, list_groups

    async def work(cluster: "Cluster") -> "list[GroupListing]":
        listed = await list_groups(cluster, states=states, types=types)
        for outcome in listed.values():
            if isinstance(outcome, ClientError):
                click.echo(f"Warning: {outcome}", err=True)
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
        for each in run(bootstrap, work)
    ]
    if output == "json":
        show_json(rows)
    elif rows:
        show_table(["group", "state", "type", "protocol", "coordinator"], rows)
    else:
        what = "such groups" if states or types else "groups: a consumer makes one when it first joins or commits"
        click.echo(f"there are no {what}", err=True)


@group.command(epilog="\b\nHow old the messages are that it has not processed:\n  penstock group lag GROUP")
@click.argument("name", type=GroupName(), metavar="GROUP")
@output_option
@bootstrap_option
def describe(name: str, output: str, bootstrap: str) -> None:
    """Show a group: its state, its members, and its offsets.

    Each member has the partitions that it was given. A partition without a committed offset is read from where the
    consumer's auto.offset.reset says.
    """
    from penstock.client.lag import LagMeter

    async def work(cluster: "Cluster") -> "tuple[GroupLag, int]":
        found = await LagMeter(cluster, name).measure(ages=False)
        return found, (await cluster.coordinator(name)).id

    found, coordinator = run(bootstrap, work)
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
        show_table(["member", "instance", "client", "host", "partitions"], map(member_row, found.group.members))
    click.echo()
    if offsets:
        show_table(["topic", "partition", "committed", "end", "lag", "client"], offsets)
    else:
        click.echo("nothing is committed")


@group.command()
@click.argument("names", type=GroupName(), nargs=-1, required=True, metavar="GROUP...")
@yes_option
@bootstrap_option
def delete(names: Sequence[str], yes: bool, bootstrap: str) -> None:
    """Delete groups with all their offsets.

    Only a group that nobody is in can be deleted. Consumers that come back to it begin as new ones do, where their
    auto.offset.reset says.
    """
    from penstock.client.errors import ClientError
    from penstock.client.groups import delete_groups

    names = list(dict.fromkeys(names))
    confirm(f"Delete {', '.join(names)} with all offsets?", yes=yes)

    async def work(cluster: "Cluster") -> dict[str, ClientError | None]:
        return await delete_groups(cluster, names)

    outcomes = run(bootstrap, work)
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
    """A member as JSON. An assignment that is none of a consumer comes as it is."""
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
