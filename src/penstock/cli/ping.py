"""`penstock ping` reports whether a broker answers, with an exit code for scripts."""

import time
from typing import TYPE_CHECKING

import click

from penstock.cli.help import examples
from penstock.cli.options import ClientConfig, client_options, output_option
from penstock.cli.output import counted, show_json
from penstock.cli.running import run

if TYPE_CHECKING:
    from penstock.client.admin.brokers import ClusterDescription
    from penstock.client.cluster.cluster import Cluster

# How long after a failure the next try begins.
AGAIN_SECONDS = 0.2

_EXAMPLES = examples(
    "penstock ping",
    "penstock ping --wait 30 && penstock topic list",
    "penstock ping -O json | jq .brokers",
)


@click.command(epilog=_EXAMPLES)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the answer of a broker that can be reached.",
)
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Try again until a broker answers, for so long; without it one try decides.",
)
@output_option
@client_options
def ping(timeout: float, wait: float, output: str, client: ClientConfig) -> None:
    """Report whether a broker answers.

    The exit code is 0 if one of the brokers has answered, and 1 if none has. A load balancer that speaks HTTP can ask
    the broker itself: GET /healthz, where penstock.metrics.listen says.
    """

    async def work(cluster: "Cluster") -> "tuple[ClusterDescription, float]":
        import asyncio

        from penstock.client.admin.brokers import describe_cluster
        from penstock.client.errors import AuthenticationError, ClientError

        give_up_at = time.monotonic() + wait
        while True:
            began = time.monotonic()
            try:
                return await describe_cluster(cluster, timeout_ms=round(timeout * 1000)), time.monotonic() - began
            except AuthenticationError:
                raise
            except ClientError:
                if time.monotonic() >= give_up_at:
                    raise
            await asyncio.sleep(AGAIN_SECONDS)

    found, seconds = run(client, work)
    if output == "json":
        show_json(
            {
                "cluster_id": found.cluster_id,
                "controller": found.controller_id,
                "brokers": [{"broker": each.id, "host": each.host, "port": each.port} for each in found.brokers],
                "milliseconds": round(seconds * 1000, 3),
            }
        )
    else:
        count = counted(len(found.brokers), "broker")
        click.echo(f"cluster {found.cluster_id} with {count} has answered in {seconds * 1000:.1f} ms")
