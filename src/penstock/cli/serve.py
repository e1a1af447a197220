"""`penstock serve` runs a broker, or several, in the foreground until a signal stops it."""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from penstock import __version__
from penstock.cli.help import examples
from penstock.cli.options import SECRETS_HELP, Setting

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.supervisor.plan import BrokerPlan
    from penstock.supervisor.readiness import Readiness


class Override(NamedTuple):
    """An argument of -X. `given` is what stands on the command line: a secret is not in it if it is in a file."""

    name: str
    value: str
    given: str

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


class OverrideType(click.ParamType[Override, Any]):
    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Override:
        if isinstance(value, Override):
            return value
        return Override(*Setting().convert(value, param, ctx), given=str(value))


class Logs(NamedTuple):
    """How the log is written."""

    format: str
    level: str


@click.command(
    epilog=examples(
        "penstock serve",
        "penstock serve --data-dir ./data --listen 127.0.0.1:9092 -X num.partitions=3",
        "penstock serve --processes 4",
        "penstock serve --zookeeper zk1:2181,zk2:2181,zk3:2181/penstock --node-id 1",
        "penstock serve -X penstock.metrics.listen=127.0.0.1:9404",
        "penstock serve -X ssl.key.password@file=/run/secrets/key-password",
    )
)
@click.option(
    "--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Where messages and metadata are kept."
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Where clients connect. With --processes other brokers have the next ports, or those that follow, as in "
    "HOST:9092,9192. [default: 127.0.0.1:9092]",
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    metavar="N",
    help="Run N brokers on this machine, each in a process of its own: as many as it has cores to spare.",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,.../CHROOT",
    help="Take part in the cluster whose metadata is in this ZooKeeper.",
)
@click.option("--node-id", type=click.IntRange(0), help="This broker's number in its cluster. [default: 0]")
@click.option(
    "-X",
    "overrides",
    type=OverrideType(),
    multiple=True,
    metavar="NAME=VALUE",
    help=f"Set any of Kafka's broker configs. {SECRETS_HELP}",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of configs: TOML, or Kafka's properties.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How the log is written.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What is logged, at least.",
)
@click.option("--insecure", is_flag=True, help="Let anyone who can reach this machine in, without authentication.")
def serve(  # noqa: PLR0917 - click names its parameters
    data_dir: Path | None,
    listen: str | None,
    processes: int | None,
    zookeeper: str | None,
    node_id: int | None,
    overrides: tuple[Override, ...],
    config_file: Path | None,
    log_format: str,
    log_level: str,
    insecure: bool,
) -> None:
    """Run a broker.

    Every Kafka client can connect to it. Configs have Kafka's names; a flag wins over -X, that over the environment
    (PENSTOCK_ and the name in upper case, dots as underscores), and that over the file. Ctrl-C or SIGTERM stops it in
    order: what is under way is answered, everything is flushed, and the next start needs no recovery.

    One broker uses about one core. With --processes N this is a cluster of N brokers on one machine: the topics are
    spread over them, a client finds them all by any one of them, and one that crashes is started again. A folder that
    one broker has used so far is taken over as it is.

    With --zookeeper brokers on several machines are one cluster. Each has a --node-id and a data folder of its own, and
    listens where the others and the clients reach it; `penstock cluster brokers` shows them.
    """
    from penstock.broker.config.values import ConfigError

    given = {"--data-dir": data_dir, "--listen": listen, "--node-id": node_id, "--zookeeper": zookeeper}
    flags = {flag: str(value) for flag, value in given.items() if value is not None}
    logs = Logs(log_format, log_level)
    try:
        if processes is None or processes == 1:
            _serve_one(flags, overrides, config_file, logs, insecure=insecure)
        else:
            _serve_many(processes, flags, overrides, config_file, logs, insecure=insecure)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None


def _serve_one(
    flags: dict[str, str], overrides: Sequence[Override], config_file: Path | None, logs: Logs, *, insecure: bool
) -> None:
    from penstock.broker.config.settings import load_settings
    from penstock.broker.logs import set_up_logs
    from penstock.broker.serving import ServeError, run
    from penstock.supervisor.readiness import wait_for_word

    config, warnings = load_settings(
        flags=flags, overrides=list(map(str, overrides)), environ=os.environ, config_file=config_file
    )
    is_supervised = config["penstock.metadata.socket"] is not None
    if is_supervised and not wait_for_word(sys.stdin.buffer):
        raise click.ClickException("penstock serve --processes starts this broker; it has ended before that")
    broker = config.node_id if is_supervised else None
    set_up_logs(sys.stderr, as_json=logs.format == "json", level=logs.level, broker=broker)
    for warning in warnings:
        logging.getLogger("penstock.config").warning(warning)
    try:
        run(config, started=_report if is_supervised else _tell, insecure=insecure)
    except ServeError as error:
        whose = f"broker {config.node_id}: " if is_supervised else ""
        raise click.ClickException(f"{whose}{error}") from None


def _serve_many(
    processes: int,
    flags: dict[str, str],
    overrides: Sequence[Override],
    config_file: Path | None,
    logs: Logs,
    *,
    insecure: bool,
) -> None:
    from penstock.broker.config.endpoints import open_listener_problem
    from penstock.broker.config.settings import located, merge_settings, with_data_directory
    from penstock.broker.config.values import ConfigError
    from penstock.broker.logs import set_up_logs
    from penstock.supervisor.child import PROGRAM
    from penstock.supervisor.plan import command_line, one_disk_warnings, plan_brokers
    from penstock.supervisor.serving import SupervisorError, run

    # The brokers themselves warn of settings: they get all of them.
    settings, _ = merge_settings(
        flags=flags, overrides=list(map(str, overrides)), environ=os.environ, config_file=config_file
    )
    values = {name: setting.value for name, setting in settings.items()}
    try:
        plans = plan_brokers(with_data_directory(values, os.environ), processes)
    except ConfigError as error:
        raise located(error, settings) from None
    problem = open_listener_problem(endpoint for plan in plans for endpoint in plan.endpoints)
    if problem is not None and not insecure:
        raise click.ClickException(problem)
    rest = ["--log-format", logs.format, "--log-level", logs.level, *(["--insecure"] if insecure else [])]
    if config_file is not None:
        rest += ["--config", str(config_file)]

    def command(plan: "BrokerPlan", socket: str) -> Sequence[str]:
        given = [(each.name, each.given) for each in overrides]
        return command_line(plan, PROGRAM, socket=socket, overrides=given, rest=rest)

    def tell(told: "list[Readiness]", refused: list[int]) -> None:
        _tell_of_many(told, refused, plans[0].data_path)

    set_up_logs(sys.stderr, as_json=logs.format == "json", level=logs.level)
    for warning in one_disk_warnings(plans[0].config):
        logging.getLogger("penstock.config").warning(warning)
    try:
        run(plans, command, tell)
    except SupervisorError as error:
        raise click.ClickException(str(error)) from None


def _tell(broker: "Broker") -> None:
    host, port = broker.address
    click.echo(f"Penstock {__version__}, broker {broker.node_id} of cluster {broker.cluster_id}, is ready.")
    click.echo(f"Connect any Kafka client to {host}:{port}; data is in {broker.data_path}. Ctrl-C stops it.")
    if broker.metrics_address is not None:
        click.echo(f"Metrics for Prometheus are at {_metrics_url(broker.metrics_address)}.")
    sys.stdout.flush()


def _report(broker: "Broker") -> None:
    """Tell the supervisor what `_tell` tells an operator."""
    from penstock.client.metadata import Address
    from penstock.supervisor.readiness import Readiness, write_readiness

    metrics = None if broker.metrics_address is None else _metrics_url(broker.metrics_address)
    told = Readiness(broker.node_id, broker.cluster_id, str(Address(*broker.address)), metrics)
    write_readiness(sys.stdout.buffer, told)


def _tell_of_many(told: "list[Readiness]", refused: Sequence[int], data: str) -> None:
    addresses = ",".join(each.address for each in told)
    click.echo(f"Penstock {__version__}, {len(told)} brokers of cluster {told[0].cluster_id}, are ready.")
    click.echo(f"Connect any Kafka client to {addresses}; data is in {data}. Ctrl-C stops them.")
    if urls := [each.metrics_url for each in told if each.metrics_url is not None]:
        click.echo(f"Metrics for Prometheus are at {' '.join(urls)}.")
    for number in refused:
        click.echo(f"Broker {number} does not start, and has said why above; it is tried again and again.")
    sys.stdout.flush()


def _metrics_url(address: tuple[str, int]) -> str:
    host, port = address
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
