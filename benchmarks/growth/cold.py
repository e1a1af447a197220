"""Measures how long the broker's loop stands still for a reader of what is no longer in memory, beside hot traffic."""

import ctypes
import mmap
import os
import re
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Final

from benchmarks.batches import GB, MB
from benchmarks.cores import Cores, choose_cores
from benchmarks.measure import Step
from benchmarks.processes import Server, free_port
from benchmarks.programs import load
from benchmarks.report import Row, Table, Target
from benchmarks.scratch import scratch_folder
from benchmarks.suite import Asked, Results
from benchmarks.systems import Penstock

RATE: Final = 1_000
_STALL: Final = Target("longest loop turn ms", 20, at_most=True)
_LAG: Final = re.compile(r"^penstock_event_loop_lag_recent_max_seconds (\S+)$", re.MULTILINE)
_TOPIC: Final = "much"
_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True, frozen=True)
class Sample:
    """Of the neighbour, in milliseconds; what the reader read meanwhile, and how much of it was not in memory."""

    p50: float
    p99: float
    p999: float
    max: float
    loop_turn_ms: float
    read_bytes: int
    read_seconds: float
    cold_share: float


def run(step: Step, asked: Asked) -> Results:
    size, seconds = (GB // 2, 3.0) if asked.is_quick else (2 * GB, 10.0)
    cores = choose_cores()
    samples: dict[str, Sample] = {}
    with scratch_folder(warm_bytes=0) as name:
        folder = Path(name)
        with _broker(folder, cores) as (server, _):
            step("storing what will be read")
            Penstock().make_topic(server, _TOPIC)
            load(
                "produce",
                port=server.port,
                topics=[_TOPIC],
                batch_bytes=MB // 10,
                in_flight=16,
                requests=size * 10 // MB,
            )
            load("produce", port=server.port, topics=[_TOPIC], acks=-1, requests=1)
        for what in ("alone", "beside a reader of what is in memory", "beside a reader of what is not"):
            step(f"{RATE:,} messages a second, {what}")
            # Each begins with a new process, whose longest turn is its own.
            with _broker(folder, cores) as (server, metrics_port):
                is_cold = what.endswith("not")
                samples[what] = _measure(server, metrics_port, cores, seconds, is_read=what != "alone", is_cold=is_cold)
    return Results(shown=[_table(samples, seconds, cores)])


@contextmanager
def _broker(folder: Path, cores: Cores) -> Iterator[tuple[Server, int]]:
    port = free_port()
    with Penstock("-X", f"penstock.metrics.listen=127.0.0.1:{port}").start(folder, cores.server) as server:
        yield server, port


def _measure(
    server: Server, metrics_port: int, cores: Cores, seconds: float, *, is_read: bool, is_cold: bool
) -> Sample:
    Penstock().make_topic(server, "hot")
    is_over = Event()
    with ThreadPoolExecutor(1) as reader:
        reading = reader.submit(partial(_read, server, cores, is_over, is_cold=is_cold)) if is_read else None
        told = load(
            "e2e", port=server.port, topics=["hot"], cores=cores.load, rate=RATE, seconds=seconds, warmup_seconds=0.5
        )
        turn_ms = 1e3 * longest_loop_turn(metrics_port)
        is_over.set()
        size, took, cold = reading.result() if reading else (0, 0.0, 0.0)
    Penstock().drop_topic(server, "hot")
    if told["missing"]:
        raise RuntimeError(f"{told['missing']} of {told['sent']} messages were not read")
    times = told["latency"]
    return Sample(
        p50=times["p50_us"] / 1e3,
        p99=times["p99_us"] / 1e3,
        p999=times["p999_us"] / 1e3,
        max=times["max_us"] / 1e3,
        loop_turn_ms=turn_ms,
        read_bytes=size,
        read_seconds=took,
        cold_share=cold,
    )


def _read(server: Server, cores: Cores, is_over: Event, *, is_cold: bool) -> tuple[int, float, float]:
    """Over and over; the bytes, the seconds, and which share was cold before."""
    size, seconds, shares = 0, 0.0, []
    while not is_over.is_set():
        if is_cold:
            evict(server.folder)
        shares.append(cold_share(server.folder))
        told = load("fetch", port=server.port, topics=[_TOPIC], cores=cores.load, connections=2, in_flight=2)
        size += told["bytes"]
        seconds += told["seconds"]
    return size, seconds, sum(shares) / len(shares)


def evict(folder: Path) -> None:
    """Take what is stored of the topic out of the page cache."""
    for path in _segments(folder):
        fd = os.open(path, os.O_RDONLY)
        try:
            # Only what is on the disk can leave the memory.
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def cold_share(folder: Path) -> float:
    """Which part of the topic would have to be read from the disk."""
    pages = cold = 0
    for path in _segments(folder):
        # A read that is not to wait would start the disk; to ask which pages are there does not.
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE) as mapped:
            first = ctypes.c_char.from_buffer(mapped)
            there = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
            if _libc.mincore(ctypes.byref(first), ctypes.c_size_t(len(mapped)), there):
                raise OSError(ctypes.get_errno(), f"mincore of {path.name} failed")
            # It keeps the mapping from being closed.
            del first
        pages += len(there)
        cold += sum(1 for state in there if not state & 1)
    return cold / max(1, pages)


def longest_loop_turn(metrics_port: int) -> float:
    """In seconds: how late a timer of the broker was at most, of late."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=10) as response:
        found = _LAG.search(response.read().decode())
    if found is None:
        raise RuntimeError("the broker does not tell how late its loop was")
    return float(found[1])


def _segments(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob(f"data/**/{_TOPIC}-*/*.log") if path.stat().st_size)


def _table(samples: dict[str, Sample], seconds: float, cores: Cores) -> Table:
    rows = []
    for what, one in samples.items():
        values: dict[str, str | float] = {
            "what": what,
            "p50 ms": one.p50,
            "p99 ms": one.p99,
            "p99.9 ms": one.p999,
            "max ms": one.max,
            "longest loop turn ms": one.loop_turn_ms,
            "reader MB/s": one.read_bytes / MB / one.read_seconds if one.read_seconds else "",
            "% not in memory": 100 * one.cold_share if one.read_seconds else "",
        }
        rows.append(Row(values, (_STALL,) if what.endswith("not") else ()))
    how = (
        f"End to end at {RATE:,} messages a second for {seconds:g} s, acks=1, while another client reads as fast as it "
        f"can. Both clients share a core, and the loop's longest turn is the broker's own metric; {cores}."
    )
    return Table("Cold reader", how, rows, {what: asdict(one) for what, one in samples.items()})
