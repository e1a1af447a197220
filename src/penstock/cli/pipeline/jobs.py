"""Holds what commands that run on Spark share: their options, the session, and errors in a sentence."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.options import SECRETS_HELP, NameValue, Setting, given_before
from penstock.cli.pipeline.quiet import quiet_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.client.metadata import Topic

F = TypeVar("F", bound=Callable[..., Any])

# A command shows its own progress, and Spark's page is of no use for one that is over in a minute.
CONF = {"spark.ui.showConsoleProgress": "false", "spark.ui.enabled": "false"}


def spark_options(command: F) -> F:
    """Add `--master` and `--conf`, as spark-submit has them, and settings of the client to a command."""
    settings = click.option(
        "-X",
        "--set",
        "-s",
        "settings",
        type=Setting(),
        metavar="NAME=VALUE",
        multiple=True,
        callback=given_before,
        help=f"A setting of the client, such as security.protocol=SSL; may be given several times. {SECRETS_HELP}",
    )
    conf = click.option(
        "--conf",
        type=NameValue(),
        metavar="NAME=VALUE",
        multiple=True,
        help="A config of Spark, such as spark.executor.memory=4g; may be given several times.",
    )
    master = click.option(
        "--master", metavar="URL", help="Where Spark runs: local[*], which is the default, or spark://HOST:PORT."
    )
    return master(conf(settings(command)))


@contextmanager
def pipeline_errors() -> Iterator[None]:
    """Within the block, errors of the pipeline that its user can do something about become errors of the command."""
    from penstock.cli.running import failure
    from penstock.client.errors import ClientError

    try:
        from penstock.spark.failures import FAILURES

        try:
            yield
        except ClientError as error:
            raise failure(error) from error
        except FAILURES as error:
            raise click.ClickException(str(error)) from error
    except ImportError as error:
        raise click.ClickException(f"{error}: install what pipelines need, pip install 'penstock-mq[spark]'") from None


def ask_first(client: Mapping[str, str], topics: Iterable[str]) -> "dict[str, Topic]":
    """The topics, as the broker knows them now. A command asks before it starts a JVM, which takes ten seconds: a
    broker that cannot be reached, or a topic that is not there, is reported in one."""
    import asyncio

    from penstock.client.errors import unwrap
    from penstock.client.opening import open_cluster
    from penstock.client.settings import ConsumerSettings, read_settings

    async def ask() -> "dict[str, Topic]":
        try:
            cluster = open_cluster(read_settings(ConsumerSettings, {"fail.fast": "true", **client}))
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--bootstrap or -X") from None
        async with cluster:
            return unwrap(await cluster.topics(topics, fresh=True))

    # The loop and its connections are closed before the JVM is forked off.
    return asyncio.run(ask())


@contextmanager
def spark_session(master: str | None, conf: Sequence[tuple[str, str]], name: str) -> "Iterator[SparkSession]":
    """A session that ends with the block, unless it was there before. Errors of the pipeline become errors of the
    command."""
    with pipeline_errors():
        from pyspark.sql import SparkSession

        is_new = SparkSession.getActiveSession() is None
        where = master or submitted_master() or "local[*]"
        if where.startswith("local"):
            # Otherwise Spark looks for an address that other machines can reach, warns about it, and listens there.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        spark = _start(where, name, dict(conf))
        try:
            yield spark
        finally:
            if is_new:
                spark.stop()


def _start(where: str, name: str, conf: Mapping[str, str]) -> "SparkSession":
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from penstock.spark.sessions import session
    from penstock.spark.tasks import sentence_of

    try:
        with quiet_start(conf):
            return session(where, app_name=name, **{**CONF, **conf})
    except (PySparkException, Py4JError) as error:
        reason = sentence_of(str(error))
        if "JAVA_GATEWAY_EXITED" in reason:
            reason = "Java ended before it was ready, and has said why; look at --master, --conf and JAVA_HOME"
        raise click.ClickException(f"Spark did not start: {reason}") from error


def submitted_master() -> str | None:
    """The master that spark-submit was given, if it has started this process."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return SparkConf().get("spark.master")


def client_settings(bootstrap: str, settings: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    return {"bootstrap.servers": bootstrap, **dict(settings)}
