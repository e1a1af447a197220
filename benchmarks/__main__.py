"""Measures Penstock, alone and beside the least that a C program needs, and says which targets are met.

Every number is a median over rounds in which the cases take turns. Watch CPU time and ratios: wall time moves with
other users of the machine.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks import (
    append,
    codec,
    columns,
    commits,
    compaction,
    flush,
    footprint,
    latency,
    lookup,
    rdkafka,
    recovery,
    sdk,
    tuning,
    validation,
    wire,
)
from benchmarks.measure import Step
from benchmarks.report import Table, judge, save, show
from benchmarks.scratch import RESULTS

BENCHMARKS = {
    "wire": wire,
    "latency": latency,
    "footprint": footprint,
    "rdkafka": rdkafka,
    "commits": commits,
    "compaction": compaction,
    "sdk": sdk,
    "codec": codec,
    "columns": columns,
    "append": append,
    "flush": flush,
    "lookup": lookup,
    "recovery": recovery,
    "validation": validation,
}


# It takes as long as all the others together, so it runs only when it is named.
ON_REQUEST = {"tuning": tuning}


def main(arguments: Sequence[str]) -> int:
    names = _parse(arguments)
    # What goes to a file has no width of its own, and 80 columns are too few for these tables.
    console = Console(width=None if sys.stdout.isatty() else 160)
    tables: list[Table] = []
    for name in names:
        benchmark = (BENCHMARKS | ON_REQUEST)[name]
        made = _with_progress(name, benchmark.run, console)
        for table in made:
            show(table, console)
        tables += made
        if draw := getattr(benchmark, "draw", None):
            drawn: bool = draw(made, RESULTS / f"{name}.png")
            console.print("" if drawn else "No plot: matplotlib is not installed.")
        save(name, made, RESULTS)
    if targets := judge(tables):
        show(targets, console)
    console.print(f"Numbers, tables and plots: {RESULTS.relative_to(RESULTS.parent.parent)}")
    return 0


def _parse(arguments: Sequence[str]) -> list[str]:
    about = "\n".join(f"  {name:10} {module.__doc__}" for name, module in (BENCHMARKS | ON_REQUEST).items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=f"benchmarks:\n{about}\n\nexample: python -m benchmarks wire latency",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="which to run, one or several; when none is named, all"
    )
    names: list[str] = parser.parse_args(arguments).names
    if unknown := [name for name in names if name not in BENCHMARKS | ON_REQUEST]:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS | ON_REQUEST)}")
    return names or list(BENCHMARKS)


def _with_progress(name: str, run: Callable[[Step], list[Table]], console: Console) -> list[Table]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(name, total=None)
        return run(lambda doing: progress.update(task, description=f"{name}: {doing}"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
