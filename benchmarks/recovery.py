"""Measures MB/s of opening a log of 400 MB after a crash, all of it checked, and the time after a clean stop."""

import os

from benchmarks.batches import GB, KB, MB, fill
from benchmarks.measure import Case, Step, Stopwatch, take_turns
from benchmarks.report import Row, Table
from benchmarks.scratch import scratch_folder
from penstock.storage.data_directory import CLEAN_SHUTDOWN_FILE, DataDirectory
from penstock.storage.files import RealFiles
from penstock.storage.recovery_points import FILE_NAME as RECOVERY_POINTS_FILE

SIZE = 400 * MB
BATCHES = {"100 KB": 100 * KB, "16 KB": 16 * KB, "1 KB": KB}
ROUNDS = 3


def run(step: Step) -> list[Table]:
    rows = []
    for name, batch_bytes in BATCHES.items():
        with scratch_folder(warm_bytes=SIZE) as folder:
            path = f"{folder}/logs"
            step(f"writing {SIZE // MB:,} MB in batches of {name}")
            directory = DataDirectory(path, RealFiles())
            fill(directory.log("bench", 0), size=SIZE, batch_bytes=batch_bytes)
            directory.close()
            cases: dict[str, Case] = {
                f"{name}: after a crash": _opening(path, crashed=True),
                f"{name}: after a clean stop": _opening(path, crashed=False),
            }
            crashed, clean = take_turns(cases, rounds=ROUNDS, step=step).values()
        rows.append(
            Row(
                {
                    "batch": name,
                    "crash: MB/s": SIZE / MB / crashed.wall_s,
                    "crash: CPU-s/GB": crashed.cpu_s * GB / SIZE,
                    "clean: ms": clean.wall_s * 1e3,
                    "clean: CPU ms": clean.cpu_s * 1e3,
                }
            )
        )
    how = (
        f"Opening a data folder with one log of {SIZE // MB} MB in the page cache: without a recovery point every "
        "batch is read, its checksum and offsets are checked and the index is made anew; after a clean stop the end is "
        "looked at."
    )
    return [Table("Opening a log", how, rows)]


def _opening(path: str, *, crashed: bool) -> Case:
    def case(watch: Stopwatch) -> None:
        if crashed:
            os.unlink(f"{path}/{CLEAN_SHUTDOWN_FILE}")
            os.unlink(f"{path}/{RECOVERY_POINTS_FILE}")
        with watch:
            directory = DataDirectory(path, RealFiles())
            directory.log("bench", 0)
        report = directory.reports["bench-0"]
        assert report.cut_bytes == 0
        assert report.scanned_bytes >= SIZE if crashed else report.scanned_bytes == 0
        directory.close()

    return case
