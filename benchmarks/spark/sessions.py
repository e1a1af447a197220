"""Runs Spark in a process of its own, so that two versions of it can take turns."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.programs import ProgramError
from tools.spark_connector import install

_ROOT: Final = Path(__file__).parent.parent.parent


class Session:
    """A session that is running; `ask` waits until a piece of work is done."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process = process
        self._log = log
        self.version: str = self._answer()["version"]

    def ask(self, work: str, **told: Any) -> dict[str, Any]:
        assert self._process.stdin is not None, "it is a pipe"
        self._process.stdin.write(json.dumps({"work": work, **told}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None, "it is a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise ProgramError(f"Spark ended: {self._log.read_text(errors='replace')[-3000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def session(folder: Path, name: str, *, is_tuned: bool = True) -> Iterator[Session]:
    """The project's own Spark, with the settings that we ship or as it is by itself."""
    with _running(sys.executable, "", folder / f"{name}.log", is_tuned=is_tuned) as running:
        yield running


@contextmanager
def connector_session(folder: Path, name: str) -> Iterator[Session]:
    """The Spark that its own Kafka connector is published for, and that connector."""
    found = install()
    with _running(str(found.python), found.jars, folder / f"{name}.log", is_tuned=True) as running:
        yield running


@contextmanager
def _running(python: str, jars: str, log: Path, *, is_tuned: bool) -> Iterator[Session]:
    command = [python, "-m", "benchmarks.spark.client", jars, "tuned" if is_tuned else "default"]
    # Users have Spark as it is by itself, and Python keep what it has compiled.
    unwanted = ("PYSPARK", "SPARK", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, cwd=_ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        try:
            yield Session(process, log)
        finally:
            _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    """It ends when its input does."""
    assert process.stdin is not None, "it is a pipe"
    process.stdin.close()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:
        assert process.stdout is not None, "it is a pipe"
        process.stdout.close()
