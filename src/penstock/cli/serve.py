"""`penstock serve`: a broker in the foreground, until it is told to stop."""

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock import __version__

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


@click.command()
@click.option(
    "--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Where messages and metadata are kept."
)
@click.option("--listen", metavar="HOST:PORT", help="Where clients connect. [default: 127.0.0.1:9092]")
@click.option("--node-id", type=click.IntRange(0), help="This broker's number in its cluster. [default: 0]")
@click.option("-X", "overrides", multiple=True, metavar="NAME=VALUE", help="Set any of Kafka's broker configs.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of configs: TOML, or Kafka's properties.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option("--insecure", is_flag=True, help="Let anyone who can reach this machine in, without authentication.")
def serve(  # noqa: PLR0917 - click names its parameters
    data_dir: Path | None,
    listen: str | None,
    node_id: int | None,
    overrides: tuple[str, ...],
    config_file: Path | None,
    log_format: str,
    log_level: str,
    insecure: bool,
) -> None:
    """Run a broker.

    Every Kafka client can connect to it. Configs have Kafka's names; a flag wins over -X, that over the environment
    (PENSTOCK_ and the name in upper case, dots as underscores), and that over the file. Ctrl-C or SIGTERM stops it in
    order: what is under way is answered, everything is flushed, and the next start needs no recovery.

    \b
    penstock serve
    penstock serve --data-dir ./data --listen 127.0.0.1:9092 -X num.partitions=3
    penstock serve -X penstock.metrics.listen=127.0.0.1:9404
    """
    from penstock.broker.config.settings import load_settings
    from penstock.broker.config.values import ConfigError
    from penstock.broker.logs import set_up_logs
    from penstock.broker.serving import ServeError, run

    given = {"--data-dir": data_dir, "--listen": listen, "--node-id": node_id}
    flags = {flag: str(value) for flag, value in given.items() if value is not None}
    try:
        config, warnings = load_settings(
            flags=flags, overrides=list(overrides), environ=os.environ, config_file=config_file
        )
        set_up_logs(sys.stderr, as_json=log_format == "json", level=log_level)
        for warning in warnings:
            logging.getLogger("penstock.config").warning(warning)
        run(config, started=_tell, insecure=insecure)
    except (ConfigError, ServeError) as error:
        raise click.ClickException(str(error)) from None


def _tell(broker: "Broker") -> None:
    host, port = broker.address
    click.echo(f"Penstock {__version__}, broker {broker.node_id} of cluster {broker.cluster_id}, is ready.")
    click.echo(f"Connect any Kafka client to {host}:{port}; data is in {broker.data_path}. Ctrl-C stops it.")
    if broker.metrics_address is not None:
        host, port = broker.metrics_address
        click.echo(f"Metrics for Prometheus are at http://{f'[{host}]' if ':' in host else host}:{port}/metrics.")
    sys.stdout.flush()
