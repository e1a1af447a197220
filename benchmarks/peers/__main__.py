"""Measures Penstock beside Apache Kafka, Redis Streams, NATS JetStream and RabbitMQ streams, in one run on the same
cores.

Every system is loaded by the same program over its own protocol, in turns, while the others are idle, and after it was
loaded until it was warm. First as each acknowledges messages that are not on the disk yet, then those that can flush
before they acknowledge.
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
from benchmarks.peers.measuring import FULL, QUICK, Comparison, Findings, settings_of
from benchmarks.peers.nats import Nats
from benchmarks.peers.rabbitmq import RabbitMQ
from benchmarks.peers.redis import Redis
from benchmarks.peers.tables import Figures, paced_table, panels, summary, target_table, warming_table, wire_table
from benchmarks.processes import ServerError
from benchmarks.report import Row, Table
from benchmarks.samples import Rounds
from benchmarks.stage import running
from benchmarks.suite import Asked, Results, Suite, main
from benchmarks.systems import Penstock, System, flushed_by_os
from benchmarks.workloads import CURRENT, OLD, WORKLOADS
from tools.clients.packages import ROOT

_WARM_BYTES: Final = 2 * GB


@dataclass(slots=True, frozen=True)
class Peer:
    """How to get it; `flushing` returns None for one that does not flush before it acknowledges."""

    commands: tuple[str, ...]
    plain: Callable[[], System]
    flushing: Callable[[], System | None]
    jars: bool = False


def _flushing_nats() -> System | None:
    nats = Nats(flush=True)
    return nats if nats.can_flush() else None


PEERS: Final = {
    "kafka": Peer(("java", "mvn"), lambda: Kafka(flush=False), lambda: Kafka(flush=True), jars=True),
    "redis": Peer((Redis.command,), lambda: Redis(flush=False), lambda: Redis(flush=True)),
    "nats": Peer((Nats.command,), lambda: Nats(flush=False), _flushing_nats),
    "rabbitmq": Peer((RabbitMQ.command,), RabbitMQ, lambda: None),
}


def run(step: Step, asked: Asked) -> Results:
    effort = QUICK if asked.is_quick else FULL
    results = Results()
    starts = footprint.measure_all((Penstock(),), step, rounds=effort.start_rounds)
    there: list[Peer] = []
    for name in asked.parts:
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
    plain = (Penstock(), flushed_by_os(), *(peer.plain() for peer in there))
    flushing = (Penstock(), *(system for peer in there if (system := peer.flushing()) is not None))
    findings = Findings()
    for systems, acks in ((plain, 1), (flushing, -1)):
        workloads = [each for each in WORKLOADS if each.options.get("acks", 1) == acks]
        paces = [Pace(rate, linger, acks) for linger in (0, LINGER_MS) for rate in RATES]
        if acks == 1:
            paces += [Pace(rate, 0, acks, OLD) for rate in RATES]
        with running(systems, step, warm_bytes=_WARM_BYTES) as stage:
            comparison = Comparison(stage, effort, findings)
            comparison.warm_up(acks)
            comparison.measure(workloads, paces)
    results.remarks += findings.failures
    figures = Figures(findings, starts)
    how = (
        f"Messages of 1 KB. Batches go over 4 connections with 4 requests in flight; cN dM is N connections with M in "
        f"flight; 4 fetches are in flight. {CURRENT} unless another version is named. Every system was warmed before "
        f"(below). CPU is the server's. At equal promise: with acks=1 and in fetches a figure in brackets is a "
        f"multiple of that of Penstock with penstock.flush=os, which like its peers acknowledges and hands out what is "
        f"not on the disk yet; with acks=all, where all flush before they acknowledge, of that of Penstock's defaults. "
        f"– is what a system does not have, or a rate that it does not keep up with. Medians of {effort.rounds} "
        f"rounds in turns; {choose_cores()}."
    )
    results.shown = [
        summary(figures, [system.name for system in plain], how),
        target_table(figures),
        warming_table(findings, effort.patience),
    ]
    results.details = [
        _systems_table(plain, flushing),
        wire_table(findings, "Ratios are to Penstock's defaults, in the same round; the spread is that of the rounds."),
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
        by = "acks=all" if isinstance(flushed, Penstock) else settings_of(flushed) if flushed else "–"
        rows.append(
            Row(
                {
                    "system": system.name,
                    "version": _version(system),
                    "settings": settings_of(system),
                    "flushed by": by,
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


def _protocol(system: System) -> str:
    return f"{system.name}'s own protocol" if isinstance(system, Foreign) else "Kafka's protocol"


def _start_table(starts: dict[str, Rounds[footprint.Sample]]) -> Table:
    return footprint.make_table(starts, judged=Penstock.name)


SUITE: Final = Suite(name="peers", about=__doc__, parts=tuple(PEERS), run=run)

if __name__ == "__main__":
    sys.exit(main(SUITE, sys.argv[1:]))
