"""The order of tests on several workers: what takes long comes first, a share for each worker.

With `--dist worksteal` each worker is given as many tests as the others, in their order, and one that has nothing left
takes from the end of another's. So nothing long begins last, what a share sets up is set up by one worker, and what is
taken is short.
"""

from collections.abc import Sequence
from typing import Final

import pytest

LONG: Final = (
    ("tests/clients/", "tests/docs/test_guides.py"),
    (
        "tests/metadata/",
        "tests/spark/",
        "tests/system/test_spark_cluster.py",
        "tests/testing/test_plugin.py",
        "tests/tools/test_demo.py",
    ),
    ("tests/system/", "tests/tools/test_chaos_faults.py", "tests/tools/test_first_hour.py"),
)
"""The shares, of about the same length: tests that have brokers, clients, Spark and ZooKeeper in other processes, and
wait."""


def arrange(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every worker of pytest-xdist has to come to the same order. Without workers it stays as it is."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers > 1:
        items[:] = [items[place] for place in places([item.nodeid for item in items], workers)]


def places(names: Sequence[str], workers: int) -> list[int]:
    """Which test comes first, second and so on, by its place in the usual order."""
    shares: list[list[int]] = [[] for _ in range(workers)]
    short: list[int] = []
    for place, name in enumerate(names):
        number = next((number for number, files in enumerate(LONG) if name.startswith(files)), None)
        (short if number is None else shares[number % workers]).append(place)
    order: list[int] = []
    for number, share in enumerate(shares):
        # As many as the worker is given: its part of what those before it have left.
        count = max(0, (len(names) - len(order)) // (workers - number) - len(share))
        order += share + short[:count]
        del short[:count]
    return order + short
