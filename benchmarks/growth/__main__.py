"""Measures what becomes of Penstock with more partitions, connections and data, with a reader of cold data, and in a
surge."""

import sys
from typing import Final

from benchmarks.growth import cold, idle, scaling, stored, surge
from benchmarks.measure import Step
from benchmarks.report import judge
from benchmarks.suite import Asked, Results, Suite, main

PARTS: Final = {
    "partitions": scaling.grow_partitions,
    "connections": scaling.grow_connections,
    "stored": stored.run,
    "cold": cold.run,
    "surge": surge.run,
    "idle": idle.run,
}


def run(step: Step, asked: Asked) -> Results:
    results = Results()
    for name in asked.parts:
        part = PARTS[name](step, asked)
        results.shown += part.shown
        results.panels += part.panels
        results.remarks += part.remarks
    if targets := judge(results.shown):
        results.shown.append(targets)
    return results


SUITE: Final = Suite(name="growth", about=__doc__, parts=tuple(PARTS), run=run, grows=True)

if __name__ == "__main__":
    sys.exit(main(SUITE, sys.argv[1:]))
