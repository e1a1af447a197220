"""Keeps what a run of many schedules has done so far, so that one that was interrupted goes on where it was."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
# The number of schedules with a problem that are kept.
MAX_FAILED: Final = 50


@dataclass(slots=True)
class Progress:
    path: Path
    code: str
    done: set[tuple[int, int]] = field(default_factory=set)
    """The blocks that are done: their first and their last seeds."""
    schedules: int = 0
    steps: int = 0
    entries: int = 0
    simulated_seconds: float = 0.0
    cpu_seconds: float = 0.0
    states: Counter[str] = field(default_factory=Counter)
    failed: dict[int, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path, sources: Sequence[str]) -> "Progress":
        """What is in the file, if it is of the code as it is now."""
        fresh = cls(path, digest(sources))
        try:
            stored = json.loads(path.read_text())
        except (OSError, ValueError):
            return fresh
        if stored["code"] == fresh.code:
            fresh.done = {(first, last) for first, last in stored["done"]}
            fresh._add(stored)
        return fresh

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        stored = {"code": self.code, "done": sorted(self.done), **self.counts()}
        unfinished = self.path.with_suffix(".new")
        unfinished.write_text(json.dumps(stored))
        unfinished.replace(self.path)

    def counts(self) -> dict[str, Any]:
        return {
            "schedules": self.schedules,
            "steps": self.steps,
            "entries": self.entries,
            "simulated_seconds": round(self.simulated_seconds),
            "cpu_seconds": round(self.cpu_seconds, 1),
            "states": dict(sorted(self.states.items())),
            "failed": {str(seed): problem for seed, problem in sorted(self.failed.items())},
        }

    def missing(self, first: int, last: int, size: int) -> list[tuple[int, int]]:
        """The blocks of this range that are not done."""
        blocks = [(at, min(at + size - 1, last)) for at in range(first, last + 1, size)]
        return [block for block in blocks if block not in self.done]

    def add(self, block: tuple[int, int], counts: dict[str, Any]) -> None:
        self.done.add(block)
        self._add(counts)

    def _add(self, counts: dict[str, Any]) -> None:
        self.schedules += counts["schedules"]
        self.steps += counts["steps"]
        self.entries += counts["entries"]
        self.simulated_seconds += counts["simulated_seconds"]
        self.cpu_seconds += counts["cpu_seconds"]
        self.states.update(counts["states"])
        for seed, problem in counts["failed"].items():
            if len(self.failed) < MAX_FAILED:
                self.failed[int(seed)] = problem


def digest(sources: Sequence[str]) -> str:
    """Of the code: results of other code say nothing about this one."""
    found = hashlib.sha256()
    for pattern in sources:
        for path in sorted(ROOT.glob(pattern)):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]
