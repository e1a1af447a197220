"""Measures two brokers of one host (`penstock serve --processes 2`) beside one: requests a second, and CPU of each."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from benchmarks.batches import KB, MB
from benchmarks.cluster.asking import ask_metadata
from benchmarks.measure import Step
from benchmarks.processes import START_SECONDS, Server, ServerError
from benchmarks.programs import load
from benchmarks.report import Row, Table, Target, judge
from benchmarks.samples import Rounds
from benchmarks.scratch import scratch_folder
from benchmarks.suite import Asked, Results, Suite, main
from benchmarks.systems import Penstock
from benchmarks.workloads import CURRENT, FILL_BATCH_BYTES, Workload
from penstock.client.admin.offsets import LATEST, list_offsets
from penstock.client.admin.topics import NewTopic, create_topics, delete_topics
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import unwrap
from penstock.client.metadata import TopicPartition

ROUNDS: Final = 9
QUICK_ROUNDS: Final = 2
ONE: Final = "one process"
AGAIN: Final = "one, again"
TWO: Final = "two processes"
MAX_LOADS: Final = 2
_FILLED_BYTES: Final = 100 * MB
_RATIO: Final = "two / one"
_TARGET: Final = Target(_RATIO, 1.1, at_most=True)
_WARM_BYTES: Final = 1500 * MB

R = TypeVar("R")

# Of each load generator.
WORKLOADS: Final = (
    Workload("one message a request, c10 d1", "produce", {"connections": 10, "in_flight": 1, "acks": 1}, 8 * MB),
    Workload("one message a request, c10 d16", "produce", {"connections": 10, "in_flight": 16, "acks": 1}, 25 * MB),
    Workload("one message a request, c100 d1", "produce", {"connections": 100, "in_flight": 1, "acks": 1}, 12 * MB),
    Workload(
        "produce 16 KB", "produce", {"batch_bytes": 16 * KB, "connections": 4, "in_flight": 4, "acks": 1}, 150 * MB
    ),
    Workload("fetch 16 KB", "fetch", {"max_bytes": 16 * KB, "connections": 2, "in_flight": 2}, 200 * MB),
)


Case: TypeAlias = tuple[Workload, int]
"""What each load generator does, and how many there are."""


@dataclass(slots=True, frozen=True)
class Sample:
    requests: int
    requests_per_s: float
    cpu_seconds: float

    @property
    def cpu_us_per_request(self) -> float:
        return self.cpu_seconds * 1e6 / self.requests


@dataclass(slots=True, frozen=True)
class Place:
    """A topic of one partition, and the port of the broker that leads it."""

    topic: str
    port: int


def run(step: Step, asked: Asked) -> Results:
    rounds = QUICK_ROUNDS if asked.is_quick else ROUNDS
    # Linux shares the cores out among sessions first, and brokers of a supervisor have their own.
    one, again = (Penstock(name=name, has_own_session=True) for name in (ONE, AGAIN))
    systems = (one, Penstock(name=TWO, brokers=2), again)
    cases = [(workload, loads) for loads in (1, MAX_LOADS) for workload in WORKLOADS]
    found: dict[Case, dict[str, list[Sample]]] = {case: {system.name: [] for system in systems} for case in cases}
    step("warming the page cache")
    with scratch_folder(_WARM_BYTES) as folder, ExitStack() as stack:
        servers: dict[str, Server] = {}
        for number, system in enumerate(systems):
            own = Path(folder) / str(number)
            own.mkdir()
            servers[system.name] = stack.enter_context(system.start(own, ()))
        _wait_for_brokers(servers[TWO], 2)
        filled = {
            name: _make_places(server, f"filled-{number}") for number, (name, server) in enumerate(servers.items())
        }
        for places in filled.values():
            _fill(places)
        numbers = count()
        for case in cases:
            workload, loads = case
            for number in range(rounds):
                order = list(servers.items())
                for name, server in order if number % 2 == 0 else reversed(order):
                    step(f"{workload.name}, {loads} at once: {name}, round {number + 1} of {rounds}")
                    if workload.mode == "fetch":
                        found[case][name].append(_sample(server, workload, filled[name][:loads]))
                        continue
                    places = _make_places(server, f"bench-{next(numbers)}")
                    found[case][name].append(_sample(server, workload, places[:loads]))
                    _drop(server, places)
    results = {case: {name: Rounds(samples) for name, samples in of.items()} for case, of in found.items()}
    table = make_table(results, rounds)
    return Results(shown=[table, *filter(None, [judge([table])])])


def _sample(server: Server, workload: Workload, places: Sequence[Place]) -> Sample:
    """A load generator for each place, at once."""
    options = {**workload.with_versions, **workload.limits}
    before = server.cpu_seconds()
    with ThreadPoolExecutor(len(places)) as pool:
        runs = [
            pool.submit(partial(load, workload.mode, port=place.port, topics=[place.topic], **options))
            for place in places
        ]
        told = [one.result() for one in runs]
    used = server.cpu_seconds() - before
    rate = sum(one["requests"] / one["seconds"] for one in told)
    return Sample(sum(one["requests"] for one in told), rate, used)


def _fill(places: Sequence[Place]) -> None:
    for place in places:
        load(
            "produce",
            port=place.port,
            topics=[place.topic],
            requests=_FILLED_BYTES // FILL_BATCH_BYTES,
            batch_bytes=FILL_BATCH_BYTES,
            in_flight=64,
            acks=-1,
        )
        load("fetch", port=place.port, topics=[place.topic])


def _make_places(server: Server, prefix: str) -> list[Place]:
    """A topic for each load generator, of different brokers where there are several."""

    async def make(cluster: Cluster) -> list[Place]:
        brokers = sorted(ask_metadata(server.port).brokers)
        names = {f"{prefix}-{number}": brokers[number % len(brokers)] for number in range(MAX_LOADS)}
        unwrap(await create_topics(cluster, [NewTopic(name=name, assignment=[[led]]) for name, led in names.items()]))
        # A broker may name a partition before it leads it.
        unwrap(await list_offsets(cluster, {TopicPartition(name, 0): LATEST for name in names}))
        return [Place(name, (await cluster.leader(name, 0)).port) for name in names]

    return asyncio.run(_using(server, make))


def _drop(server: Server, places: Sequence[Place]) -> None:
    async def drop(cluster: Cluster) -> None:
        unwrap(await delete_topics(cluster, [place.topic for place in places]))

    asyncio.run(_using(server, drop))


async def _using(server: Server, work: Callable[[Cluster], Awaitable[R]]) -> R:
    async with Cluster(f"127.0.0.1:{server.port}", client_id="penstock-bench") as cluster:
        return await work(cluster)


def _wait_for_brokers(server: Server, brokers: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while len(ask_metadata(server.port).brokers) < brokers:
        if time.monotonic() > deadline:
            raise ServerError(f"there are no {brokers} brokers after {START_SECONDS:.0f} s")
        time.sleep(0.05)


def make_table(results: Mapping[Case, Mapping[str, Rounds[Sample]]], rounds: int) -> Table:
    rows = []
    for (workload, loads), of in results.items():
        one, two, again = of[ONE], of[TWO], of[AGAIN]
        rows.append(
            Row(
                {
                    "what": workload.name,
                    "loads": str(loads),
                    "requests/s: one": one.median(_rate),
                    "two": two.median(_rate),
                    "×": two.ratio(one, _rate),
                    "CPU µs: one": one.median(_cost),
                    "two ": two.median(_cost),
                    _RATIO: two.ratio(one, _cost),
                    "one / one": again.ratio(one, _cost),
                    "two's spread": two.spread(_cost),
                },
                (_TARGET,),
            )
        )
    how = (
        f"Messages of 1 KB, acks=1, {CURRENT}. A load generator has a topic of one partition; of two, each has its "
        f"own broker where there are two. cN dM is N connections with M requests in flight, of each. CPU is that of "
        f"all brokers and of their supervisor for a request. Medians of {rounds} rounds in turns; one process runs "
        f"twice. Brokers and load share all cores of the machine."
    )
    raw = {
        f"{workload.name}, {loads} at once": {name: each.as_json() for name, each in of.items()}
        for (workload, loads), of in results.items()
    }
    return Table("Two brokers of one host beside one", how, rows, raw)


def _rate(sample: Sample) -> float:
    return sample.requests_per_s


def _cost(sample: Sample) -> float:
    return sample.cpu_us_per_request


SUITE: Final = Suite(name="processes", about=__doc__, parts=("processes",), run=run)

if __name__ == "__main__":
    sys.exit(main(SUITE, sys.argv[1:]))
