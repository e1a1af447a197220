"""The benchmark of clusters: what it counts, and what it reads out of metrics."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from benchmarks.cluster.asking import Watcher
from benchmarks.cluster.metrics import Metrics
from benchmarks.cluster.syncs import SyncCounter, Syncs
from penstock.client import sync
from penstock.testing import Broker

SYNCING = """
import ctypes, os, signal, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.fsync(fd)
os.fdatasync(fd)
ctypes.CDLL(None).syncfs(fd)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_syncs_are_counted_though_their_process_was_killed(tmp_path: Path) -> None:
    counter = SyncCounter(tmp_path / "syncs")
    before = counter.read()
    for _ in range(2):
        command = [sys.executable, "-c", SYNCING, str(tmp_path / "file")]
        done = subprocess.run(command, env={**os.environ, **counter.environment}, check=False)
        assert done.returncode == -signal.SIGKILL
    assert counter.read().since(before) == Syncs(files=4, file_systems=2)


def lag(counts: list[int], recent: float) -> Metrics:
    """Metrics of a loop with so many timers late by up to 0.01, 0.1 and 1 s, and later."""
    bounds = ["0.01", "0.1", "1.0", "+Inf"]
    values = {
        f'penstock_event_loop_lag_seconds_bucket{{le="{bound}"}}': float(sum(counts[: place + 1]))
        for place, bound in enumerate(bounds)
    }
    return Metrics({**values, "penstock_event_loop_lag_recent_max_seconds": recent})


def test_the_longest_turn_is_that_since_the_last_reading() -> None:
    before = lag([5, 1, 1, 0], 0.7)
    assert lag([9, 1, 1, 0], 0.7).longest_turn_seconds(before) == 0.01
    assert lag([9, 2, 1, 0], 0.7).longest_turn_seconds(before) == 0.1
    assert lag([9, 2, 2, 0], 0.7).longest_turn_seconds(before) == 0.7
    assert lag([9, 2, 2, 1], 3.5).longest_turn_seconds(before) == 3.5
    assert lag([9, 0, 0, 0], 0.004).longest_turn_seconds(None) == 0.004


def test_a_counter_of_a_broker_that_was_started_meanwhile_began_at_zero() -> None:
    assert Metrics({"a": 5.0}).since(Metrics({"a": 3.0}), "a") == 2.0
    assert Metrics({"a": 5.0}).since(None, "a") == 5.0


def test_a_watcher_sees_each_change_of_the_partitions() -> None:
    with Broker() as broker:
        watcher = Watcher(broker.address[1])
        try:
            assert watcher.ask().leaders == Counter()
            with sync.Admin("{}:{}".format(*broker.address)) as admin:
                admin.create_topic("orders", partitions=3)
            found = watcher.ask()
            assert (found.led, found.whole, found.leaders) == (3, 3, Counter({0: 3}))
            assert watcher.ask() is found
        finally:
            watcher.close()
