"""Ends `make demo`: a pipeline on Spark counts what was sent, and draws it."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from penstock.spark.java import JavaNotFoundError, find_java
from tools.broker_demo import TOPIC, serving

PICTURES = Path("build/demo")
SHOWN_ROWS = "5"


class PipelineDemo:
    def __init__(self, folder: str, console: Console) -> None:
        self._folder = Path(folder)
        self._console = console

    def run(self) -> None:
        command = ["pipeline", "stats", TOPIC, "--top", SHOWN_ROWS, "--plots", os.fspath(PICTURES)]
        self._console.print(f"\n[bold]Count[/bold]  penstock {' '.join(command)}")
        if (missing := missing_for_spark()) is not None:
            self._console.print(f"Left out, for it runs on Spark: {missing}")
            return
        with serving(self._folder / "broker") as address:
            shown = self._call([*command, "--bootstrap", address, "--master", "local[2]"])
        self._console.print(shown.rstrip(), markup=False)

    def _call(self, command: list[str]) -> str:
        """What the command prints; what Java says on the side is left out."""
        conf = {
            "spark.local.dir": os.fspath(self._folder / "spark"),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            # What is over in seconds is not worth the second compiler.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        program = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
        done = subprocess.run([*program, *command, *options], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


def missing_for_spark() -> str | None:
    """What has to be installed first; None if everything is there."""
    absent = [name for name in ("pyspark", "pyarrow", "matplotlib") if find_spec(name) is None]
    if absent:
        return f"{', '.join(absent)} missing. Install what pipelines need: pip install 'penstock-mq[spark]'"
    try:
        find_java()
    except JavaNotFoundError as error:
        return str(error)
    return None
