"""Penstock beside other systems: how figures become tables and targets. The systems themselves are for
`make bench-peers`."""

import socket
from threading import Thread

import pytest

from benchmarks import footprint, latency, wire
from benchmarks.latency import Pace
from benchmarks.peers.measuring import Findings, Paced
from benchmarks.peers.tables import (
    KAFKA,
    NOTHING,
    OURS,
    Figures,
    paced_table,
    panels,
    summary,
    target_table,
    warming_table,
    wire_table,
)
from benchmarks.peers.warming import Patience, Reading, Warmth
from benchmarks.programs import ProgramError, load
from benchmarks.samples import Rounds
from benchmarks.systems import FLUSHED_BY_OS
from benchmarks.workloads import WORKLOADS

REDIS = "Redis Streams"
SYSTEMS = (OURS, FLUSHED_BY_OS, KAFKA, REDIS)


def sample(*, mb_per_s: float, cpu_seconds: float) -> wire.Sample:
    return wire.Sample(1000, 1_000_000_000, 1000 / mb_per_s, cpu_seconds, 0)


def paced(p99: float, missing: int = 0) -> Paced:
    buckets = [(p99 * 1e3, 100)]
    return Paced(latency.Sample(p99 / 2, p99, p99 * 2, p99 * 3, p99, 10.0, 0, buckets), missing)


def findings() -> Findings:
    found = Findings()
    for workload in WORKLOADS:
        of = {
            OURS: Rounds([sample(mb_per_s=1000, cpu_seconds=0.5)] * 3),
            KAFKA: Rounds([sample(mb_per_s=500, cpu_seconds=2)] * 3),
            REDIS: Rounds([sample(mb_per_s=400, cpu_seconds=4)] * 3),
        }
        if workload.options.get("acks", 1) == 1:
            of[FLUSHED_BY_OS] = Rounds([sample(mb_per_s=2000, cpu_seconds=0.4)] * 3)
        found.throughput[workload] = of
    found.paced[Pace(11_574, 0, 1)] = {OURS: Rounds([paced(5)]), KAFKA: Rounds([paced(300, missing=7)])}
    found.paced[Pace(1_000, 0, 1)] = {OURS: Rounds([paced(4)]), FLUSHED_BY_OS: Rounds([paced(4)])}
    return found


def figures() -> Figures:
    return Figures(findings(), {OURS: Rounds([footprint.Sample(0.5, 0.4, 40_000_000)])})


def test_figures_are_told_as_multiples_of_ours_at_equal_promise() -> None:
    rows = {row.values["figure"]: row.values for row in summary(figures(), SYSTEMS, "how").rows}
    unflushed, flushed = rows["produce 1 MB, acks=1: MB/s"], rows["produce 1 MB, acks=all: MB/s"]
    assert [unflushed[name] for name in SYSTEMS] == ["1,000 (× 0.50)", "2,000", "500 (× 0.25)", "400 (× 0.20)"]
    assert [flushed[name] for name in SYSTEMS] == ["1,000", NOTHING, "500 (× 0.50)", "400 (× 0.40)"]
    assert rows["start: s"][KAFKA] == NOTHING


def test_who_does_not_keep_up_has_no_latency() -> None:
    rows = {row.values["figure"]: row.values for row in summary(figures(), SYSTEMS, "how").rows}
    latencies = rows["11,574/s, one a request, acks=1: p99 ms"]
    assert (latencies[OURS], latencies[KAFKA]) == ("5.00", NOTHING)
    told = {str(row.values["by"]): row.values[""] for row in paced_table(findings(), "how").rows}
    assert (told[OURS], told[KAFKA]) == ("", "does not keep up")


def test_targets_are_judged_against_kafka_and_the_best_of_the_others() -> None:
    rows = {(row.values["what"], row.values["figure"]): row for row in target_table(figures()).rows}
    cost = rows["produce 16 KB, acks=1", "CPU a request, of Apache Kafka's"]
    assert (cost.values["measured"], cost.target, cost.is_met) == (0.25, "≤ 0.6", True)
    assert rows["fetch 16 KB, Fetch 11", "CPU a request, of Apache Kafka's"].target == "≤ 1.2"
    others = rows["produce 16 KB, acks=1", "MB/s, × Redis Streams's, the best other"]
    assert (others.values["measured"], others.is_met) == (2.5, False)
    assert rows["11,574/s, one a request, acks=1: Penstock", "p99 ms"].is_met
    assert rows["start", "s"].is_met


def test_without_flushes_a_message_has_to_be_faster() -> None:
    rows = {(row.values["what"], row.values["figure"]): row for row in target_table(figures()).rows}
    assert rows["1,000/s, one a request, acks=1: Penstock", "p99 ms"].is_met
    assert not rows[f"1,000/s, one a request, acks=1: {FLUSHED_BY_OS}", "p99 ms"].is_met


def test_without_kafka_the_other_targets_are_judged() -> None:
    found = findings()
    for of in found.throughput.values():
        del of[KAFKA]
    figures = {str(row.values["figure"]) for row in target_table(Figures(found, {})).rows}
    assert not [figure for figure in figures if KAFKA in figure]
    assert "MB/s, × Redis Streams's, the best other" in figures


def test_every_figure_of_every_system_is_in_a_table_and_a_plot() -> None:
    flushed = sum(each.options.get("acks") == -1 for each in WORKLOADS)
    assert len(wire_table(findings(), "how").rows) == len(WORKLOADS) * len(SYSTEMS) - flushed
    assert len(panels(findings())) == 4


def test_a_table_says_how_long_each_was_warmed_and_whether_that_was_enough() -> None:
    found = findings()
    found.warmed[KAFKA, "defaults"] = Warmth([Reading(10, 300), Reading(70, 100)], is_warm=True)
    found.warmed[REDIS, "always"] = Warmth([Reading(180, 100)], is_warm=False)
    table = warming_table(found, Patience(seconds=60, within=0.05, at_most_seconds=180))
    told = [(row.values["system"], row.values["warmed s"], row.values["warm"]) for row in table.rows]
    assert told == [(KAFKA, 70, "yes"), (REDIS, 180, "no, measured as it was")]
    assert "within 5% of the median for 60 s, and for 180 s at most" in table.how


@pytest.mark.parametrize("protocol", ["redis", "nats", "rabbitmq"])
def test_a_load_of_another_protocol_says_that_the_server_hung_up(protocol: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def hang_up() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(10)

        thread = Thread(target=hang_up)
        thread.start()
        with pytest.raises(ProgramError, match=r"closed the connection|receiving|sending"):
            load("produce", port=port, topics=["t"], protocol=protocol, requests=10)
        thread.join()


def test_a_redis_stream_is_counted_by_its_replies() -> None:
    """A server that only knows how to say yes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def say_yes() -> None:
            sock, _ = listener.accept()
            with sock:
                received = b""
                while received.count(b"XADD") < 20 or not received.endswith(b"\r\n"):
                    received += sock.recv(1 << 20)
                sock.sendall(b"$3\r\n1-1\r\n" * 20)
                sock.recv(1)

        thread = Thread(target=say_yes)
        thread.start()
        port = listener.getsockname()[1]
        told = load("produce", port=port, topics=["t"], protocol="redis", requests=2, batch_bytes=10_300, in_flight=2)
        thread.join()
    assert (told["requests"], told["messages"], told["bytes"]) == (2, 20, 20_000)


def test_a_protocol_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ProgramError, match="there are kafka, redis, nats and rabbitmq"):
        load("produce", port=1, topics=["t"], protocol="carrier-pigeon", requests=1)
