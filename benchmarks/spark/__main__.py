"""Measures the pipeline on Spark beside Spark's own Kafka connector, Parquet reader and writer, and rate source."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.measure import Step
from benchmarks.plots import Bars
from benchmarks.report import Table, judge
from benchmarks.scratch import scratch_folder
from benchmarks.spark import archiving, micro_batches, reading
from benchmarks.spark.sessions import connector_session, session
from benchmarks.spark.topics import SIZE, filled
from benchmarks.suite import Asked, Results, Suite, main

PARTS: Final = ("reading", "archiving", "batches")
ROWS, ROUNDS, BATCHES = 2_000_000, 5, 50
QUICK_ROWS, QUICK_ROUNDS, QUICK_BATCHES = 200_000, 1, 20


def run(step: Step, asked: Asked) -> Results:
    parts = asked.parts
    rows, rounds, batches = (QUICK_ROWS, QUICK_ROUNDS, QUICK_BATCHES) if asked.is_quick else (ROWS, ROUNDS, BATCHES)
    results = Results()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(scratch_folder(warm_bytes=4 * rows * SIZE)))
        step(f"sending {rows:,} rows")
        sent = stack.enter_context(filled(folder, rows))
        step("starting Spark")
        ours = stack.enter_context(session(folder, "own"))
        theirs = stack.enter_context(connector_session(folder, "connector"))
        if "reading" in parts:
            _add(results, *reading.measure(sent, folder, ours, theirs, rounds=rounds, step=step))
        if "archiving" in parts:
            _add(results, *archiving.measure(sent, folder, ours, rounds=rounds, step=step))
        if "batches" in parts:
            plain = stack.enter_context(session(folder, "plain", is_tuned=False))
            sparks = micro_batches.Sparks(ours, plain, theirs)
            _add(results, *micro_batches.measure(sent, folder, sparks, rounds=rounds, batches=batches, step=step))
    if targets := judge(results.shown):
        results.shown.append(targets)
    return results


def _add(results: Results, table: Table, bars: Bars) -> None:
    results.shown.append(table)
    results.panels.append(bars)


SUITE: Final = Suite(name="spark", about=__doc__, parts=PARTS, run=run)

if __name__ == "__main__":
    sys.exit(main(SUITE, sys.argv[1:]))
