"""The table of tasks: under their names, with jobs and results that can travel."""

from dataclasses import is_dataclass

import msgspec

from penstock.broker.helper.process import TASKS_MODULE
from penstock.broker.helper.tasks import CHECK, CLEAN, TASKS, CheckingJob
from penstock.protocol.record_checks import Findings
from penstock.storage.compaction.clean import CleanedSegment, CleaningDone, CleaningJob, Source

SOURCES = (Source(0, 10, 1000), Source(10, 12, 200))


def test_tasks_are_found_by_their_names_where_the_helper_looks_for_them() -> None:
    assert CLEAN.run.__module__ == "penstock.storage.compaction.clean"
    assert TASKS == {"clean": CLEAN, "check": CHECK}
    assert TASKS_MODULE == "penstock.broker.helper.tasks"


def test_jobs_and_results_are_the_same_at_the_other_end() -> None:
    job = CleaningJob("/data", (SOURCES,), 0, 12, 0, 0, 3, 4096, 100)
    cleaned = CleanedSegment(0, 12, 500, SOURCES, 3)
    done = CleaningDone(12, -1, 3, 1200, 500, 40, 10, 10, 0.25)
    for value in (job, cleaned, done):
        assert is_dataclass(value)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value)) == value
    assert (CLEAN.job, CLEAN.results) == (type(job), (type(cleaned), type(done)))
    checking, found = CheckingJob(b"batch"), Findings("damaged", 3, [1], 1)
    for plain in (checking, found):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(plain), type=type(plain)) == plain
    assert (CHECK.job, CHECK.results) == (CheckingJob, (Findings,))
