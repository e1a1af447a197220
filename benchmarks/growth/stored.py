"""The cost of writing, of reading the newest, of reading anywhere and of looking for a time, when more is stored."""

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from benchmarks.batches import GB, KB, MB
from benchmarks.growth.scaling import FLAT
from benchmarks.measure import Step
from benchmarks.plots import Curves
from benchmarks.processes import Server
from benchmarks.programs import load
from benchmarks.report import Row, Table
from benchmarks.samples import Rounds
from benchmarks.scratch import CACHE
from benchmarks.stage import running
from benchmarks.suite import Results
from benchmarks.systems import Penstock

LEVELS: Final = (1, 5, 20)
QUICK_LEVELS: Final = (1, 4)
# Each is written in one go and has a time of its own.
_PIECE_BYTES: Final = 100 * MB


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


def run(step: Step, is_quick: bool) -> Results:
    rounds = 1 if is_quick else 3
    wanted = QUICK_LEVELS if is_quick else LEVELS
    CACHE.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(CACHE).free
    levels = [level for level in wanted if level * GB * 2 < free]
    remarks = [f"No more than {levels[-1] if levels else 0} GB were stored: the disk has no room."] * (
        len(levels) < len(wanted)
    )
    system = Penstock()
    found: dict[str, dict[int, Rounds[Sample]]] = {}
    with running([system], step, warm_bytes=GB) as stage:
        server = stage.servers[system]
        system.make_topic(server, "stored")
        began_ms, held = int(time.time() * 1000), 0
        send = partial(load, port=server.port, topics=["stored"], cores=stage.cores.load)
        for level in levels:
            while held < level * GB:
                step(f"storing: {held / GB:.1f} of {level} GB")
                told = send("produce", batch_bytes=100 * KB, in_flight=32, requests=_PIECE_BYTES // (100 * KB))
                held += told["bytes"]
            # What the disk still has to write would be counted with what is measured.
            send("produce", acks=-1, requests=1)
            for name, options in _kinds(began_ms).items():
                step(f"{level} GB stored: {name}")
                samples = [_measure(partial(send, **options), server) for _ in range(rounds)]
                held += sum(one.bytes for one in samples) if options["mode"] == "produce" else 0
                found.setdefault(name, {})[level] = Rounds(samples)
    return _results(found, rounds, remarks)


def _kinds(began_ms: int) -> Mapping[str, dict[str, Any]]:
    parallel = {"connections": 2, "in_flight": 2}
    now_ms = int(time.time() * 1000)
    return {
        "produce 16 KB batches": {"mode": "produce", "batch_bytes": 16 * KB, "requests": 6000, **parallel},
        "fetch the newest 100 MB": {"mode": "fetch", "newest": 100 * KB, **parallel},
        "fetch 100 KB anywhere": {"mode": "seek", "max_bytes": 100 * KB, "requests": 2000, **parallel},
        "look for a time": {"mode": "seek", "from_ms": began_ms, "to_ms": now_ms, "requests": 5000, **parallel},
    }


def _measure(send: Callable[[], dict[str, Any]], server: Server) -> Sample:
    before = server.cpu_seconds()
    told = send()
    used = server.cpu_seconds() - before
    times = told["latency"]
    return Sample(told["requests"], told["bytes"], told["seconds"], used, times["p50_us"] / 1e3, times["p99_us"] / 1e3)


def _results(found: Mapping[str, Mapping[int, Rounds[Sample]]], rounds: int, remarks: list[str]) -> Results:
    rows = []
    for name, of in found.items():
        least = of[min(of)]
        for level, samples in of.items():
            values: dict[str, str | float] = {
                "what": f"{level} GB, {name}",
                "MB/s": samples.median(lambda one: one.bytes / MB / one.seconds),
                "requests/s": samples.median(lambda one: one.requests / one.seconds),
                "CPU µs/request": samples.median(lambda one: one.cost),
                "spread": samples.spread(lambda one: one.cost),
                "cost × least": samples.ratio(least, lambda one: one.cost),
                "p50 ms": samples.median(lambda one: one.p50_ms),
                "p99 ms": samples.median(lambda one: one.p99_ms),
            }
            rows.append(Row(values, () if level == min(of) else (FLAT,)))
    how = (
        f"One partition. Cost is the broker's CPU for a request, as a multiple of that with 1 GB. Medians of {rounds}. "
        "What is read anywhere may have to come from the disk."
    )
    raw = {name: {str(level): samples.as_json() for level, samples in of.items()} for name, of in found.items()}
    lines = {
        name: [(float(level), samples.median(lambda one: one.cost)) for level, samples in of.items()]
        for name, of in found.items()
    }
    labels: dict[float, str] = {level: str(level) for of in found.values() for level in of}
    panel = Curves(
        "More stored", "GB stored", "CPU µs for a request", lines, has_log_x=True, has_log_y=True, x_labels=labels
    )
    return Results(shown=[Table("More stored", how, rows, raw)], panels=[panel], remarks=remarks)
