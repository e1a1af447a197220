"""`make bench-cluster` measures ten thousand partitions on three brokers."""

import asyncio
import sys
from typing import Final

from benchmarks.cluster import partitions, replicated
from benchmarks.cluster.partitions import Shape
from benchmarks.measure import Step
from benchmarks.report import judge
from benchmarks.suite import Asked, Results, Suite, main
from tools.clients.clients import JAVA
from tools.zookeeper.ensemble import install

SHAPES: Final = {"wide": Shape(10, 1000), "narrow": Shape(2500, 4)}
QUICK: Final = {"wide": Shape(2, 300), "narrow": Shape(150, 4)}
REPLICATED: Final = "replicated"


def run(step: Step, asked: Asked) -> Results:
    step("installing what is missing")
    install()
    asyncio.run(_install_java())
    shapes = QUICK if asked.is_quick else SHAPES
    results = Results()
    for part in asked.parts:
        is_replicated = part == REPLICATED
        results.shown += replicated.run(step, shapes["wide"]) if is_replicated else partitions.run(step, shapes[part])
    if targets := judge(results.shown):
        results.shown.append(targets)
    return results


async def _install_java() -> None:
    await JAVA.install()


SUITE: Final = Suite(name="cluster", about=partitions.__doc__ or "", parts=(*SHAPES, REPLICATED), run=run)

if __name__ == "__main__":
    sys.exit(main(SUITE, sys.argv[1:]))
