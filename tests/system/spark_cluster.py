"""A standalone Spark cluster on loopback, a process each for the master, the workers and their executors."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final, Self

from penstock.spark.java import ensure_java

PATIENCE_SECONDS: Final = 120.0

_MASTER: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = re.compile(r"Successfully registered with master (\S+)")
# The first compiler alone: these processes live for a minute.
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


class SparkCluster:
    """One master and two workers with a core each, from the programs that pyspark has."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._count = workers
        self._programs: list[_Program] = []
        self.master = ""

    def __enter__(self) -> Self:
        try:
            master = self._start("master.Master", "--port", "0")
            self.master = master.wait_for(_MASTER)
            folders = [str(self._folder / f"worker-{number}") for number in range(self._count)]
            limits = ("--cores", "1", "--memory", "1g")
            workers = [self._start("worker.Worker", *limits, "--work-dir", each, self.master) for each in folders]
            for each in workers:
                each.wait_for(_REGISTERED)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        while self._programs:
            self._programs.pop().stop()

    def executors(self) -> list[int]:
        """The process ids of those that run."""
        parents = {each.pid for each in self._programs[1:]}
        found = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
        return [pid for pid in found if _parent(pid) in parents and is_executor(pid)]

    def _start(self, name: str, *options: str) -> "_Program":
        made = _Program(f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--webui-port", "0", *options)
        self._programs.append(made)
        return made


class _Program:
    def __init__(self, name: str, *options: str) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        environment = os.environ | {
            "JAVA_HOME": str(ensure_java()),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{JAVA_OPTIONS} -Dspark.master.rest.enabled=false",
            "PYSPARK_PYTHON": sys.executable,
        }
        self._name = name
        self._process = subprocess.Popen(
            [home / "bin" / "spark-class", name, *options],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: list[str] = []
        self._has_more = threading.Condition()
        self._is_over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, pattern: re.Pattern[str]) -> str:
        """What a line of its log says that matches."""

        def found() -> re.Match[str] | None:
            return next(filter(None, map(pattern.search, self._lines)), None)

        with self._has_more:
            self._has_more.wait_for(lambda: found() or self._is_over, PATIENCE_SECONDS)
            match = found()
        assert match is not None, f"{self._name} does not say {pattern.pattern}:\n{''.join(self._lines)}"
        return match[1]

    def stop(self) -> None:
        """A worker ends its executors before it ends itself."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._has_more:
                self._lines.append(line)
                self._has_more.notify_all()
        with self._has_more:
            self._is_over = True
            self._has_more.notify_all()


def kill_own_executor() -> None:
    """For tasks: the executor that runs them dies at once. Their process was forked by one that it has started."""
    executor = _parent(_parent(os.getpid()))
    assert is_executor(executor), "not in a task of a cluster"
    os.kill(executor, signal.SIGKILL)


def is_executor(pid: int) -> bool:
    try:
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _parent(pid: int) -> int:
    """0 if it is gone."""
    try:
        # Behind the name in brackets, which may have blanks: the state, and the parent.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
