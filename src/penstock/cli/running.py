"""Runs what a command does with a cluster. Errors of the client become the command's here, and nowhere else."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from penstock.client.cluster import Cluster
    from penstock.client.errors import ClientError

T = TypeVar("T")

CLIENT_ID = "penstock-cli"


def run(bootstrap: str, work: Callable[["Cluster"], Awaitable[T]]) -> T:
    """What `work` makes of the cluster, whose connections are closed when it returns."""
    import asyncio

    from penstock.client.cluster import Cluster
    from penstock.client.errors import ClientError

    async def use_cluster() -> T:
        try:
            cluster = Cluster(bootstrap, client_id=CLIENT_ID)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--bootstrap") from None
        async with cluster:
            return await work(cluster)

    try:
        return asyncio.run(use_cluster())
    except ClientError as error:
        raise failure(error) from error


def failure(error: "ClientError") -> click.ClickException:
    """An error of the client as the user is told it."""
    notes: list[str] = getattr(error, "__notes__", [])
    text = "; ".join([str(error), *notes])
    if error.outcome_unknown:
        text += "; it is unknown whether it was done"
    return click.ClickException(text)
