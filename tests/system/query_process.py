"""A streaming query in a process of its own, which is started again with its table and its checkpoint."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.system.processes import Patience

PATIENCE_SECONDS: Final = 600.0
"""Of a machine that is busy with other things while a JVM starts."""
TOO_BUSY: Final = "Python worker failed to connect back"
"""What Spark says if Python takes more than ten seconds to start. No setting changes that; the query is started again,
from its checkpoint."""


class QueryProcess:
    """Programs one after the other, all of them `tests/system/spark_query.py` with these options of the source."""

    def __init__(self, folder: Path, **options: str) -> None:
        self._folder = folder
        self._arguments = [json.dumps(options), str(folder / "table"), str(folder / "checkpoint")]
        self._process: subprocess.Popen[bytes] | None = None
        self._step = ("never", "-1")
        self.starts_again = 0

    def start(self, step: str = "never", batch: int | str = -1) -> None:
        self._step = (step, str(batch))
        command = [sys.executable, "-m", "tests.system.spark_query", *self._arguments, *self._step]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def run(self, step: str, batch: int = -1) -> int:
        """The exit code of a program that ends by itself."""
        self.start(step, batch)
        patience = Patience(PATIENCE_SECONDS)
        try:
            while (code := self._ended()) is None and patience.lasts(f"it to end; see {self._folder / 'log'}"):
                pass
        finally:
            self.kill()
        assert code is not None
        return code

    def run_until(self, is_time: Callable[[], bool], what: str) -> None:
        """Let it run until something is the case, and kill it then."""
        self.start()
        patience = Patience(PATIENCE_SECONDS)
        try:
            while not is_time() and patience.lasts(f"{what}; see {self._folder / 'log'}"):
                self.check()
        finally:
            self.kill()

    def check(self) -> None:
        """It runs still. Takes a moment."""
        assert self._ended() is None, f"the query has ended by itself:\n{self.log}"

    def _ended(self) -> int | None:
        """The exit code, if it has ended or does so in a moment."""
        assert self._process is not None
        try:
            code = self._process.wait(0.01)
        except subprocess.TimeoutExpired:
            return None
        if code == 1 and TOO_BUSY in self.log:
            self.starts_again += 1
            self.start(*self._step)
            return None
        return code

    def kill(self) -> None:
        """The driver and its JVM at once. Nothing happens if it has ended already."""
        if self._process is not None and self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def has(self, kind: str, batch: int) -> bool:
        """Whether the checkpoint says so."""
        return (self._folder / "checkpoint" / kind / str(batch)).exists()

    def rows(self) -> list[tuple[int, int, bytes]]:
        """Partition, offset and value of everything that is in the table, in this order."""
        from deltalake import DeltaTable

        path = str(self._folder / "table")
        if not DeltaTable.is_deltatable(path):
            return []
        read = DeltaTable(path).to_pyarrow_table().to_pydict()
        return sorted(zip(read["partition"], read["offset"], read["value"], strict=True))
