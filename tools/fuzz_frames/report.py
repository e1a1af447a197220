"""Prints what a run reports in the end: which handlers were reached, what was measured, what was found."""

import json
from collections import Counter
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from penstock.broker.handlers import ROUTERS
from penstock.broker.router import route_table
from tools.fuzz_frames.coverage import all_lines
from tools.fuzz_frames.progress import Progress


def report(progress: Progress, console: Console, findings: Path) -> None:
    routes = route_table(ROUTERS)
    table = Table("API", "versions", "frames", "reached its handler", "versions reached", box=SIMPLE, title="Handlers")
    for key, route in routes.items():
        versions = range(route.versions.first, route.versions.last + 1)
        sent = sum(progress.sent[key, version] for version in versions)
        reached = sum(progress.reached[key, version] for version in versions)
        known = sum(progress.reached[key, version] > 0 for version in versions)
        table.add_row(
            route.api.name,
            f"{versions[0]} to {versions[-1]}",
            f"{sent:,}",
            f"{reached:,}",
            f"{known} of {len(versions)}",
        )
    console.print(table)
    seen: Counter[str] = Counter(module for module, _ in progress.lines)
    lines = Table("module of broker/handlers", "lines reached", "of", "not reached", box=SIMPLE)
    for module, there in all_lines().items():
        missed = sorted(there - {line for name, line in progress.lines if name == module})
        lines.add_row(module, str(seen[module]), str(len(there)), _ranges(missed))
    console.print(lines)
    console.print(f"{progress.frames:,} frames; the honest client was asked {progress.checks:,} times")
    share, number, told = progress.worst
    console.print(f"most memory for what is allowed: {share:.0%}, frame {number}: {told} bytes")
    seconds, number, told = progress.slowest
    console.print(f"longest: {seconds:.2f} s, frame {number}: {told}")
    _write_findings(progress, console, findings)


def _write_findings(progress: Progress, console: Console, path: Path) -> None:
    if not progress.findings:
        path.unlink(missing_ok=True)
        console.print("nothing found")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"seed": progress.seed, "findings": progress.findings}, indent=1))
    console.print(f"{len(progress.findings)} findings, with their bytes in {path}:", style="red")
    for kind, found in sorted(progress.findings.items(), key=lambda item: -item[1]["count"]):
        first = found["examples"][0]
        console.print(f"{found['count']} × {kind[:300]}", markup=False)
        console.print(f"    --seed {progress.seed} --replay {first['number']}: {first['what'][:300]}", markup=False)


def _ranges(numbers: list[int]) -> str:
    """As in 3-5 7."""
    told: list[list[int]] = []
    for number in numbers:
        if told and number == told[-1][1] + 1:
            told[-1][1] = number
        else:
            told.append([number, number])
    return " ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in told)
