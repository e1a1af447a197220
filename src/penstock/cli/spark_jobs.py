"""What commands that run on Spark have in common: their options, the session, and errors in a sentence."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.options import NameValue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

F = TypeVar("F", bound=Callable[..., Any])

# A command has its own progress, and nobody looks at the page of one that is over in a minute.
CONF = {"spark.ui.showConsoleProgress": "false", "spark.ui.enabled": "false", "spark.log.level": "ERROR"}


def spark_options(command: F) -> F:
    """`--master` and `--conf`, as spark-submit has them, and settings of the client."""
    settings = click.option(
        "--set",
        "-s",
        "settings",
        type=NameValue(),
        metavar="NAME=VALUE",
        multiple=True,
        help="A setting of the client, such as security.protocol=SSL; may be given several times.",
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
def spark_session(master: str | None, conf: Sequence[tuple[str, str]], name: str) -> "Iterator[SparkSession]":
    """A session that is over when the block is, unless it was there before; what goes wrong is told as commands tell
    it."""
    from penstock.cli.running import failure
    from penstock.client.errors import ClientError

    try:
        from pyspark.sql import SparkSession

        from penstock.spark.failures import FAILURES
        from penstock.spark.sessions import session
    except ImportError as error:
        raise click.ClickException(f"{error}: install what pipelines need, pip install 'penstock[spark]'") from None
    try:
        is_new = SparkSession.getActiveSession() is None
        where = master or submitted_master() or "local[*]"
        if where.startswith("local"):
            # Else Spark looks for an address by which others could reach it, warns of the one it finds, and listens.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        spark = session(where, app_name=name, **{**CONF, **dict(conf)})
        try:
            yield spark
        finally:
            if is_new:
                spark.stop()
    except ClientError as error:
        raise failure(error) from error
    except FAILURES as error:
        raise click.ClickException(str(error)) from error


def submitted_master() -> str | None:
    """The master that spark-submit was given, if that has started us."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return SparkConf().get("spark.master")


def client_settings(bootstrap: str, settings: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    return {"bootstrap.servers": bootstrap, **dict(settings)}
