"""Keeps the results of a run's rounds, so that one that was interrupted goes on where it was."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tools.chaos.round import Result

ROOT: Final = Path(__file__).parents[2]
# What decides how a round goes.
SOURCES: Final = ("src/penstock/**/*.py", "tools/chaos/**/*.py")

TURN_ROUNDS: Final = 5
"""Of each fault, before it is another system's turn."""


class Progress:
    def __init__(self, path: Path) -> None:
        """What is in the file counts if it is of the code as it is now."""
        self._path = path
        self._code = digest()
        self.results: dict[str, Result] = {}
        try:
            stored = json.loads(path.read_text())
        except (OSError, ValueError):
            return
        if stored["code"] == self._code:
            self.results = {name: Result(**told) for name, told in stored["results"].items()}

    def add(self, result: Result) -> None:
        self.results[result.name] = result
        self._path.parent.mkdir(parents=True, exist_ok=True)
        told = {"code": self._code, "results": {name: asdict(one) for name, one in self.results.items()}}
        unfinished = self._path.with_suffix(".new")
        unfinished.write_text(json.dumps(told, indent=1))
        unfinished.replace(self._path)


def plan(faults: list[str], rounds: int, seed: int) -> dict[str, str]:
    """The names of all rounds, each of which is its seed, and their faults. Every fault has had its turn before one
    has its next, so that an interrupted run has seen something of all."""
    return {f"{seed}-{fault}-{number}": fault for number in range(1, rounds + 1) for fault in faults}


def turns(systems: list[str], rounds: dict[str, str], faults: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Several systems take turns, forwards and backwards, so that all of them meet what else the machine does; one
    alone has all rounds in one."""
    all_rounds = list(rounds.items())
    step = len(all_rounds) if len(systems) == 1 else TURN_ROUNDS * faults
    for first in range(0, len(all_rounds), step):
        forwards = first // step % 2 == 0
        for system in systems if forwards else reversed(systems):
            yield system, dict(all_rounds[first : first + step])


def digest() -> str:
    """Of the code: results of other code say nothing about this one."""
    found = hashlib.sha256()
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]
