"""How Penstock grows: the questions that are asked of a run, on a broker that runs for a moment. How much is for
`make bench-growth` to say."""

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.growth import cold
from benchmarks.growth.scaling import beside_other, systems_of
from benchmarks.growth.stored import LEVELS, levels_up_to
from benchmarks.growth.surge import Course, growth_within, seconds_until_normal
from benchmarks.processes import Server, free_port
from benchmarks.programs import load
from benchmarks.samples import Rounds
from benchmarks.suite import Asked
from benchmarks.systems import Penstock


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, int]]:
    metrics = free_port()
    options = ("-X", f"penstock.metrics.listen=127.0.0.1:{metrics}")
    with Penstock(*options).start(tmp_path_factory.mktemp("broker"), cores=()) as server:
        yield server, metrics


def course(latencies: list[float], memory: list[tuple[float, float]]) -> Course:
    """Two seconds, a surge of two seconds, and whatever follows."""
    return Course(2, 2, lost=0, duplicates=0, sent=1, latencies_ms=latencies, memory=memory)


def test_latency_is_normal_when_it_stays_near_what_it_was() -> None:
    calm, surge = [50.0, 50, 1, 1], [80.0] * 4
    assert seconds_until_normal(course([*calm, *surge, 1, 1, 1, 1], [])) == 0
    assert seconds_until_normal(course([*calm, *surge, 90, 1, 90, 1, 1, 1], [])) == 1.5
    assert seconds_until_normal(course([*calm, *surge, 90, 90, 90, 90], [])) == 2


def test_memory_that_grows_with_a_surge_is_seen() -> None:
    bounded = [(1.0, 40.0), (2.5, 60.0), (3.5, 60.0), (4.5, 90.0)]
    assert growth_within(course([1.0] * 8, bounded)) == 1
    unbounded = [(2.5, 60.0), (3.5, 120.0)]
    assert growth_within(course([1.0] * 8, unbounded)) == 2


def test_what_is_evicted_is_cold_and_still_read(broker: tuple[Server, int]) -> None:
    server, _ = broker
    Penstock().make_topic(server, "much")
    produced = load("produce", port=server.port, topics=["much"], batch_bytes=100_000, requests=50, acks=-1)
    assert cold.cold_share(server.folder) == 0
    cold.evict(server.folder)
    assert cold.cold_share(server.folder) > 0.9
    assert load("fetch", port=server.port, topics=["much"])["messages"] == produced["messages"]


def test_the_longest_turn_of_the_loop_is_told(broker: tuple[Server, int]) -> None:
    _, metrics = broker
    assert 0 <= cold.longest_loop_turn(metrics) < 60


def test_the_newest_messages_can_be_read_alone(broker: tuple[Server, int]) -> None:
    server, _ = broker
    Penstock().make_topic(server, "newest")
    load("produce", port=server.port, topics=["newest"], requests=300, acks=-1, in_flight=10)
    told = load("fetch", port=server.port, topics=["newest"], newest=120, connections=2, in_flight=2)
    assert told["messages"] == 120


def test_offsets_and_times_are_found_anywhere(broker: tuple[Server, int]) -> None:
    server, _ = broker
    Penstock().make_topic(server, "anywhere", partitions=3)
    load("produce", port=server.port, topics=["anywhere"], partitions=3, requests=300, acks=-1, in_flight=10)
    where: dict[str, Any] = {"port": server.port, "partitions": 3, "requests": 50, "connections": 2}
    fetched = load("seek", topics=["anywhere"], max_bytes=5_000, **where)
    assert (fetched["requests"], fetched["latency"]["count"]) == (50, 50)
    assert fetched["bytes"] >= 50 * 1_000
    looked = load("seek", topics=["anywhere"], from_ms=1, to_ms=4_000_000_000_000, **where)
    assert (looked["requests"], looked["bytes"]) == (50, 0)


def test_less_can_be_stored_than_the_most() -> None:
    assert levels_up_to(None, LEVELS) == [1, 5, 20]
    assert levels_up_to(5, LEVELS) == [1, 5]
    assert levels_up_to(8, LEVELS) == [1, 5, 8]


def test_without_another_revision_this_checkout_is_measured_alone() -> None:
    assert [system.name for system in systems_of(Asked(["partitions"]))] == ["Penstock"]


def test_this_checkout_is_told_as_a_multiple_of_the_revision_before_at_the_same_size() -> None:
    found = {("before", 1): Rounds([2.0]), ("Penstock", 1): Rounds([1.0]), ("before", 9): Rounds([4.0])}
    found["Penstock", 9] = Rounds([6.0])
    told = [beside_other(found, case, float) for case in found]
    assert told == ["", "0.50", "", "1.50"]
    assert beside_other({("Penstock", 1): Rounds([1.0])}, ("Penstock", 1), float) == ""
