"""Run schedules full of faults: `python -m tools.simulate replication --seeds 1:1000000 --processes 2`.

Without a name all kinds of simulation are run. A run that was interrupted goes on where it was, as long as the code has
not changed. `--replay SEED` prints what happens in one schedule. The exit status is 1 if a schedule has broken a rule,
or if a state was never reached.
"""

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from tools.simulate.kinds import KINDS, Kind
from tools.simulate.progress import Progress

PROGRESS: Final = Path(".cache/simulate")
RESULTS: Final = Path("benchmarks/results")
SAVE_SECONDS: Final = 2.0


def main() -> int:
    options = parse_options()
    kinds = [KINDS[name] for name in options.kinds or KINDS]
    if options.replay is not None:
        return replay(kinds[0], options.replay)
    console = Console(highlight=False)
    return max(simulate(kind, options, console) for kind in kinds)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools.simulate", description=__doc__.partition("\n")[0])
    parser.add_argument("kinds", nargs="*", metavar="kind", help=f"{', '.join(KINDS)} (default: all)")
    parser.add_argument("--seeds", type=seed_range, help="first:last, as in 1:20000 (default: those of the kind)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--progress", type=Path, default=PROGRESS, help="where it is kept what is done")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the results go, as .json and .md")
    parser.add_argument("--replay", type=int, metavar="SEED", help="print what happens in this schedule")
    options = parser.parse_args()
    if unknown := [name for name in options.kinds if name not in KINDS]:
        parser.error(f"there is no simulation of {', '.join(unknown)}; there is one of {', '.join(KINDS)}")
    if options.replay is not None and len(options.kinds) != 1:
        parser.error("name the kind of simulation whose schedule is to be replayed")
    return options


def seed_range(text: str) -> tuple[int, int]:
    first, _, last = text.partition(":")
    if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise argparse.ArgumentTypeError(f"seeds are given as first:last, as in 1:20000, and not as {text!r}")
    return int(first), int(last)


def simulate(kind: Kind, options: argparse.Namespace, console: Console) -> int:
    """Run what is left of the seeds, and report."""
    first, last = options.seeds or kind.seeds
    progress = Progress.load(options.progress / f"{kind.name}.json", kind.sources)
    if progress.schedules:
        console.print(f"{kind.name}: {progress.schedules:,} schedules are done already")
    try:
        run(kind, progress, progress.missing(first, last, kind.block), options.processes, console)
    except KeyboardInterrupt:
        console.print("interrupted: the next run goes on from here")
        return 130
    finally:
        progress.save()
    return report(kind, progress, console, options.results)


def run(kind: Kind, progress: Progress, blocks: list[tuple[int, int]], processes: int, console: Console) -> None:
    columns = (
        TextColumn(f"schedules of {kind.name}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[failed]} failed"),
    )
    saved = time.monotonic()
    with Bar(*columns, console=console) as bar, ProcessPoolExecutor(processes) as pool:
        total = sum(last - first + 1 for first, last in blocks)
        task = bar.add_task("schedules", total=total, failed=len(progress.failed))
        try:
            futures = {pool.submit(run_block, kind.name, block): block for block in blocks}
            for future in as_completed(futures):
                counts = future.result()
                progress.add(futures[future], counts)
                bar.update(task, advance=counts["schedules"], failed=len(progress.failed))
                if time.monotonic() - saved > SAVE_SECONDS:
                    progress.save()
                    saved = time.monotonic()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def run_block(name: str, block: tuple[int, int]) -> dict[str, Any]:
    """In a process of the pool."""
    kind = KINDS[name]
    counted = Progress(Path(), "")
    began = time.process_time()
    for seed in range(block[0], block[1] + 1):
        outcome = kind.simulate(seed)
        counted.schedules += 1
        counted.steps += outcome.steps
        counted.entries += outcome.entries
        counted.simulated_seconds += outcome.seconds
        counted.states += outcome.states
        if outcome.problems:
            counted.failed[seed] = outcome.problems[0]
    counted.cpu_seconds = time.process_time() - began
    return counted.counts()


def report(kind: Kind, progress: Progress, console: Console, folder: Path) -> int:
    # With fewer schedules it may be chance that a state was not reached.
    has_enough = progress.schedules >= kind.enough
    missed = [state for state in kind.states if not progress.states[state]] if has_enough else []
    text = summary(kind, progress)
    console.print(text, markup=False)
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / f"simulation-{kind.name}"
    results.with_suffix(".json").write_text(json.dumps(progress.counts(), indent=1) + "\n")
    results.with_suffix(".md").write_text(text)
    for state in missed:
        console.print(f"never reached: {state}", style="red", markup=False)
    for seed, problem in sorted(progress.failed.items()):
        console.print(f"seed {seed}: {problem[:300]}", style="red", markup=False)
    if progress.failed:
        console.print(f"see what happened: .venv/bin/python -m tools.simulate {kind.name} --replay SEED")
    return 1 if missed or progress.failed else 0


def summary(kind: Kind, progress: Progress) -> str:
    a_minute = progress.schedules / max(progress.cpu_seconds, 0.001) * 60
    course = (
        f"{progress.schedules:,} schedules, {len(progress.failed)} of which broke a rule; {a_minute:,.0f} a minute of "
        f"one core. {progress.steps:,} steps"
    )
    if progress.simulated_seconds:
        course += f" in {progress.simulated_seconds / 3600:,.0f} hours of simulated time"
    if progress.entries:
        course += f" wrote {progress.entries:,} entries of the metadata log"
    course += "."
    states = [f"| {state} | {progress.states[state]:,} |" for state in kind.states]
    lines = [f"# simulation: {kind.name}", "", course, "", "| state | times reached |", "| --- | ---: |", *states]
    return "\n".join(lines) + "\n"


def replay(kind: Kind, seed: int) -> int:
    outcome = kind.simulate(seed, told=True)
    print("\n".join(outcome.transcript))
    print(f"{outcome.steps} steps, {outcome.entries} entries, schedule {outcome.digest}")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
