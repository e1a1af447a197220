"""Measures µs to find an offset and a timestamp in a log of 100 MB and in one of 2 GB, and to read 1 MB."""

from random import Random

from benchmarks.batches import GB, KB, MB, fill
from benchmarks.measure import Case, Step, Stopwatch, Timing, take_turns
from benchmarks.report import Row, Table, Target
from benchmarks.scratch import scratch_folder
from penstock.storage.data_directory import DataDirectory
from penstock.storage.files import RealFiles
from penstock.storage.log.file_range import FileRange
from penstock.storage.log.log import Log

SMALL, LARGE = 100 * MB, 2 * GB
PLACES = 4000
READS = 100
ROUNDS = 5
_RANDOM = Random(7)


def run(step: Step) -> list[Table]:
    return [*_with_batches_of(16 * KB, step, is_main=True), *_with_batches_of(KB, step, is_main=False)]


def _with_batches_of(batch_bytes: int, step: Step, *, is_main: bool) -> list[Table]:
    with scratch_folder(warm_bytes=SMALL + LARGE) as folder:
        directory = DataDirectory(f"{folder}/logs", RealFiles())
        for name, size in (("small", SMALL), ("large", LARGE)):
            step(f"writing {size // MB:,} MB in batches of {batch_bytes // KB} KB")
            fill(directory.log(name, 0), size=size, batch_bytes=batch_bytes)
        directory.close()
        directory = DataDirectory(f"{folder}/logs", RealFiles())
        assert directory.was_clean, "the logs were closed in order"
        small, large = directory.log("small", 0), directory.log("large", 0)
        tables = [_finding(small, large, batch_bytes, step, is_judged=is_main)]
        if is_main:
            tables.append(_reading(large, step))
        directory.close()
    return tables


def _finding(small: Log, large: Log, batch_bytes: int, step: Step, *, is_judged: bool) -> Table:
    rows = []
    for what, find in (("offset", _finding_offsets), ("timestamp", _finding_timestamps)):
        cases = {f"find {what}s in {log.size // MB:,} MB": find(log) for log in (small, large)}
        in_small, in_large = take_turns(cases, rounds=ROUNDS, step=step).values()
        values: dict[str, str | float] = {
            "find": what,
            "µs in 100 MB": _micros(in_small, PLACES),
            "µs in 2 GB": _micros(in_large, PLACES),
            "ratio": in_large.cpu_ratio(in_small),
        }
        rows.append(Row(values, (Target("ratio", 1.5, at_most=True),) if is_judged else ()))
    how = (
        "CPU time of Log.locate for 1 MB and of Log.find_timestamp, at random places of a log that was closed and "
        "opened again, its bytes in the page cache."
    )
    return Table(f"Finding a place among batches of {batch_bytes // KB} KB", how, rows)


def _finding_offsets(log: Log) -> Case:
    def case(watch: Stopwatch) -> None:
        places = _RANDOM.choices(range(log.end_offset), k=PLACES)
        with watch:
            for offset in places:
                found = log.locate(offset, max_bytes=MB)
                assert found is not None
                found.release()

    return case


def _finding_timestamps(log: Log) -> Case:
    def case(watch: Stopwatch) -> None:
        places = _RANDOM.choices(range(log.segments[-1].max_timestamp), k=PLACES)
        with watch:
            for timestamp in places:
                found = log.find_timestamp(timestamp)
                assert found is not None

    return case


def _reading(log: Log, step: Step) -> Table:
    cases: dict[str, Case] = {
        "the first time, verifying checksums": _reading_first(log),
        "once more": _reading_again(log),
        "once more, and its bytes into memory": _reading_bytes(log),
    }
    timings = take_turns(cases, rounds=ROUNDS, step=step)
    rows = [
        Row({"read 1 MB": name, "µs": _micros(timing, READS), "MB/s of CPU time": READS / timing.cpu_s})
        for name, timing in timings.items()
    ]
    how = (
        "CPU time of Log.read at random places of 2 GB in the page cache; it gives a range of the file, not its bytes."
    )
    return Table("Reading", how, rows)


def _reading_first(log: Log) -> Case:
    def case(watch: Stopwatch) -> None:
        for offset in _places_to_read(log):
            with watch:
                found = _read(log, offset)
            found.release()

    return case


def _reading_again(log: Log) -> Case:
    def case(watch: Stopwatch) -> None:
        for offset in _places_to_read(log):
            _read(log, offset).release()
            with watch:
                found = _read(log, offset)
            found.release()

    return case


def _reading_bytes(log: Log) -> Case:
    def case(watch: Stopwatch) -> None:
        for offset in _places_to_read(log):
            _read(log, offset).release()
            with watch, _read(log, offset) as found:
                found.read()

    return case


def _read(log: Log, offset: int) -> FileRange:
    found = log.read(offset, max_bytes=MB)
    assert found is not None
    return found


def _places_to_read(log: Log) -> list[int]:
    return _RANDOM.choices(range(log.end_offset), k=READS)


def _micros(timing: Timing, calls: int) -> float:
    return timing.cpu_s / calls * 1e6
