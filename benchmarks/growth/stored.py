"""Measures the cost of writing, of reading the newest, of reading anywhere and of looking for a time, when more is
stored."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from benchmarks.batches import GB, KB, MB
from benchmarks.growth.scaling import FLAT, beside_other, systems_of
from benchmarks.measure import Step
from benchmarks.plots import Curves
from benchmarks.processes import Server
from benchmarks.programs import load
from benchmarks.report import Row, Table
from benchmarks.samples import Rounds
from benchmarks.scratch import CACHE
from benchmarks.stage import running
from benchmarks.suite import Asked, Results
from benchmarks.systems import Penstock
from benchmarks.workloads import CURRENT, OLD

LEVELS: Final = (1, 5, 20)
QUICK_LEVELS: Final = (1, 4)
# Each is written in one go and has a time of its own.
_PIECE_BYTES: Final = 100 * MB
# The disk has to have room for what is stored, for what is measured besides, and for others.
_SPARE_BYTES: Final = 5 * GB

Stored = Mapping[tuple[str, int], Rounds["Sample"]]
"""By the system's name and the GB that were stored."""


@dataclass(slots=True, frozen=True)
class Sample:
    requests: int
    bytes: int
    seconds: float
    cpu_seconds: float
    p50_ms: float
    p99_ms: float

    @property
    def cost(self) -> float:
        """Of a request: all of a kind are about as large."""
        return self.cpu_seconds * 1e6 / self.requests


def run(step: Step, asked: Asked) -> Results:
    rounds = 1 if asked.is_quick else 3
    wanted = levels_up_to(asked.gigabytes, QUICK_LEVELS if asked.is_quick else LEVELS)
    CACHE.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(CACHE).free
    levels = [level for level in wanted if level * GB + _SPARE_BYTES < free]
    if not levels:
        raise OSError(f"{free / GB:.0f} GB are free, and {(wanted[0] * GB + _SPARE_BYTES) / GB:.0f} are needed")
    remarks = [f"No more than {levels[-1]} GB were stored: the disk has no room."] * (len(levels) < len(wanted))
    found: dict[str, dict[tuple[str, int], Rounds[Sample]]] = {}
    # One revision after the other: both at once would share the page cache, which is what decides some of this. It is
    # warmed for all that will be stored, or the second would find warm what the first had to warm.
    warm_bytes = min(levels[-1] * GB + GB, _available_memory() * 3 // 4)
    for system in systems_of(asked):
        for name, of in _fill_and_measure(step, system, levels, rounds, warm_bytes).items():
            found.setdefault(name, {}).update({(system.name, level): samples for level, samples in of.items()})
    return _results(found, rounds, remarks, warm_bytes)


def levels_up_to(gigabytes: int | None, levels: Sequence[int]) -> list[int]:
    """What is stored when: the levels below the most, and that."""
    if gigabytes is None:
        return list(levels)
    return [*(level for level in levels if level < gigabytes), gigabytes]


def _available_memory() -> int:
    with open("/proc/meminfo") as told:
        found = next(line for line in told if line.startswith("MemAvailable:"))
    return int(found.split()[1]) * 1024


def _fill_and_measure(
    step: Step, system: Penstock, levels: Sequence[int], rounds: int, warm_bytes: int
) -> dict[str, dict[int, Rounds[Sample]]]:
    found: dict[str, dict[int, Rounds[Sample]]] = {}
    with running([system], step, warm_bytes=warm_bytes) as stage:
        server = stage.servers[system]
        system.make_topic(server, "stored")
        began_ms, held = int(time.time() * 1000), 0
        send = partial(load, port=server.port, topics=["stored"], cores=stage.cores.load)
        for level in levels:
            while held < level * GB:
                step(f"storing in {system.name}: {held / GB:.1f} of {level} GB")
                told = send("produce", batch_bytes=100 * KB, in_flight=32, requests=_PIECE_BYTES // (100 * KB))
                held += told["bytes"]
            # What the disk still has to write would be counted with what is measured.
            send("produce", acks=-1, requests=1)
            for name, options in _kinds(began_ms).items():
                step(f"{level} GB stored in {system.name}: {name}")
                samples = [_measure(partial(send, **options), server) for _ in range(rounds)]
                held += sum(one.bytes for one in samples) if options["mode"] == "produce" else 0
                found.setdefault(name, {})[level] = Rounds(samples)
    return found


def _kinds(began_ms: int) -> Mapping[str, dict[str, Any]]:
    parallel = {"connections": 2, "in_flight": 2}
    now_ms = int(time.time() * 1000)
    return {
        "produce 16 KB batches": {"mode": "produce", "batch_bytes": 16 * KB, "requests": 6000, **parallel},
        f"produce 16 KB batches, Produce {OLD.produce}": {
            "mode": "produce",
            "batch_bytes": 16 * KB,
            "requests": 6000,
            **parallel,
            **OLD.options,
        },
        "fetch the newest 100 MB": {"mode": "fetch", "newest": 100 * KB, **parallel},
        f"fetch the newest 100 MB, Fetch {OLD.fetch}": {
            "mode": "fetch",
            "newest": 100 * KB,
            **parallel,
            **OLD.options,
        },
        "fetch 100 KB anywhere": {"mode": "seek", "max_bytes": 100 * KB, "requests": 2000, **parallel},
        "look for a time": {"mode": "seek", "from_ms": began_ms, "to_ms": now_ms, "requests": 5000, **parallel},
    }


def _measure(send: Callable[[], dict[str, Any]], server: Server) -> Sample:
    before = server.cpu_seconds()
    told = send()
    used = server.cpu_seconds() - before
    times = told["latency"]
    return Sample(told["requests"], told["bytes"], told["seconds"], used, times["p50_us"] / 1e3, times["p99_us"] / 1e3)


def _results(found: Mapping[str, Stored], rounds: int, remarks: list[str], warm_bytes: int) -> Results:
    rows = []
    for name, of in found.items():
        least = min(level for _, level in of)
        for (system, level), samples in sorted(of.items(), key=lambda each: each[0][1]):
            values: dict[str, str | float] = {
                "what": f"{level} GB, {name}",
                "by": system,
                "MB/s": samples.median(lambda one: one.bytes / MB / one.seconds),
                "requests/s": samples.median(lambda one: one.requests / one.seconds),
                "CPU µs/request": samples.median(lambda one: one.cost),
                "spread": samples.spread(lambda one: one.cost),
                "cost × least": samples.ratio(of[system, least], lambda one: one.cost),
                "× before": beside_other(of, (system, level), lambda one: one.cost),
                "p50 ms": samples.median(lambda one: one.p50_ms),
                "p99 ms": samples.median(lambda one: one.p99_ms),
            }
            rows.append(Row(values, (FLAT,) if system == Penstock.name and level != least else ()))
    how = (
        f"One partition. {CURRENT} unless another version is named. Cost is the broker's CPU for a request, as a "
        f"multiple of that with the least stored, and of that of the revision before, if one was named. Medians of "
        f"{rounds}; the page cache was warmed for "
        f"{warm_bytes / GB:.0f} GB before. What is read anywhere may have to come from the disk."
    )
    raw = {
        name: {f"{system}, {level}": samples.as_json() for (system, level), samples in of.items()}
        for name, of in found.items()
    }
    lines = {
        name: [
            (float(level), samples.median(lambda one: one.cost))
            for (system, level), samples in of.items()
            if system == Penstock.name
        ]
        for name, of in found.items()
    }
    labels: dict[float, str] = {level: str(level) for of in found.values() for _, level in of}
    panel = Curves(
        "More stored", "GB stored", "CPU µs for a request", lines, has_log_x=True, has_log_y=True, x_labels=labels
    )
    return Results(shown=[Table("More stored", how, rows, raw)], panels=[panel], remarks=remarks)
