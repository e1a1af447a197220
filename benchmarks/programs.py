"""Compiles the benchmarks' C programs when they are first used or have changed, and runs them."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

from benchmarks.cores import on_cores
from benchmarks.scratch import CACHE

_FOLDER: Final = Path(__file__).parent / "native"
_SOURCES: Final = {
    "load": (
        *("load.c", "connection.c", "requests.c", "produce.c", "fetch.c", "e2e.c", "seek.c", "crc32c.c"),
        *("peer.c", "peer_modes.c", "peer_e2e.c", "redis.c", "nats.c", "rabbitmq.c"),
    ),
    "floor": ("floor.c", "floor_apis.c", "floor_log.c", "crc32c.c"),
    "loopback": ("loopback.c",),
}
_LIBRARIES: Final = {"syncs": ("syncs.c",)}
_FLAGS: Final = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-pthread")


class ProgramError(Exception):
    """A program did not compile, or did not do what it was asked for."""


def load(
    mode: str, *, port: int, topics: Iterable[str], cores: tuple[int, ...] = (), **options: object
) -> dict[str, Any]:
    """Run the load generator and return what it measured. Options are those of the program, with underscores: True
    for one without a value, None or False for one that is left out."""
    command = [str(program("load")), mode, "--port", str(port)]
    for topic in topics:
        command += ["--topic", topic]
    for name, value in options.items():
        if value is not None and value is not False:
            command.append(f"--{name.replace('_', '-')}")
            command += [] if value is True else [str(value)]
    result = run(command, cores)
    if result["errors"]:
        raise ProgramError(f"{result['errors']} requests failed, the first one with error {result['first_error']}")
    return result


def run(command: list[str], cores: tuple[int, ...] = ()) -> dict[str, Any]:
    """Run a program that prints one JSON object."""
    done = subprocess.run(on_cores(command, cores), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip()[-2000:] or f"it ended with {done.returncode} and said nothing"
        raise ProgramError(f"{Path(command[0]).name} failed: {said}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@cache
def program(name: str) -> Path:
    """Where the program is; compiled if it is older than its sources, which is looked at once: a run stays with what
    it began with."""
    return _built(name, _SOURCES[name])


@cache
def library(name: str) -> Path:
    """Likewise a library, for LD_PRELOAD."""
    return _built(f"{name}.so", _LIBRARIES[name], "-shared", "-fPIC")


def _built(name: str, files: Iterable[str], *flags: str) -> Path:
    built = CACHE / "native" / name
    sources = [_FOLDER / source for source in files]
    newest = max(path.stat().st_mtime_ns for path in (*sources, *_FOLDER.glob("*.h")))
    if not built.exists() or built.stat().st_mtime_ns < newest:
        _compile(sources, built, flags)
    return built


def _compile(sources: list[Path], built: Path, flags: Iterable[str]) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise ProgramError("there is no C compiler: install gcc, or name one in CC")
    built.parent.mkdir(parents=True, exist_ok=True)
    # Another run may use the old one meanwhile, or compile it too.
    fresh = built.with_name(f"{built.name}.{os.getpid()}")
    command = [compiler, *_FLAGS, *flags, "-o", str(fresh), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProgramError(f"{built.name} does not compile:\n{done.stderr}")
    fresh.replace(built)
