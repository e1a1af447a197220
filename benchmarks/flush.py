"""Measures µs and MB/s of appending and flushing each batch against os.write and fdatasync (for information)."""

import os

from benchmarks.append import SIZES
from benchmarks.batches import MB, make_batch
from benchmarks.measure import Case, Step, Stopwatch, Timing, take_turns
from benchmarks.report import Row, Table
from benchmarks.scratch import scratch_folder
from penstock.protocol.batch import split
from penstock.storage.data_directory import DataDirectory
from penstock.storage.files import Files, RealFiles

CALLS = 100
ROUNDS = 7
_WRITE, _APPEND = "os.write, fdatasync", "append, flush"


def run(step: Step) -> list[Table]:
    rows = []
    files = RealFiles()
    with scratch_folder(warm_bytes=4 * CALLS * MB) as folder:
        directory = DataDirectory(f"{folder}/logs", files)
        for partition, (name, size) in enumerate(SIZES.items()):
            batch = memoryview(make_batch(size))
            cases: dict[str, Case] = {
                f"{name}: {_WRITE}": _writing(files, f"{folder}/file", batch),
                f"{name}: {_APPEND}": _appending(directory, partition, batch),
            }
            write, append = take_turns(cases, rounds=ROUNDS, step=step).values()
            rows += [Row(_values(name, _WRITE, write, write)), Row(_values(name, _APPEND, append, write))]
        directory.close()
    how = (
        "Each batch is durable before the next one: the flusher has one log and one batch a round, its dearest case. "
        "Ratios are to os.write and fdatasync, above 1 is better."
    )
    return [Table("Appending and flushing", how, rows)]


def _values(name: str, case: str, timing: Timing, write: Timing) -> dict[str, str | float]:
    return {
        "batch": name,
        "by": case,
        "µs": timing.wall_s / CALLS * 1e6,
        "CPU µs": timing.cpu_s / CALLS * 1e6,
        "MB/s": SIZES[name] * CALLS / MB / timing.wall_s,
        "MB/s ratio": write.wall_ratio(timing),
        "CPU ratio": write.cpu_ratio(timing),
    }


def _writing(files: Files, path: str, batch: memoryview) -> Case:
    def case(watch: Stopwatch) -> None:
        fd = files.open(path, write=True, create=True)
        # The name, and the first bytes, are made durable before the clock starts, as they are for the log.
        os.write(fd, batch)
        files.sync(fd)
        with watch:
            for _ in range(CALLS):
                os.write(fd, batch)
                files.sync(fd)
        files.close(fd)
        files.unlink(path)

    return case


def _appending(directory: DataDirectory, partition: int, batch: memoryview) -> Case:
    def case(watch: Stopwatch) -> None:
        log = directory.log("bench", partition)
        log.append(split(batch), leader_epoch=0, now_ms=0)
        directory.flusher.flush()
        with watch:
            for _ in range(CALLS):
                log.append(split(batch), leader_epoch=0, now_ms=0)
                directory.flusher.flush()
        log.truncate(0)

    return case
