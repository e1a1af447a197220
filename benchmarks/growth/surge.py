"""Sends ten times as many messages for a while, and measures whether any is lost, what memory it takes, and how soon
latency is normal again."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from threading import Event, Thread
from time import monotonic
from typing import Any, Final

from benchmarks.batches import MB
from benchmarks.cores import choose_cores
from benchmarks.measure import Step
from benchmarks.plots import Bars, Curves
from benchmarks.processes import Server
from benchmarks.programs import load
from benchmarks.report import Row, Table, Target
from benchmarks.scratch import scratch_folder
from benchmarks.suite import Asked, Results
from benchmarks.systems import Penstock

TIMES: Final = 10
_INTERVAL_MS: Final = 500
_SAMPLE_SECONDS: Final = 0.25
# Latency is normal again when it stays within this of what it was before.
_FACTOR, _MARGIN_MS = 2.0, 5.0
_CALM_INTERVALS: Final = 3
_TARGETS: Final = (
    Target("lost", 0, at_most=True),
    Target("normal again after s", 5, at_most=True),
    # Memory that grows with the length of a surge grows from its first half to its second.
    Target("2nd half × 1st", 1.2, at_most=True),
)


@dataclass(slots=True, frozen=True)
class Surge:
    """From a rate to ten times as much, and back."""

    rate: int
    linger_ms: int
    acks: int

    @property
    def name(self) -> str:
        gathered = f"linger {self.linger_ms} ms" if self.linger_ms else "one a request"
        return f"{self.rate:,} → {self.rate * TIMES:,}/s, {gathered}, acks={'all' if self.acks == -1 else self.acks}"


SURGES: Final = (Surge(1_157, 0, -1), Surge(11_574, 5, -1))


@dataclass(slots=True)
class Course:
    """What happened over time; latencies are of the messages that were due in an interval."""

    before_seconds: float
    surge_seconds: float
    lost: int
    duplicates: int
    sent: int
    latencies_ms: Sequence[float]
    memory: list[tuple[float, float]] = field(default_factory=list)


def run(step: Step, asked: Asked) -> Results:
    before, during, after = (4, 10, 8) if asked.is_quick else (10, 60, 20)
    cores = choose_cores()
    courses: dict[str, Course] = {}
    for surge in SURGES:
        step(f"{surge.name}: {before + during + after} s")
        with scratch_folder(warm_bytes=0) as folder, Penstock().start(Path(folder), cores.server) as server:
            Penstock().make_topic(server, "surge")
            with _Watch(server) as watch:
                told = load(
                    "e2e",
                    port=server.port,
                    topics=["surge"],
                    cores=cores.load,
                    rate=surge.rate,
                    schedule=f"1x{before},{TIMES}x{during},1x{after}",
                    linger_ms=surge.linger_ms or None,
                    acks=surge.acks,
                    interval_ms=_INTERVAL_MS,
                    spin=cores.are_apart,
                )
            courses[surge.name] = _course(told, before, during, watch)
    return Results(shown=[_table(courses, during)], panels=_panels(courses))


class _Watch:
    """Looks at the memory of a server while the block lasts."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._is_over = Event()
        self._thread = Thread(target=self._look)
        self.seen: list[tuple[float, float]] = []

    def __enter__(self) -> "_Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        began = monotonic()
        while not self._is_over.wait(_SAMPLE_SECONDS):
            self.seen.append((monotonic() - began, self._server.memory_bytes() / MB))


def _course(told: Mapping[str, Any], before: float, during: float, watch: _Watch) -> Course:
    return Course(
        before_seconds=before,
        surge_seconds=during,
        lost=told["missing"],
        duplicates=told["duplicates"],
        sent=told["sent"],
        latencies_ms=[one["p99_us"] / 1e3 for one in told["intervals"]],
        memory=watch.seen,
    )


def seconds_until_normal(course: Course) -> float:
    """From the end of the surge until the 99th percentile stays near what it was; what never is counts to the end."""
    width = _INTERVAL_MS / 1e3
    begin, end = int(course.before_seconds / width), int((course.before_seconds + course.surge_seconds) / width)
    # The first second is that of a broker that has done nothing yet.
    usual = median(course.latencies_ms[int(1 / width) : begin])
    limit = max(_FACTOR * usual, usual + _MARGIN_MS)
    after = course.latencies_ms[end:]
    for number in range(len(after)):
        calm = after[number : number + _CALM_INTERVALS]
        if all(latency <= limit for latency in calm):
            return number * width
    return len(after) * width


def growth_within(course: Course) -> float:
    """The most memory in the surge's second half, as a multiple of the most in its first."""
    middle = course.before_seconds + course.surge_seconds / 2
    end = course.before_seconds + course.surge_seconds
    first = [size for when, size in course.memory if course.before_seconds <= when < middle]
    second = [size for when, size in course.memory if middle <= when < end]
    return max(second) / max(first) if first and second else 1.0


def _table(courses: Mapping[str, Course], during: float) -> Table:
    rows = []
    for name, course in courses.items():
        width = _INTERVAL_MS / 1e3
        begin, end = int(course.before_seconds / width), int((course.before_seconds + course.surge_seconds) / width)
        values: dict[str, str | float] = {
            "what": name,
            "messages": float(course.sent),
            "lost": float(course.lost + course.duplicates),
            "p99 before ms": median(course.latencies_ms[:begin]),
            "during": median(course.latencies_ms[begin:end]),
            "worst": max(course.latencies_ms[begin:end]),
            "after": median(course.latencies_ms[end:]),
            "normal again after s": seconds_until_normal(course),
            "memory before MB": course.memory[0][1],
            "most": max(size for _, size in course.memory),
            "2nd half × 1st": growth_within(course),
        }
        rows.append(Row(values, _TARGETS))
    how = (
        f"{TIMES} times as many messages of 1 KB for {during:g} s, one partition, a reader beside. The 99th percentile "
        f"end to end of each {_INTERVAL_MS} ms: its median before, during and after, and the worst. Lost "
        f"includes what was read twice."
    )
    return Table("Surge", how, rows, {name: asdict(course) for name, course in courses.items()})


def _panels(courses: Mapping[str, Course]) -> list[Bars | Curves]:
    spans = list({(one.before_seconds, one.before_seconds + one.surge_seconds) for one in courses.values()})
    latencies = {
        name: [(number * _INTERVAL_MS / 1e3, value) for number, value in enumerate(course.latencies_ms)]
        for name, course in courses.items()
    }
    memory = {name: course.memory for name, course in courses.items()}
    return [
        Curves("Surge: latency", "seconds", "p99 ms", latencies, has_log_y=True, spans=spans),
        Curves("Surge: memory", "seconds", "MB resident", memory, spans=spans),
    ]
