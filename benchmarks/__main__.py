"""Measures Penstock's codec and log, and says which targets are met.

Every number is a median over rounds in which the cases take turns. Watch CPU time and ratios: wall time moves with
whoever else uses the machine.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks import append, codec, flush, lookup, recovery
from benchmarks.measure import Step
from benchmarks.report import Table, save, show
from benchmarks.scratch import RESULTS

BENCHMARKS = {
    "codec": codec,
    "append": append,
    "flush": flush,
    "lookup": lookup,
    "recovery": recovery,
}


def main(arguments: Sequence[str]) -> int:
    names = _parse(arguments)
    # What goes to a file has no width of its own, and 80 columns are too few for these tables.
    console = Console(width=None if sys.stdout.isatty() else 120)
    tables: list[Table] = []
    for name in names:
        made = _with_progress(name, BENCHMARKS[name].run, console)
        for table in made:
            show(table, console)
        tables += made
    judged = [row.is_met for table in tables for row in table.rows if row.targets]
    if judged:
        console.print(f"{sum(map(bool, judged))} of {len(judged)} targets met.")
    path = save(tables, RESULTS)
    console.print(f"Results as JSON: {path.relative_to(RESULTS.parent.parent)}")
    return 0


def _parse(arguments: Sequence[str]) -> list[str]:
    about = "\n".join(f"  {name:9} {module.__doc__}" for name, module in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=f"benchmarks:\n{about}\n\nexample: python -m benchmarks codec append",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which to run, one or several; all when none is named")
    names: list[str] = parser.parse_args(arguments).names
    if unknown := [name for name in names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    return names or list(BENCHMARKS)


def _with_progress(name: str, run: Callable[[Step], list[Table]], console: Console) -> list[Table]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(name, total=None)
        return run(lambda doing: progress.update(task, description=f"{name}: {doing}"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
