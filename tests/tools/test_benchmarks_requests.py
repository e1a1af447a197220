"""Penstock beside a warm Kafka: which figures are held against which targets. The systems are for `make
bench-requests`."""

from benchmarks import latency, wire
from benchmarks.latency import Pace
from benchmarks.peers.measuring import Paced
from benchmarks.peers.tables import KAFKA, OURS
from benchmarks.report import judge
from benchmarks.requests import FLUSHING_KAFKA, cost_table, latency_table, promise_table
from benchmarks.samples import Rounds
from benchmarks.systems import FLUSHED_BY_OS
from benchmarks.workloads import WORKLOADS, Workload


def sample(cpu_us: float) -> wire.Sample:
    return wire.Sample(1000, 1_000_000, 1, cpu_us / 1000, 0, {"p99_us": 1_000.0})


def throughput() -> dict[Workload, dict[str, Rounds[wire.Sample]]]:
    found = {}
    for workload in WORKLOADS:
        costs = {OURS: 30, FLUSHING_KAFKA: 300}
        if workload.options.get("acks", 1) == 1:
            costs = {OURS: 24, FLUSHED_BY_OS: 15, KAFKA: 20}
        found[workload] = {name: Rounds([sample(cost)] * 3) for name, cost in costs.items()}
    return found


def paced(p99: float, *, cores: float, missing: int = 0) -> Paced:
    return Paced(latency.Sample(p99, p99, p99, p99, p99, 10.0, 0, (), cores), missing)


def test_the_cost_of_a_request_is_held_against_kafkas_in_both_generations() -> None:
    rows = {row.values["what"]: row for row in cost_table(throughput(), "").rows}
    for suffix in ("", ", Produce 7"):
        assert rows[f"one message a request, c10 d1, acks=1{suffix}"].target == "Penstock / Kafka ≤ 1.3"
        assert rows[f"one message a request, c10 d1, acks=1{suffix}"].is_met is True
        assert rows[f"one message a request, c100 d1, acks=1{suffix}"].is_met is False
        assert rows[f"produce 16 KB, acks=1{suffix}"].is_met is False
        assert rows[f"one message a request, c1 d1, acks=1{suffix}"].is_met is None
    for suffix in ("", ", Fetch 11"):
        assert rows[f"fetch 16 KB{suffix}"].is_met is True
        assert rows[f"fetch 128 KB{suffix}"].target == "Penstock / Kafka ≤ 1.3"
    assert not [what for what in rows if "acks=all" in str(what)]


def test_each_is_put_beside_the_one_that_promises_as_much() -> None:
    rows = {row.values["what"]: row.values for row in promise_table(throughput(), "").rows}
    unflushed, flushed = rows["produce 16 KB, acks=1"], rows["produce 16 KB, acks=all"]
    assert (unflushed["an ack means"], unflushed["× "]) == ("in the page cache", 0.75)
    assert (flushed["an ack means"], flushed["× "]) == ("on the disk", 0.1)


def test_a_message_has_to_be_fast_and_cheap_and_there() -> None:
    found = {
        Pace(1_000, 0, 1): {
            OURS: Rounds([paced(4, cores=0.3)]),
            FLUSHED_BY_OS: Rounds([paced(4, cores=0.4)]),
            KAFKA: Rounds([paced(1, cores=0.3)]),
        },
        Pace(11_574, 5, 1): {OURS: Rounds([paced(0, cores=0.3, missing=5)])},
    }
    judged = judge([latency_table(found, "")])
    assert judged is not None
    assert [(row.values["what"], row.values["figure"], row.is_met) for row in judged.rows] == [
        ("1,000/s, one a request, acks=1: Penstock", "p99 ms", True),
        ("1,000/s, one a request, acks=1: Penstock", "cores", True),
        ("1,000/s, one a request, acks=1: Penstock, flush=os", "p99 ms", False),
        ("1,000/s, one a request, acks=1: Penstock, flush=os", "cores", False),
        ("11,574/s, linger 5 ms, acks=1: Penstock", "p99 ms", True),
        ("11,574/s, linger 5 ms, acks=1: Penstock", "missing", False),
    ]
