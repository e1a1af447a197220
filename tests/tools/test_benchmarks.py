"""The benchmarks' load generator and floor: that they do what is measured. How fast is for `make bench` to say."""

import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from benchmarks.batches import make_batch
from benchmarks.latency import Pace, curve
from benchmarks.latency import Sample as LatencySample
from benchmarks.processes import Server, ServerError, accepts
from benchmarks.programs import ProgramError, load, program
from benchmarks.report import Row, Table, Target, judge, markdown, save
from benchmarks.samples import Rounds
from benchmarks.systems import Floor, Penstock, System
from benchmarks.workloads import CURRENT, OLD, WORKLOADS
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.protocol.session import ClientSession

numbers = count()
SYSTEMS: list[System] = [Penstock(), Floor()]


@pytest.fixture(scope="module", params=SYSTEMS, ids=lambda system: system.name)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[System, Server]]:
    system: System = request.param
    with system.start(tmp_path_factory.mktemp("server"), cores=()) as server:
        yield system, server


@pytest.fixture
def topic(running: tuple[System, Server]) -> Iterator[str]:
    system, server = running
    name = f"topic-{next(numbers)}"
    system.make_topic(server, name, partitions=3)
    yield name
    system.drop_topic(server, name)


def drive(running: tuple[System, Server], mode: str, topic: str, **options: object) -> dict[str, Any]:
    return load(mode, port=running[1].port, topics=[topic], cores=(), **options)


@pytest.mark.parametrize("acks", [-1, 0, 1])
@pytest.mark.parametrize("batch_bytes", [0, 50_000])
def test_every_message_produced_is_fetched_once(
    running: tuple[System, Server], topic: str, acks: int, batch_bytes: int
) -> None:
    options = {"partitions": 3, "connections": 2}
    produced = drive(
        running, "produce", topic, requests=200, acks=acks, batch_bytes=batch_bytes, in_flight=4, **options
    )
    each = 49 if batch_bytes else 1
    assert (produced["requests"], produced["messages"], produced["messages_per_batch"]) == (200, 200 * each, each)
    # What was written before this one is flushed with it, and so it is there for the readers.
    drive(running, "produce", topic, requests=3, acks=-1, in_flight=3, partitions=3)
    fetched = drive(running, "fetch", topic, max_bytes=20_000, in_flight=2, **options)
    assert fetched["messages"] == 200 * each + 3
    assert fetched["bytes"] >= produced["bytes"]


@pytest.mark.parametrize("fetch_version", range(4, 19))
def test_every_version_that_clients_speak_is_spoken(
    running: tuple[System, Server], topic: str, fetch_version: int
) -> None:
    versions = {"produce_version": min(fetch_version - 1, 13), "fetch_version": fetch_version, "partitions": 3}
    drive(running, "produce", topic, requests=30, acks=-1, **versions)
    assert drive(running, "fetch", topic, max_bytes=5_000, **versions)["messages"] == 30
    told = drive(running, "e2e", topic, rate=1000, seconds=0.05, **versions)
    assert (told["sent"], told["received"], told["missing"]) == (50, 50, 0)


def test_a_version_that_is_not_spoken_is_refused() -> None:
    with pytest.raises(ProgramError, match="version 14 is not spoken: the last is 13"):
        load("produce", port=1, topics=["t"], requests=1, produce_version=14)
    with pytest.raises(ProgramError, match="version 19 is not spoken: the last is 18"):
        load("produce", port=1, topics=["t"], requests=1, fetch_version=19)


def test_fetching_goes_around_as_often_as_it_is_told(running: tuple[System, Server], topic: str) -> None:
    drive(running, "produce", topic, requests=50, acks=-1)
    assert drive(running, "fetch", topic, loops=4, max_bytes=5_000)["messages"] == 200


def test_producing_ends_when_the_time_is_over(running: tuple[System, Server], topic: str) -> None:
    produced = drive(running, "produce", topic, seconds=0.1)
    assert produced["requests"] == produced["latency"]["count"] > 0


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("linger_ms", [0, 5])
def test_every_message_sent_at_a_rate_is_read(
    running: tuple[System, Server], topic: str, acks: int, linger_ms: int
) -> None:
    told = drive(running, "e2e", topic, rate=1000, seconds=0.3, acks=acks, linger_ms=linger_ms)
    assert {name: told[name] for name in ("sent", "acked", "received", "missing", "duplicates")} == {
        "sent": 300,
        "acked": 300,
        "received": 300,
        "missing": 0,
        "duplicates": 0,
    }
    assert told["latency"]["count"] == told["ack"]["count"] == 300
    assert (told["requests"] == 300) is (linger_ms == 0)


def test_a_surge_follows_its_schedule(running: tuple[System, Server], topic: str) -> None:
    told = drive(
        running,
        "e2e",
        topic,
        rate=500,
        schedule="1x0.2,4x0.2,1x0.2",
        interval_ms=200,
        partitions=3,
        connections=3,
        consumers=2,
        buckets=True,
    )
    assert [interval["received"] for interval in told["intervals"]] == [100, 400, 100]
    assert sum(count for _, count in told["latency"]["buckets"]) == 600


def test_an_error_of_the_broker_fails_the_load(tmp_path: Path) -> None:
    with Penstock().start(tmp_path, cores=()) as server:
        with pytest.raises(ProgramError, match="failed, the first one with error 3"):
            load("produce", port=server.port, topics=["nowhere"], requests=1, produce_version=12, fetch_version=12)
        with pytest.raises(ProgramError, match="Metadata failed with error 3: is the topic there"):
            load("produce", port=server.port, topics=["nowhere"], requests=1)
        with pytest.raises(ProgramError, match="ListOffsets failed with error 3"):
            load("fetch", port=server.port, topics=["nowhere"], produce_version=12, fetch_version=12)


def test_the_server_is_measured(running: tuple[System, Server], topic: str) -> None:
    before = running[1].cpu_seconds()
    drive(running, "produce", topic, requests=500)
    assert running[1].cpu_seconds() > before > 0
    assert running[1].memory_bytes() > 1_000_000


def test_the_floor_refuses_a_batch_whose_checksum_is_wrong(tmp_path: Path) -> None:
    with Floor().start(tmp_path, cores=()) as server:
        batch = make_batch(5000)
        assert produce_batch(server.port, batch) == ErrorCode.NONE
        batch[-1] ^= 1
        assert produce_batch(server.port, batch) == ErrorCode.CORRUPT_MESSAGE


def produce_batch(port: int, batch: bytearray) -> int:
    """The error code that the batch is answered with."""
    session = ClientSession()
    data = PartitionProduceData(index=0, records=bytes(batch))
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="topic", partition_data=[data])])
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"".join(session.send(request, 9)[1]))
        while not (replies := session.receive(sock.recv(4096))):
            pass
    response = replies[0].response
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code


def test_a_port_of_another_process_is_not_measured(tmp_path: Path) -> None:
    with Floor().start(tmp_path, cores=()) as server, pytest.raises(ServerError, match="belongs to another process"):
        Server(["sleep", "60"], port=server.port, folder=tmp_path, cores=(), is_ready=accepts)


def test_a_server_that_ends_says_why(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"ended with 1: .*usage: floor"):
        Server([str(program("floor")), "--port", "1"], port=1, folder=tmp_path, cores=(), is_ready=accepts)


def test_results_are_told_with_their_targets(tmp_path: Path) -> None:
    rows = [
        Row({"what": "a", "ms": 3.0, "spread": "2–4"}, (Target("ms", 5, at_most=True),)),
        Row({"what": "b", "ms": 7.0, "spread": ""}, (Target("ms", 5, at_most=True),)),
    ]
    table = Table("Times", "How long it takes.", rows, {"a": [1, 2]})
    assert "| a | 3.00 | 2–4 | ms ≤ 5 | yes |" in markdown(table)
    judged = judge([table])
    assert judged is not None
    assert [(row.values["what"], row.is_met) for row in judged.rows] == [("a", True), ("b", False)]
    save("times", [table], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["times.json", "times.md"]
    assert judge([Table("Nothing", "", [Row({"what": "c"})])]) is None


def test_rounds_have_a_median_a_spread_and_ratios_within_them() -> None:
    ours, theirs = Rounds([1.0, 4.0, 2.0]), Rounds([1.0, 2.0, 4.0])
    assert ours.median(float) == 2
    assert ours.spread(float) == "1.00–4.00"
    assert ours.ratio(theirs, float) == 1


def test_a_curve_of_latencies_goes_through_all_rounds() -> None:
    def sample(*buckets: tuple[float, int]) -> LatencySample:
        return LatencySample(0, 0, 0, 0, 0, 0, 0, buckets)

    points = dict(curve(Rounds([sample((1000, 50)), sample((2000, 49), (9000, 1))])))
    assert (points[0.5], points[0.9], points[0.99], points[0.999]) == (1, 2, 2, 9)


def test_a_pace_is_held_against_the_targets_of_its_rate() -> None:
    def limits(pace: Pace) -> dict[str, float]:
        return {target.column: target.limit for target in pace.targets}

    assert limits(Pace(1_000, 0, 1)) == {"p99 ms": 5, "cores": 0.35}
    assert limits(Pace(1_000, 5, 1)) == {}
    assert limits(Pace(11_574, 0, 1)) == {"p99 ms": 10, "p99.9 ms": 25}
    assert limits(Pace(11_574, 5, 1)) == {"p99 ms": 10}


def test_what_does_not_wait_for_the_disk_is_measured_in_both_generations_of_versions() -> None:
    spoken = {(each.name, each.generation) for each in WORKLOADS}
    assert ("one message a request, c1 d1, acks=1", CURRENT) in spoken
    assert ("one message a request, c1 d1, acks=1, Produce 7", OLD) in spoken
    assert ("fetch 16 KB", CURRENT) in spoken
    assert ("fetch 16 KB, Fetch 11", OLD) in spoken
    assert {generation for name, generation in spoken if "acks=all" in name} == {CURRENT}
    old = next(each for each in WORKLOADS if each.generation == OLD)
    assert (old.with_versions["produce_version"], old.with_versions["fetch_version"]) == (7, 11)
    assert (Pace(1_000, 0, 1).name, Pace(1_000, 0, 1, OLD).name) == (
        "1,000/s, one a request, acks=1",
        "1,000/s, one a request, acks=1, Produce 7, Fetch 11",
    )


def test_targets_name_the_system_that_they_are_for() -> None:
    row = Row({"what": "a", "by": "Penstock", "ms": 3.0}, (Target("ms", 5, at_most=True),))
    judged = judge([Table("Times", "", [row])])
    assert judged is not None
    assert judged.rows[0].values["what"] == "a: Penstock"
