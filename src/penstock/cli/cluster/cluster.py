"""`penstock cluster` shows the brokers of a cluster, turns a single node into the first broker of one, and saves and
restores its metadata."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.cluster.export import export, import_
from penstock.cli.help import examples
from penstock.cli.lazy import NearGroup
from penstock.cli.options import ClientConfig, client_options, output_option
from penstock.cli.output import Row, Size, counted, show_fields, show_json, show_sentence, show_table
from penstock.cli.running import run
from penstock.protocol.printable import printable

if TYPE_CHECKING:
    from penstock.cli.cluster.findings import Finding


@click.group(cls=NearGroup)
def cluster() -> None:
    """Look at brokers, move a node into a cluster, and save what ZooKeeper has."""


@cluster.command(epilog=examples("penstock cluster info", "penstock cluster info -O json | jq .without_leader"))
@output_option
@client_options
def info(output: str, client: ClientConfig) -> None:
    """Show a cluster as a whole.

    A partition without a leader can neither be written nor read: what it had acknowledged is on brokers that are away.
    Below min ISR acks=all is refused; an under-replicated one has a replica that is not in sync.
    """
    from penstock.cli.cluster.facts import look_at_cluster

    facts = run(client, look_at_cluster)
    alive = [each.id for each in facts.cluster.brokers if each.id not in facts.cluster.fenced]
    sizes = [facts.size(broker) for broker in alive]
    shown: dict[str, object] = {
        "cluster_id": facts.cluster.cluster_id,
        "controller": facts.cluster.controller_id if facts.cluster.controller_id >= 0 else None,
        "brokers_alive": alive,
        "brokers_away": sorted(facts.cluster.fenced),
        "topics": len(facts.topics),
        "partitions": facts.partitions,
        "without_leader": facts.without_leader,
        "below_min_isr": facts.below_min_isr,
        "under_replicated": facts.under_replicated,
        "size": None if None in sizes else Size(sum(size for size in sizes if size is not None)),
    }
    if output == "json":
        show_json(shown)
    else:
        show_fields(shown)


@cluster.command(epilog=examples("penstock cluster health", "penstock cluster health -O json | jq -r .findings[].what"))
@output_option
@client_options
def health(output: str, client: ClientConfig) -> None:
    """Say what is wrong with a cluster, and what to do.

    For each problem: what it is, what it means for clients, and what helps. The exit code is 0 if the cluster is
    healthy, and 1 if it is not or does not answer; hints and what is under way are no problem.
    """
    from penstock.cli.cluster.health import diagnose, is_healthy, summary
    from penstock.cli.cluster.health_facts import look_at_health

    facts = run(client, look_at_health)
    findings = diagnose(facts)
    if output == "json":
        show_json({"healthy": is_healthy(findings), "findings": [finding_row(each) for each in findings]})
    else:
        click.echo(summary(facts, findings))
        for each in findings:
            show_finding(each)
    if not is_healthy(findings):
        raise click.exceptions.Exit(1)


@cluster.command(epilog=examples("penstock cluster brokers", "penstock cluster brokers -O json | jq .[].address"))
@output_option
@client_options
def brokers(output: str, client: ClientConfig) -> None:
    """Show each broker: where it is, whether it is alive, and what it has.

    A broker leads partitions, which clients then write to and read from it, and holds replicas of them; the size is
    that of all replicas, and free is the room on its disk.
    """
    from penstock.cli.cluster.facts import look_at_cluster

    facts = run(client, look_at_cluster)
    rows: list[Row] = [
        {
            "broker": each.id,
            "address": str(each.address),
            "rack": each.rack,
            "state": "away" if each.id in facts.cluster.fenced else "alive",
            "controller": each.id == facts.cluster.controller_id,
            "leads": facts.leads[each.id],
            "holds": facts.holds[each.id],
            "size": _size(facts.size(each.id)),
            "free": _size(facts.free(each.id)),
        }
        for each in facts.cluster.brokers
    ]
    if output == "json":
        show_json(rows)
    else:
        columns = ["broker", "address", "rack", "state", "controller", "leads", "holds", "size", "free"]
        show_table(columns, rows, spare=["rack", "free", "holds", "controller", "leads"])


@cluster.command(
    epilog=examples(
        "penstock cluster adopt --zookeeper zk1:2181,zk2:2181,zk3:2181/penstock",
        "penstock cluster adopt --zookeeper localhost:2181/penstock --data-dir ./data",
    )
)
@click.option(
    "--zookeeper",
    required=True,
    metavar="HOST:PORT,.../CHROOT",
    help="Where the cluster is to be; nothing may be there yet.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="The data folder of the broker.  [default: the one of penstock serve]",
)
@output_option
def adopt(zookeeper: str, data_dir: Path | None, output: str) -> None:
    """Turn a broker that is alone into the first of a cluster.

    The broker is stopped. Its topics, their ids, offsets and groups become those of a new cluster, whose metadata is in
    ZooKeeper from then on; messages stay where they are, and nothing is copied. If it is interrupted, call it again.
    """
    import asyncio

    from penstock.broker.config.settings import default_data_directory
    from penstock.cli.cluster.adoption import adopt as adopt_folder
    from penstock.metadata.store import StoreError
    from penstock.metadata.zookeeper import ZookeeperStore

    data = str(data_dir or default_data_directory(os.environ))
    try:
        adopted = asyncio.run(adopt_folder(data, ZookeeperStore(zookeeper)))
    except (StoreError, OSError) as error:
        raise click.ClickException(str(error)) from None
    if output == "json":
        show_json(
            {
                "cluster_id": adopted.cluster_id,
                "topics": adopted.topics,
                "partitions": adopted.partitions,
                "brokers": [{"broker": number, "data_dir": folder} for number, folder in adopted.folders.items()],
            }
        )
        return
    click.echo(
        f"cluster {adopted.cluster_id} is in ZooKeeper now, with {counted(adopted.topics, 'topic')} of "
        f"{counted(adopted.partitions, 'partition')}; start it with:"
    )
    for number, folder in sorted(adopted.folders.items()):
        click.echo(f"  penstock serve --zookeeper {zookeeper} --node-id {number} --data-dir {folder}")


cluster.add_command(export)
cluster.add_command(import_)


def finding_row(finding: "Finding") -> Row:
    return {
        "kind": finding.kind,
        "severity": finding.severity,
        "what": finding.what,
        "means": finding.means,
        "advice": finding.advice,
        "commands": finding.commands,
        "brokers": finding.brokers,
        "partitions": [str(key) for key in finding.partitions],
    }


def show_finding(finding: "Finding") -> None:
    """Print a finding as sentences; a command stays on one line, to be copied."""
    colour = {"broken": "red", "at risk": "yellow"}.get(finding.severity, "cyan")
    click.echo()
    show_sentence(finding.what, label=f"{finding.severity.upper()}: ", colour=colour)
    for text in (finding.means, finding.advice):
        show_sentence(text, indent="  ")
    for command in finding.commands:
        click.echo(f"    {printable(command)}")


def _size(size: int | None) -> Size | None:
    return None if size is None else Size(size)
