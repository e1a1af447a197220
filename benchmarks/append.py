"""Measures MB/s and CPU of Log.append against a bare os.write loop (batches of 1 MB, 100 KB, 16 KB)."""

import os
import time
from collections.abc import Callable, Iterator
from itertools import count

from benchmarks.batches import GB, KB, MB, make_batch
from benchmarks.measure import Case, Step, Stopwatch, Timing, take_turns
from benchmarks.report import Row, Table, Target
from benchmarks.scratch import scratch_folder
from penstock.protocol.batch import split, verify
from penstock.storage.data_directory import DataDirectory
from penstock.storage.files import RealFiles
from penstock.storage.log.log import Log

SIZES = {"1 MB": MB, "100 KB": 100 * KB, "16 KB": 16 * KB}
TOTAL = 64 * MB
ROUNDS = 11
_WRITE, _ALONE, _APPEND, _CHECKED = "os.write", "append", "split, append", "split, verify, append"
_TARGETS = (Target("MB/s ratio", 0.85, at_most=False), Target("CPU ratio", 0.85, at_most=False))


def run(step: Step) -> list[Table]:
    rows = []
    # At most one file of this size exists at a time; the second one is for the kernel, which frees late.
    with scratch_folder(warm_bytes=2 * TOTAL) as folder:
        directory = DataDirectory(f"{folder}/logs", RealFiles())
        partitions = count()
        for name, size in SIZES.items():
            batch = memoryview(make_batch(size))
            cases: dict[str, Case] = {
                f"{name}: {_WRITE}": _writing(f"{folder}/file", batch),
                f"{name}: {_ALONE}": _appending(directory, partitions, batch, _append_alone),
                f"{name}: {_APPEND}": _appending(directory, partitions, batch, _append),
                f"{name}: {_CHECKED}": _appending(directory, partitions, batch, _verify_and_append),
            }
            write, alone, append, checked = take_turns(cases, rounds=ROUNDS, step=step).values()
            rows += [
                Row(_values(name, _WRITE, write, write)),
                Row(_values(name, _ALONE, alone, write)),
                Row(_values(name, _APPEND, append, write), _TARGETS if size >= 100 * KB else ()),
                Row(_values(name, _CHECKED, checked, write)),
            ]
        directory.close()
    how = (
        "Into the page cache, without flushing; ratios are to os.write, above 1 is better. A broker splits what it "
        "received into batches, which the target includes, and verifies their checksums, which it does not."
    )
    return [Table("Appending", how, rows)]


def _values(name: str, case: str, timing: Timing, write: Timing) -> dict[str, str | float]:
    return {
        "batch": name,
        "by": case,
        "MB/s": TOTAL / MB / timing.wall_s,
        "CPU-s/GB": timing.cpu_s * GB / TOTAL,
        "CPU µs/call": timing.cpu_s / (TOTAL // SIZES[name]) * 1e6,
        "MB/s ratio": write.wall_ratio(timing),
        "CPU ratio": write.cpu_ratio(timing),
    }


def _writing(path: str, batch: memoryview) -> Case:
    def case(watch: Stopwatch) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        with watch:
            for _ in range(TOTAL // len(batch)):
                os.write(fd, batch)
        os.close(fd)
        os.unlink(path)

    return case


def _appending(
    directory: DataDirectory, partitions: Iterator[int], batch: memoryview, loop: Callable[[Log, memoryview, int], None]
) -> Case:
    def case(watch: Stopwatch) -> None:
        log = directory.log("bench", next(partitions))
        # Makes the file, as os.open does for os.write.
        _append(log, batch, 1)
        with watch:
            loop(log, batch, TOTAL // len(batch))
        # Drops the files without writing them to the disk first.
        log.truncate(0)

    return case


def _append_alone(log: Log, batch: memoryview, times: int) -> None:
    now_ms, batches = _now_ms(), split(batch)
    for _ in range(times):
        log.append(batches, leader_epoch=0, now_ms=now_ms)


def _append(log: Log, batch: memoryview, times: int) -> None:
    now_ms = _now_ms()
    for _ in range(times):
        log.append(split(batch), leader_epoch=0, now_ms=now_ms)


def _verify_and_append(log: Log, batch: memoryview, times: int) -> None:
    now_ms = _now_ms()
    for _ in range(times):
        batches = split(batch)
        for header, view in batches:
            verify(header, view)
        log.append(batches, leader_epoch=0, now_ms=now_ms)


def _now_ms() -> int:
    """Asked once a round: a broker asks once for all that one turn of its loop brings."""
    return time.time_ns() // 1_000_000
