"""Measures records a second between record batches and Arrow: by Numba, by NumPy, and one by one in Python."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from benchmarks.batches import KB, MB
from benchmarks.measure import Case, Step, Timing, repeat, take_turns
from benchmarks.report import Row, Table, Target
from penstock.protocol.batch import split, verify
from penstock.protocol.columns import Impl, decode, encode, from_arrow, prepare, to_arrow
from penstock.protocol.records import NewRecord, build, iterate

TOTAL = 8 * MB
ROUNDS = 9
RECORDS = (100, KB)
BATCHES = (16 * KB, 256 * KB)
_NOW_MS = 1_700_000_000_000
_IMPLEMENTATIONS: dict[str, Impl] = {"Numba": "numba", "NumPy": "numpy"}
_PYTHON = "Python"
# What they reached when this was designed, for records of 1 KB.
_TARGETS = {"Numba": 2.0, "NumPy": 1.0}


def run(step: Step) -> list[Table]:
    step("compiling")
    for impl in _IMPLEMENTATIONS.values():
        prepare(impl)
    return [_decoding(step), _encoding(step), _starting(step)]


def _decoding(step: Step) -> Table:
    rows = []
    for record_bytes in RECORDS:
        for batch_bytes in BATCHES:
            new = _records(record_bytes)
            reply = b"".join(_build(new, record_bytes, batch_bytes))
            calls = {name: partial(_decode, reply, impl) for name, impl in _IMPLEMENTATIONS.items()}
            calls[_PYTHON] = partial(_iterate, reply)
            what = f"{record_bytes} B in batches of {batch_bytes // KB} KB"
            is_judged = record_bytes == KB and batch_bytes == BATCHES[-1]
            rows.append(_compare(f"decode {what}", calls, len(new), step, is_judged=is_judged))
    how = (
        "A reply of 8 MB to an Arrow record batch of key, value, topic, partition, offset, timestamp and headers, "
        "beside a list of records; checksums are checked by all. Values have 0.5 to 1.5 times the size named. "
        "M/s are million records a second of CPU time; × is how many times as much Python takes."
    )
    return Table("Record batches to columns", how, rows)


def _encoding(step: Step) -> Table:
    import pyarrow as pa

    rows = []
    for record_bytes in RECORDS:
        new = _records(record_bytes)
        table = pa.table({"key": [each.key for each in new], "value": [each.value for each in new]})
        for batch_bytes in BATCHES:
            calls = {name: partial(_encode, table, batch_bytes, impl) for name, impl in _IMPLEMENTATIONS.items()}
            calls[_PYTHON] = partial(_build, new, record_bytes, batch_bytes)
            what = f"{record_bytes} B in batches of {batch_bytes // KB} KB"
            rows.append(_compare(f"encode {what}", calls, len(new), step, is_judged=False))
    how = "An Arrow table of 8 MB to record batches that are not compressed, beside a list of records."
    return Table("Columns to record batches", how, rows)


def _starting(step: Step) -> Table:
    """The first process of all on a machine compiles; the next ones load what it kept."""
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for name, impl in (("NumPy", "numpy"), ("Numba, compiling", "numba"), ("Numba, from its cache", "numba")):
            step(f"starting {name}")
            code = f"from penstock.protocol.columns import prepare; prepare({impl!r})"
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "NUMBA_CACHE_DIR": cache})
            rows.append(Row({"first use": name, "s": time.perf_counter() - begin}))
    how = "Wall time of a process that imports what it needs and decodes nothing, once each."
    return Table("What the first record batch waits for", how, rows)


def _compare(name: str, calls: Mapping[str, Callable[[], object]], count: int, step: Step, *, is_judged: bool) -> Row:
    cases: dict[str, Case] = {f"{name} by {who}": repeat(call, 1) for who, call in calls.items()}
    timings = dict(zip(calls, take_turns(cases, rounds=ROUNDS, step=step).values(), strict=True))
    values: dict[str, str | float] = {"what": name}
    values |= {f"{who} M/s": count / timing.cpu_s / 1e6 for who, timing in timings.items()}
    values |= {f"{who} µs": timing.cpu_s / count * 1e6 for who, timing in timings.items()}
    values |= {f"× by {who}": _saved(timings, who) for who in _IMPLEMENTATIONS}
    targets = [Target(f"{who} M/s", limit, at_most=False) for who, limit in _TARGETS.items()]
    return Row(values, tuple(targets) if is_judged else ())


def _saved(timings: dict[str, Timing], who: str) -> float:
    return timings[_PYTHON].cpu_ratio(timings[who])


def _records(size: int) -> list[NewRecord]:
    chance = Random(size)
    sizes = [chance.randint(size // 2, size + size // 2) for _ in range(TOTAL // size)]
    return [
        NewRecord(chance.randbytes(each), key=b"customer %06d" % chance.randrange(10**6), timestamp=_NOW_MS + at // 10)
        for at, each in enumerate(sizes)
    ]


def _decode(reply: bytes, impl: Impl) -> Any:
    return to_arrow(decode(reply, impl=impl), topic="orders", partition=3)


def _encode(table: Any, batch_bytes: int, impl: Impl) -> Any:
    return list(encode(from_arrow(table, now_ms=_NOW_MS), max_batch_bytes=batch_bytes, impl=impl))


def _build(new: Sequence[NewRecord], record_bytes: int, batch_bytes: int) -> Any:
    each = batch_bytes // (record_bytes + 30)
    return [build(new[first : first + each], base_offset=first) for first in range(0, len(new), each)]


def _iterate(reply: bytes) -> Any:
    found: list[Any] = []
    for header, view in split(reply):
        verify(header, view)
        found += iterate(view)
    return found
