"""Keeps what a run has done so far in a file, so that one that was interrupted goes on where it was."""

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tools.fuzz_frames.worker import BLOCK

ROOT: Final = Path(__file__).parents[2]
# What decides about the bytes of frames and about what becomes of them.
SOURCES: Final = (
    "src/penstock/**/*.py",
    "tools/fuzz_frames/*.py",
    "tests/fixtures/requests/*.bin",
    "tests/fixtures/batches/*.bin",
)
# The number of findings of one kind that are kept with their bytes.
EXAMPLES: Final = 3


@dataclass(slots=True)
class Progress:
    path: Path
    seed: int
    code: str
    done: set[tuple[int, int]] = field(default_factory=set)
    """The blocks that are done: their first frames, and those after their last."""
    frames: int = 0
    checks: int = 0
    sent: Counter[tuple[int, int]] = field(default_factory=Counter)
    reached: Counter[tuple[int, int]] = field(default_factory=Counter)
    lines: set[tuple[str, int]] = field(default_factory=set)
    findings: dict[str, dict[str, Any]] = field(default_factory=dict)
    worst: list[Any] = field(default_factory=lambda: [0.0, -1, ""])
    slowest: list[Any] = field(default_factory=lambda: [0.0, -1, ""])

    @classmethod
    def load(cls, path: Path, seed: int) -> "Progress":
        """What is in the file, if it is of this seed and of the code as it is now."""
        fresh = cls(path, seed, digest())
        try:
            stored = json.loads(path.read_text())
        except (OSError, ValueError):
            return fresh
        if (stored["seed"], stored["code"]) != (seed, fresh.code):
            return fresh
        fresh.done = {(begin, end) for begin, end in stored["done"]}
        fresh.frames, fresh.checks = stored["frames"], stored["checks"]
        fresh.findings = stored["findings"]
        fresh._add_counts(stored)
        return fresh

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        stored = {
            "seed": self.seed,
            "code": self.code,
            "done": sorted(self.done),
            "frames": self.frames,
            "checks": self.checks,
            "sent": [[*kind, count] for kind, count in sorted(self.sent.items())],
            "reached": [[*kind, count] for kind, count in sorted(self.reached.items())],
            "lines": sorted(self.lines),
            "worst": self.worst,
            "slowest": self.slowest,
            "findings": self.findings,
        }
        unfinished = self.path.with_suffix(".new")
        unfinished.write_text(json.dumps(stored))
        unfinished.replace(self.path)

    def missing(self, first: int, frames: int) -> list[tuple[int, int]]:
        """The blocks of this range that are not done. Blocks begin at multiples of their size, whatever the range."""
        begin = first - first % BLOCK
        blocks = [(at, min(at + BLOCK, first + frames)) for at in range(begin, first + frames, BLOCK)]
        return [block for block in blocks if block not in self.done]

    def add(self, outcome: dict[str, Any]) -> None:
        """What a worker reported of a block."""
        self.done.add((outcome["begin"], outcome["end"]))
        self.frames += outcome["frames"]
        self.checks += outcome["checks"]
        self._add_counts(outcome)
        for finding in outcome["findings"]:
            self.add_finding(finding)

    def _add_counts(self, told: dict[str, Any]) -> None:
        for mine, theirs in ((self.sent, told["sent"]), (self.reached, told["reached"])):
            for key, version, count in theirs:
                mine[key, version] += count
        self.lines.update((module, line) for module, line in told["lines"])
        self.worst = max(self.worst, told["worst"])
        self.slowest = max(self.slowest, told["slowest"])

    def add_finding(self, finding: dict[str, Any]) -> None:
        # Numbers aside, the same thing went wrong.
        kind = f"{finding['api']}: " + re.sub(r"\d+", "N", finding["what"])
        known = self.findings.setdefault(kind, {"count": 0, "examples": []})
        known["count"] += 1
        if len(known["examples"]) < EXAMPLES:
            known["examples"].append(finding)


def digest() -> str:
    """Of the code and the corpus: results of other code say nothing about this one."""
    found = hashlib.sha256()
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]
