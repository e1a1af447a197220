"""Fetches Spark's own Kafka connector, unmodified: its jars from Maven, and Spark 4.2, for which it is published, into
an environment of its own in `.cache`."""

import asyncio
import fcntl
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.clients.packages import CACHE, ROOT, install_commands, install_jars

VERSION: Final = "4.2.0"
HERE: Final = Path(__file__).parent


@dataclass(slots=True, frozen=True)
class Connector:
    python: Path
    """Of the environment that has Spark, and this project with what it needs for Spark."""
    jars: str
    """For `spark.jars`."""


def install() -> Connector:
    """Fetch what is not there yet."""
    asyncio.run(_install_jars())
    jars = ",".join(sorted(str(each) for each in (CACHE / HERE.name).glob("*.jar")))
    return Connector(_install_python(), jars)


async def _install_jars() -> None:
    await install_commands("java", "mvn")
    await install_jars(HERE)


def _install_python() -> Path:
    folder = ROOT / ".cache" / f"spark-{VERSION}"
    python, done = folder / "bin" / "python", folder / "installed"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Written last, so that an interrupted installation is done again.
        if done.is_file():
            return python
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
        # Not the extra `spark`, which asks for a later version.
        packages = [f"pyspark=={VERSION}", "--editable", f"{ROOT}[numba]"]
        subprocess.run([*uv, *packages], check=True)
        done.touch()
    return python
