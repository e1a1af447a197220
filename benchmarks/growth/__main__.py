"""What becomes of Penstock when there is more: partitions, connections, data; a reader of what is cold; a surge."""

import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.growth import cold, idle, scaling, stored, surge
from benchmarks.measure import Step
from benchmarks.report import judge
from benchmarks.suite import Results, Suite, main

PARTS: Final = {
    "partitions": scaling.grow_partitions,
    "connections": scaling.grow_connections,
    "stored": stored.run,
    "cold": cold.run,
    "surge": surge.run,
    "idle": idle.run,
}


def run(step: Step, names: Sequence[str], is_quick: bool) -> Results:
    results = Results()
    for name in names:
        part = PARTS[name](step, is_quick)
        results.shown += part.shown
        results.panels += part.panels
        results.remarks += part.remarks
    if targets := judge(results.shown):
        results.shown.append(targets)
    return results


SUITE: Final = Suite(name="growth", about=__doc__, parts=tuple(PARTS), run=run)

if __name__ == "__main__":
    sys.exit(main(SUITE, sys.argv[1:]))
