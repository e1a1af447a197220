"""`run` runs the work of a command on a cluster, and is the one place where errors of the client become the
command's."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from penstock.cli.options import ClientConfig
from penstock.protocol.printable import printable

if TYPE_CHECKING:
    from penstock.client.cluster.cluster import Cluster
    from penstock.client.errors import ClientError
    from penstock.client.settings import ClientSettings

T = TypeVar("T")


def run(
    client: ClientConfig, work: Callable[["Cluster"], Awaitable[T]], *, kind: "type[ClientSettings] | None" = None
) -> T:
    """The result of `work` on the cluster, whose connections are closed when it returns. `kind` is that of the client
    whose settings are given, if it is one that has more than all clients have."""
    import asyncio

    from penstock.client.errors import ClientError
    from penstock.client.opening import open_cluster
    from penstock.client.settings import ClientSettings, SettingsError, read_settings

    async def use_cluster() -> T:
        settings = read_settings(kind or ClientSettings, client)
        try:
            cluster = open_cluster(settings)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--bootstrap") from None
        async with cluster:
            return await work(cluster)

    try:
        return asyncio.run(use_cluster())
    except SettingsError as error:
        # The work may open clients of its own, with settings that are theirs alone.
        raise click.BadParameter(str(error), param_hint="-X") from None
    except ClientError as error:
        raise failure(error) from error


def failure(error: "ClientError") -> click.ClickException:
    """An error of the client as an error of the command."""
    notes: list[str] = getattr(error, "__notes__", [])
    text = printable("; ".join([str(error), *notes]))
    if error.outcome_unknown:
        text += "; it is unknown whether it was done"
    return click.ClickException(text)
