"""Runs a benchmark that has a command of its own: shows its progress, and puts tables and plots on the screen and into
files."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks.measure import Step
from benchmarks.plots import Bars, Curves, save_plot
from benchmarks.report import Table, save, show
from benchmarks.scratch import RESULTS


@dataclass(slots=True)
class Results:
    """What a run found out; `details` are for the files alone."""

    shown: list[Table] = field(default_factory=list)
    details: list[Table] = field(default_factory=list)
    panels: list[Bars | Curves] = field(default_factory=list)
    # Sentences about what went otherwise.
    remarks: list[str] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class Asked:
    """What is to be run; when `is_quick`, with as little as shows anything."""

    parts: Sequence[str]
    is_quick: bool = False
    # Another revision to be measured too, as git knows it.
    beside: str | None = None
    # The most that is stored.
    gigabytes: int | None = None


@dataclass(slots=True, frozen=True)
class Suite:
    """`parts` can be run alone, by their names."""

    name: str
    about: str
    parts: Sequence[str]
    run: Callable[[Step, Asked], Results]
    # Whether it has the options of growth: another revision, and how much is stored.
    grows: bool = False


def main(suite: Suite, arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{suite.name}", description=suite.about)
    names = ", ".join(suite.parts)
    parser.add_argument("parts", nargs="*", metavar="NAME", help=f"of {names}; when none is named, all")
    parser.add_argument("--quick", action="store_true", help="fewer, shorter rounds: to see that all works")
    if suite.grows:
        parser.add_argument("--beside", metavar="REVISION", help="measure the broker of this revision, too")
        parser.add_argument("--gigabytes", type=int, metavar="GB", help="the most that is stored (default: 20)")
    parsed = parser.parse_args(arguments)
    if unknown := [name for name in parsed.parts if name not in suite.parts]:
        parser.error(f"there is no {unknown[0]!r}; there are {names}")
    # What goes to a file has no width of its own, and 80 columns are too few for these tables.
    console = Console(width=None if sys.stdout.isatty() else 160)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(suite.name, total=None)

        def step(doing: str) -> None:
            progress.update(task, description=f"{suite.name}: {doing}")

        asked = Asked(parsed.parts or suite.parts, parsed.quick)
        if suite.grows:
            asked = replace(asked, beside=parsed.beside, gigabytes=parsed.gigabytes)
        results = suite.run(step, asked)
    remarks = [*(["A quick run, with few and short rounds."] if parsed.quick else []), *results.remarks]
    if remarks:
        first, *others = results.shown
        results.shown = [replace(first, how=" ".join([first.how, *remarks])), *others]
    for table in results.shown:
        show(table, console)
    # What was run alone does not take the place of the whole.
    name = "-".join([suite.name, *parsed.parts])
    if results.panels and not save_plot(RESULTS / f"{name}.png", results.panels):
        console.print("No plot: matplotlib is not installed.")
    save(name, [*results.shown, *results.details], RESULTS)
    console.print(f"Numbers, tables and plots: {RESULTS.relative_to(RESULTS.parent.parent)}/{name}.*")
    return 0
