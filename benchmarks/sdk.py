"""Measures records a second, and CPU for each, of our client beside other people's, against one broker."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks import programs
from benchmarks.batches import MB
from benchmarks.measure import Step
from benchmarks.processes import Server
from benchmarks.report import Row, Table, Target
from benchmarks.samples import Rounds
from benchmarks.stage import Stage, running
from benchmarks.systems import Penstock, System

ROUNDS: Final = 3
SIZES: Final = {"100 B": 100, "1 KB": 1024}
# The numbers of messages, chosen so that each run takes about a second.
PRODUCERS: Final = {
    "penstock-send": ("penstock, send", 100_000),
    "penstock-sync-send": ("penstock.sync, send", 100_000),
    "penstock-arrow-send": ("penstock, send_batch of Arrow", 400_000),
    "confluent-send": ("confluent-kafka", 200_000),
    "aiokafka-send": ("aiokafka", 30_000),
    "kafka-python-send": ("kafka-python", 30_000),
}
CONSUMERS: Final = {
    "penstock-poll": ("penstock, poll", 200_000),
    "penstock-iterate": ("penstock, async for", 200_000),
    "penstock-arrow-poll": ("penstock, poll_arrow", 400_000),
    "confluent-poll": ("confluent-kafka", 200_000),
    "aiokafka-poll": ("aiokafka", 60_000),
    "kafka-python-poll": ("kafka-python", 60_000),
}
# What each of ours is held against.
AGAINST_PYTHON: Final = ("aiokafka", "kafka-python")
AGAINST_C: Final = ("confluent-kafka",)
HELD_AGAINST: Final = {
    "penstock, send": AGAINST_PYTHON,
    "penstock.sync, send": AGAINST_PYTHON,
    "penstock, send_batch of Arrow": AGAINST_C,
    "penstock, poll": AGAINST_PYTHON,
    "penstock, async for": AGAINST_PYTHON,
    "penstock, poll_arrow": AGAINST_C,
}


@dataclass(slots=True, frozen=True)
class Sample:
    """Of the client's process alone."""

    messages: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_seconds / self.messages * 1e6


@dataclass(slots=True, frozen=True)
class Work:
    """What a client is to do."""

    client: str
    messages: int
    size: int


def run(step: Step) -> list[Table]:
    with running((Penstock(),), step, warm_bytes=800 * MB) as stage:
        return [
            _measure(
                stage,
                "Sending",
                PRODUCERS,
                how="acks=all, idempotent, linger 5 ms, batches of 128 KB.",
            ),
            _measure(
                stage,
                "Reading",
                CONSUMERS,
                how="From the beginning of a topic, without a group, 500 messages a poll (20,000 rows of Arrow).",
            ),
        ]


def _measure(stage: Stage, title: str, clients: Mapping[str, tuple[str, int]], *, how: str) -> Table:
    results: dict[str, dict[str, Rounds[Sample]]] = {}
    ((system, server),) = stage.servers.items()
    for size_name, size in SIZES.items():
        with stage.topic(system, server) as filled:
            if clients is CONSUMERS:
                stage.step(f"{title}, {size_name}: filling the topic")
                most = max(messages for _, messages in clients.values())
                _client(stage, server, filled, Work("penstock-arrow-send", most, size))
            found: dict[str, list[Sample]] = {name: [] for name, _ in clients.values()}
            for number in range(ROUNDS):
                order = list(clients.items())
                for client, (name, messages) in order if number % 2 == 0 else reversed(order):
                    stage.step(f"{title}, {size_name}: {name}, round {number + 1} of {ROUNDS}")
                    work = Work(client, messages, size)
                    if clients is CONSUMERS:
                        found[name].append(_client(stage, server, filled, work))
                    else:
                        found[name].append(_send(stage, system, server, work))
        results[size_name] = {name: Rounds(samples) for name, samples in found.items()}
    conditions = (
        f"One partition, no compression, the client in a process of its own; medians of {ROUNDS} rounds in which the "
        f"clients take turns, the spread of records/s beside it. CPU is the client's. {stage.cores}. "
    )
    return make_table(results, title=title, how=conditions + how)


def _send(stage: Stage, system: System, server: Server, work: Work) -> Sample:
    with stage.topic(system, server) as topic:
        return _client(stage, server, topic, work)


def _client(stage: Stage, server: Server, topic: str, work: Work) -> Sample:
    command = [sys.executable, "-m", "benchmarks.sdk_client", work.client, f"127.0.0.1:{server.port}", topic]
    result = programs.run([*command, str(work.messages), str(work.size)], stage.cores.load)
    return Sample(work.messages, result["seconds"], result["cpu_seconds"])


def make_table(results: Mapping[str, Mapping[str, Rounds[Sample]]], *, title: str, how: str) -> Table:
    rows = []
    for size, of in results.items():
        for name, rounds in of.items():
            values: dict[str, str | float] = {
                "by": f"{name}, {size}",
                "records/s": rounds.median(lambda one: one.per_second),
                "spread": rounds.spread(lambda one: one.per_second),
                "CPU µs/record": rounds.median(lambda one: one.cpu_us),
            }
            targets: tuple[Target, ...] = ()
            if rivals := HELD_AGAINST.get(name):
                fastest = max(of[rival].median(lambda one: one.per_second) for rival in rivals)
                thriftiest = min(of[rival].median(lambda one: one.cpu_us) for rival in rivals)
                values["held against"] = " and ".join(rivals)
                values["records/s, of theirs"] = rounds.median(lambda one: one.per_second) / fastest
                values["CPU, of theirs"] = rounds.median(lambda one: one.cpu_us) / thriftiest
                targets = (
                    Target("records/s, of theirs", 1.0, at_most=False),
                    Target("CPU, of theirs", 1.0, at_most=True),
                )
            else:
                values |= {"held against": "", "records/s, of theirs": "", "CPU, of theirs": ""}
            rows.append(Row(values, targets))
    raw = {size: {name: rounds.as_json() for name, rounds in of.items()} for size, of in results.items()}
    return Table(title, how, rows, raw)
