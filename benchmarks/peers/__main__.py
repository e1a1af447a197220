"""Penstock beside Apache Kafka, Redis Streams, NATS JetStream and RabbitMQ streams, in the same run on the same cores.

Every system is loaded by the same program over its own protocol, in turns, while the others are idle. First as each
acknowledges messages that are not on the disk yet, then those that can flush before they acknowledge.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import penstock
from benchmarks import footprint
from benchmarks.batches import GB
from benchmarks.cores import choose_cores
from benchmarks.latency import LINGER_MS, RATES, Pace
from benchmarks.measure import Step
from benchmarks.peers.foreign import Foreign
from benchmarks.peers.installing import install
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.measuring import FULL, QUICK, Comparison, Findings
from benchmarks.peers.nats import Nats
from benchmarks.peers.rabbitmq import RabbitMQ
from benchmarks.peers.redis import Redis
from benchmarks.peers.tables import Figures, paced_table, panels, summary, target_table, wire_table
from benchmarks.processes import ServerError
from benchmarks.report import Row, Table
from benchmarks.samples import Rounds
from benchmarks.stage import running
from benchmarks.suite import Results, Suite, main
from benchmarks.systems import Penstock, System
from benchmarks.workloads import WORKLOADS
from tools.clients.packages import ROOT

# Slower than the same with more in flight, and told by `python -m benchmarks wire`.
_LEFT_OUT: Final = "one message a request, c10 d1,"
_WARM_BYTES: Final = 2 * GB


@dataclass(slots=True, frozen=True)
class Peer:
    """How to get it; `flushing` is None for one that does not flush before it acknowledges."""

    commands: tuple[str, ...]
    plain: Callable[[], System]
    flushing: Callable[[], System] | None
    jars: bool = False


PEERS: Final = {
    "kafka": Peer(("java", "mvn"), lambda: Kafka(flush=False), lambda: Kafka(flush=True), jars=True),
    "redis": Peer((Redis.command,), lambda: Redis(flush=False), lambda: Redis(flush=True)),
    "nats": Peer((Nats.command,), Nats, None),
    "rabbitmq": Peer((RabbitMQ.command,), RabbitMQ, None),
}


def run(step: Step, names: Sequence[str], is_quick: bool) -> Results:
    effort = QUICK if is_quick else FULL
    results = Results()
    starts = footprint.measure_all((Penstock(),), step, rounds=effort.start_rounds)
    there: list[Peer] = []
    for name in names:
        peer = PEERS[name]
        step(f"looking for {name}")
        if missing := install(peer.commands, jars=peer.jars):
            results.remarks.append(f"Without {name}, which could not be installed: {_in_short(missing)}.")
            continue
        try:
            starts |= footprint.measure_all((peer.plain(),), step, rounds=effort.start_rounds)
        except (ServerError, OSError, subprocess.SubprocessError) as error:
            results.remarks.append(f"Without {name}, which does not start: {_in_short(error).partition(':')[0]}.")
            continue
        there.append(peer)
    plain = (Penstock(), *(peer.plain() for peer in there))
    flushing = (Penstock(), *(peer.flushing() for peer in there if peer.flushing is not None))
    findings = Findings()
    for systems, acks in ((plain, 1), (flushing, -1)):
        workloads = [
            each for each in WORKLOADS if each.options.get("acks", 1) == acks and not each.name.startswith(_LEFT_OUT)
        ]
        paces = [Pace(rate, linger, acks) for linger in (0, LINGER_MS) for rate in RATES]
        with running(systems, step, warm_bytes=_WARM_BYTES) as stage:
            Comparison(stage, effort, findings).measure(workloads, paces)
    results.remarks += findings.failures
    figures = Figures(findings, starts)
    how = (
        f"Messages of 1 KB. Batches go over 4 connections with 4 requests in flight; cN dM is N connections with M in "
        f"flight; 4 fetches are in flight. acks=all is on the disk before the acknowledgement; – is what a system does "
        f"not have, or a rate that it does not keep up with. CPU is the server's. Medians of {effort.rounds} rounds in "
        f"turns, and in brackets what is the figure as a multiple of Penstock's; {choose_cores()}."
    )
    results.shown = [summary(figures, [system.name for system in plain], how), target_table(figures)]
    results.details = [
        _systems_table(plain, flushing),
        wire_table(findings, "Ratios are to Penstock's, in the same round; the spread is that of the rounds."),
        paced_table(
            findings, f"From when a message was due to when a reader had it; {effort.paced_seconds:g} s a round."
        ),
        _start_table(starts),
    ]
    results.panels = panels(findings)
    return results


def _in_short(error: object) -> str:
    """On one line, and without where this is."""
    return " ".join(str(error).replace(f"{ROOT}/", "").split())[:200]


def _systems_table(plain: Sequence[System], flushing: Sequence[System]) -> Table:
    rows = []
    for system in plain:
        flushed = next((each for each in flushing if each.name == system.name), None)
        rows.append(
            Row(
                {
                    "system": system.name,
                    "version": _version(system),
                    "settings": _settings(system),
                    "flushed by": "acks=all"
                    if isinstance(system, Penstock)
                    else _settings(flushed)
                    if flushed
                    else "–",
                    "load": f"{_protocol(system)}, by the load generator in C",
                }
            )
        )
    how = (
        "All on one core, the load on another. Where requests have no batches, as many messages as a batch would hold "
        "are sent together, and the request is done with the last of their acknowledgements. Such systems are read "
        "over 4 connections with one request in flight, each reading everything."
    )
    return Table("Systems", how, rows)


def _version(system: System) -> str:
    return system.version() if isinstance(system, Foreign | Kafka) else penstock.__version__


def _settings(system: System) -> str:
    return system.settings() if isinstance(system, Foreign | Kafka) else "defaults"


def _protocol(system: System) -> str:
    return f"{system.name}'s own protocol" if isinstance(system, Foreign) else "Kafka's protocol"


def _start_table(starts: dict[str, Rounds[footprint.Sample]]) -> Table:
    return footprint.make_table(starts, judged=Penstock.name)


SUITE: Final = Suite(name="peers", about=__doc__, parts=tuple(PEERS), run=run)

if __name__ == "__main__":
    sys.exit(main(SUITE, sys.argv[1:]))
