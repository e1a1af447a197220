"""Keeps the terminal of a pipeline to what the command says: Spark logs only errors, a line each, and what Java and
PySpark print at every start is left out."""

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
MAX_BLOCK_LINES: Final = 200
"""Limits the lines of a traceback that are held back until it is known which error it ends with."""


def has_own_logging(conf: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Whether the user has said how Spark is to log; then all of it is shown."""
    given = [conf.get("spark.driver.extraJavaOptions", ""), environment.get("SPARK_SUBMIT_OPTS", "")]
    folders = [environment.get("SPARK_CONF_DIR", ""), os.path.join(environment.get("SPARK_HOME", ""), "conf")]
    return (
        "spark.log.level" in conf
        or any("log4j" in each for each in given)
        or any(os.path.isfile(os.path.join(each, "log4j2.properties")) for each in folders if each)
    )


class Quieted:
    """Leaves out of the lines of a JVM and its Python workers what is printed at every start.

    1. Java names the incubator module that Spark asks for.
    2. A worker that has planned a read writes a last word to a JVM that does not wait for it. PySpark prints that as a
       traceback of its daemon which ends with BrokenPipeError.
    """

    def __init__(self) -> None:
        self._block: list[str] = []

    def feed(self, line: str) -> list[str]:
        """The lines to show now. A traceback is held back until it ends."""
        if line.startswith(_TRACEBACK):
            held, self._block = self._block, [line]
            return held
        if self._block:
            self._block.append(line)
            is_inside = line.startswith((" ", "\t"))
            if is_inside and len(self._block) < MAX_BLOCK_LINES:
                return []
            held = self.finish()
            is_harmless = line.startswith("BrokenPipeError") and any(_DAEMON.search(each) for each in held)
            return [] if is_harmless else held
        return [] if line.startswith(_INCUBATOR) else [line]

    def finish(self) -> list[str]:
        """The lines that are held back."""
        held, self._block = self._block, []
        return held


@contextmanager
def quiet_start(conf: Mapping[str, str]) -> Iterator[None]:
    """A JVM that is started within the block logs by our settings, and what it prints on standard error comes through
    `Quieted`, for as long as it runs. What the user has set for Spark's log wins over that."""
    if has_own_logging(conf, os.environ):
        yield
        return
    before = os.environ.get("SPARK_SUBMIT_OPTS")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{before or ''} -Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}".strip()
    stderr = os.dup(2)
    read_end, write_end = os.pipe()
    pump = threading.Thread(target=_pump, args=(read_end, os.dup(2)), name="penstock-quiet", daemon=True)
    os.dup2(write_end, 2)
    os.close(write_end)
    pump.start()
    is_started = False
    try:
        yield
        is_started = True
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        if before is None:
            del os.environ["SPARK_SUBMIT_OPTS"]
        else:
            os.environ["SPARK_SUBMIT_OPTS"] = before
        if not is_started:
            # A JVM that did not start has said why, and that comes before the command's own error.
            pump.join(_FAREWELL_SECONDS)


_TRACEBACK: Final = "Traceback (most recent call last):"
_INCUBATOR: Final = "WARNING: Using incubator modules"
_DAEMON: Final = re.compile(r"pyspark[/\\]daemon\.py")
_FAREWELL_SECONDS: Final = 1.0


def _pump(read_end: int, write_end: int) -> None:
    """Hand lines on until the last process that writes them has ended."""
    quieted = Quieted()
    with os.fdopen(read_end, encoding="utf-8", errors="replace") as lines, os.fdopen(write_end, "w") as stderr:
        for line in lines:
            stderr.writelines(quieted.feed(line))
            stderr.flush()
        stderr.writelines(quieted.finish())
