"""Measures what idle partitions and connections cost: their memory, the start with many, the first append."""

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.batches import KB, MB
from benchmarks.cores import choose_cores
from benchmarks.measure import Step
from benchmarks.processes import Server
from benchmarks.programs import load
from benchmarks.report import Row, Table, Target
from benchmarks.samples import Rounds
from benchmarks.scratch import scratch_folder
from benchmarks.suite import Asked, Results
from benchmarks.systems import ASK_VERSIONS, Penstock

MANY: Final = 1000


def run(step: Step, asked: Asked) -> Results:
    rounds = 1 if asked.is_quick else 3
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        for name, value in _measure(step, f"round {number + 1} of {rounds}").items():
            found.setdefault(name, []).append(value)
    limits = {
        "KB for an idle partition": 20,
        "KB for an idle connection": 50,
        f"start with {MANY:,} partitions, s": 3,
        "first append to a partition, mean ms": 1,
    }
    rows = []
    for name, values in found.items():
        of = Rounds(values)
        targets = (Target("measured", limits[name], at_most=True),) if name in limits else ()
        rows.append(Row({"what": name, "measured": of.median(float), "spread": of.spread(float)}, targets))
    how = (
        f"{MANY:,} of each. The first append is one message to each partition, acks=1, one after the other; the next "
        f"ones are the same again. Medians of {rounds}."
    )
    return Results(shown=[Table("Idle", how, rows, dict(found))])


def _measure(step: Step, told: str) -> dict[str, float]:
    cores, system = choose_cores(), Penstock()
    found: dict[str, float] = {}
    with scratch_folder(warm_bytes=0) as name:
        folder = Path(name)
        with system.start(folder, cores.server) as server:
            step(f"idle connections, {told}")
            found["MB of an idle broker"] = server.memory_bytes() / MB
            found["KB for an idle connection"] = _kb_each_connection(server)
            step(f"idle partitions, {told}")
            before = server.memory_bytes()
            system.make_topic(server, "many", MANY)
            found["KB for an idle partition"] = (server.memory_bytes() - before) / KB / MANY
            step(f"first appends, {told}")
            for which in ("first", "next"):
                used = server.cpu_seconds()
                took = load(
                    "produce", port=server.port, topics=["many"], cores=cores.load, partitions=MANY, requests=MANY,
                    in_flight=1,
                )["latency"]  # fmt: skip
                found[f"{which} append to a partition, mean ms"] = took["mean_us"] / 1e3
                found[f"{which} append to a partition, p99 ms"] = took["p99_us"] / 1e3
                found[f"{which} append to a partition, CPU ms"] = (server.cpu_seconds() - used) * 1e3 / MANY
            found["KB for a partition that was written to"] = (server.memory_bytes() - before) / KB / MANY
        step(f"start with {MANY:,} partitions, {told}")
        with system.start(folder, cores.server) as server:
            found[f"start with {MANY:,} partitions, s"] = server.start_seconds
            found["MB after that start"] = server.memory_bytes() / MB
            server.process.kill()
        with system.start(folder, cores.server) as server:
            found[f"start with {MANY:,} partitions after a kill -9, s"] = server.start_seconds
    return found


def _kb_each_connection(server: Server) -> float:
    before = server.memory_bytes()
    with ExitStack() as stack:
        for _ in range(MANY):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            sock.sendall(ASK_VERSIONS)
            size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL))
            sock.recv(size, socket.MSG_WAITALL)
        return (server.memory_bytes() - before) / KB / MANY
