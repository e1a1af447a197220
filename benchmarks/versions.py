"""Measures broker and SDK of this checkout beside those of another revision, in turns: what a change costs.

The other revision runs twice: how far it differs from itself is the noise of the machine. A ratio within that spread
counts as equal.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console

from benchmarks import programs
from benchmarks.batches import KB, MB
from benchmarks.measure import Step
from benchmarks.processes import Server
from benchmarks.report import Row, Table, save, show
from benchmarks.revisions import ROOT, unpack
from benchmarks.samples import Rounds
from benchmarks.scratch import RESULTS
from benchmarks.stage import Stage, running
from benchmarks.systems import Penstock
from benchmarks.wire import Sample, measure_all
from benchmarks.workloads import CURRENT, Workload
from benchmarks.workloads import OLD as OLD_VERSIONS

ROUNDS: Final = 9
NEW: Final = "this checkout"
OLD: Final = "old"
OLD_AGAIN: Final = "old, again"

_CURRENT_WORKLOADS: Final = (
    Workload("one message a request, c1 d1", "produce", {"connections": 1, "in_flight": 1, "acks": 1}, 5 * MB),
    Workload("one message a request, c10 d16", "produce", {"connections": 10, "in_flight": 16, "acks": 1}, 30 * MB),
    Workload("one message a request, c100 d1", "produce", {"connections": 100, "in_flight": 1, "acks": 1}, 20 * MB),
    Workload(
        "produce 16 KB", "produce", {"batch_bytes": 16 * KB, "connections": 4, "in_flight": 4, "acks": 1}, 200 * MB
    ),
    Workload("produce 1 MB", "produce", {"batch_bytes": MB, "connections": 4, "in_flight": 4, "acks": 1}, 400 * MB),
    Workload("fetch 128 KB", "fetch", {"max_bytes": 128 * KB, "connections": 2, "in_flight": 2}, 800 * MB),
    Workload("fetch 16 KB", "fetch", {"max_bytes": 16 * KB, "connections": 2, "in_flight": 2}, 400 * MB),
)
WORKLOADS: Final = tuple(
    spoken for workload in _CURRENT_WORKLOADS for spoken in (workload, workload.spoken(OLD_VERSIONS))
)


# What the SDK does, and with how many messages of 1 KB, so that each takes about a second.
SDK: Final = {"penstock-send": 60_000, "penstock-poll": 150_000}


def run(step: Step, revision: str, *, rounds: int = ROUNDS) -> list[Table]:
    source = unpack(revision)
    sources = {OLD: source, NEW: ROOT / "src", OLD_AGAIN: source}
    systems = [Penstock(name=name, source=folder) for name, folder in sources.items()]
    with running(systems, step, warm_bytes=4 * 600 * MB) as stage:
        results = measure_all(stage, WORKLOADS, rounds=rounds)
        sdk = {client: _measure_sdk(stage, client, sources, rounds) for client in SDK}
    how = (
        f"CPU of the broker for a request ({CURRENT} unless another version is named); of the SDK, "
        f"against the broker of this checkout, for a record. Medians of {rounds} rounds in which the three take "
        f"turns, forwards and backwards. Ratios are medians of those within each round; of the old one against itself "
        f"the middle half and all are shown. "
        f"{stage.cores}."
    )
    costs = {workload.name: _costs(of) for workload, of in results.items()} | sdk
    rows = [_row(name, of) for name, of in costs.items()]
    raw = {workload.name: {name: one.as_json() for name, one in of.items()} for workload, of in results.items()}
    return [Table(f"This checkout beside {revision}", how, rows, raw | sdk)]


def _measure_sdk(stage: Stage, client: str, sources: Mapping[str, Path], rounds: int) -> dict[str, list[float]]:
    """CPU µs of the client for a record, by the version, round by round."""
    system, server = next((system, server) for system, server in stage.servers.items() if system.name == NEW)
    messages, is_reading = SDK[client], client.endswith("poll")
    with stage.topic(system, server) as filled:
        if is_reading:
            _use_sdk(stage, server, sources[NEW], client="penstock-arrow-send", topic=filled, messages=messages)
        found: dict[str, list[float]] = {name: [] for name in sources}
        for number in range(rounds):
            for name in sources if number % 2 == 0 else reversed(list(sources)):
                stage.step(f"SDK, {client}: {name}, round {number + 1} of {rounds}")
                if is_reading:
                    seconds = _use_sdk(stage, server, sources[name], client=client, topic=filled, messages=messages)
                else:
                    with stage.topic(system, server) as topic:
                        seconds = _use_sdk(stage, server, sources[name], client=client, topic=topic, messages=messages)
                found[name].append(seconds * 1e6 / messages)
    return found


def _use_sdk(stage: Stage, server: Server, source: Path, *, client: str, topic: str, messages: int) -> float:
    """CPU seconds of a client of the version in a folder."""
    # Whether the allocator returns memory and faults it in again, over and over, depends on where things happen to lie
    # in the heap: with its defaults either version could seem to cost half as much again as the other.
    settings = ["MALLOC_TRIM_THRESHOLD_=100000000", "MALLOC_TOP_PAD_=10000000", f"PYTHONPATH={source}"]
    command = ["env", *settings, sys.executable, "-m", "benchmarks.sdk_client", client]
    told = programs.run([*command, f"127.0.0.1:{server.port}", topic, str(messages), "1024"], stage.cores.load)
    return float(told["cpu_seconds"])


def _costs(of: Mapping[str, Rounds[Sample]]) -> dict[str, list[float]]:
    return {name: [sample.cpu_us_per_request for sample in rounds.samples] for name, rounds in of.items()}


def _row(what: str, of: Mapping[str, Sequence[float]]) -> Row:
    noise = sorted(_ratios(of[OLD_AGAIN], of[OLD]))
    quarter = len(noise) // 4
    # Against both runs of the old one, since each has its own place in a round.
    new = zip(_ratios(of[NEW], of[OLD]), _ratios(of[NEW], of[OLD_AGAIN]), strict=True)
    ratio = median(sum(both) / 2 for both in new)
    return Row(
        {
            "what": what if what not in SDK else f"SDK: {what.removeprefix('penstock-')}",
            "CPU µs, old": float(median(of[OLD])),
            "new": float(median(of[NEW])),
            "new / old": ratio,
            "old / old": median(noise),
            "middle half": f"{noise[quarter]:.3f}–{noise[-1 - quarter]:.3f}",
            "all": f"{noise[0]:.3f}–{noise[-1]:.3f}",
            "within it": "yes" if noise[0] <= ratio <= noise[-1] else "NO",
        }
    )


def _ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("revision", help="the revision to compare with, as git knows it")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each is measured (default: %(default)s)")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    with console.status("starting") as status:
        tables = run(status.update, options.revision, rounds=options.rounds)
    for table in tables:
        show(table, console)
    save("versions", tables, RESULTS)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
