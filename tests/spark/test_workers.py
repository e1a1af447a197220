"""What a worker keeps from one task to the next."""

import gc
import subprocess
import sys

from penstock.spark import workers
from penstock.spark.workers import keep_memory, pass_over_imports


def test_what_was_imported_is_passed_over_by_the_collector_until_something_else_is() -> None:
    pass_over_imports()
    frozen = gc.get_freeze_count()
    assert frozen > 0
    kept = [[] for _ in range(1000)]  # type: ignore[var-annotated]

    pass_over_imports()
    assert gc.get_freeze_count() < frozen + len(kept), "nothing was imported meanwhile"

    workers._frozen.modules -= 1
    pass_over_imports()
    assert gc.get_freeze_count() >= len(kept)
    gc.unfreeze()


def test_the_collector_has_nothing_to_do_behind_a_task_that_has_loaded_numba() -> None:
    """One `gc.freeze()` when a worker starts is too early: Spark collects behind every task, and what tasks import is
    most of what there is."""
    program = """
import gc
from penstock.protocol.columns import prepare
from penstock.spark.workers import pass_over_imports

prepare("numba")
before = len(gc.get_objects())
pass_over_imports()
print(before, len(gc.get_objects()))
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    before, after = map(int, told.split())

    assert before > 50_000
    assert after < before / 100


def test_memory_is_kept_as_far_as_the_platform_can() -> None:
    keep_memory()
    keep_memory()
    assert keep_memory.cache_info().misses == 1
