"""What is missing until brokers agree, in words."""

from collections.abc import Iterator

import pytest

from penstock.broker.broker import Broker
from penstock.testing import Cluster
from penstock.testing.agreement import missing_controller, missing_leaders


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, storage="memory") as cluster:
        cluster.create_topic("orders", partitions=3)
        cluster.until_leaders()
        yield cluster


def brokers_of(cluster: Cluster, *numbers: int) -> dict[int, Broker]:
    return {number: cluster.brokers[number]._production() for number in numbers}


def test_nothing_is_missing_when_all_agree(cluster: Cluster) -> None:
    brokers = brokers_of(cluster, 0, 1, 2)
    assert missing_controller(brokers, 3) is None
    assert missing_leaders(brokers, 3) is None


def test_without_a_broker_that_controls_there_is_no_controller(cluster: Cluster) -> None:
    assert missing_controller({}, 3) == "there is no controller"
    assert missing_leaders(brokers_of(cluster, 1, 2), 3) == "there is no controller"


def test_a_broker_that_takes_no_part_and_counts_as_alive_is_named(cluster: Cluster) -> None:
    assert missing_leaders(brokers_of(cluster, 0, 1), 3) == "broker 2 counts as alive"


def test_a_broker_that_does_not_know_the_controller_yet_is_named(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = brokers_of(cluster, 0, 1, 2)
    monkeypatch.setattr(brokers[1].services.image, "controller_epoch", 0)
    expected = "broker 1 does not know yet that the controller is broker 0"
    assert missing_controller(brokers, 3) == missing_leaders(brokers, 3) == expected


def test_a_broker_that_has_not_read_all_of_the_metadata_is_named(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = brokers_of(cluster, 0, 1, 2)
    monkeypatch.setattr(brokers[2].services.cluster._reader, "index", 1)
    assert missing_leaders(brokers, 3) == "broker 2 has not read all of the metadata"


def test_a_broker_whose_registration_is_an_old_one_is_named(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = brokers_of(cluster, 0, 1, 2)
    monkeypatch.setattr(brokers[1].services.registration, "broker_epoch", 1_000_000)
    assert missing_leaders(brokers, 3) == "broker 1 is not registered"


def test_a_partition_that_its_leader_does_not_serve_yet_is_named(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = brokers_of(cluster, 0, 1, 2)
    leader = cluster.leader_of("orders", 0)
    assert leader is not None
    monkeypatch.setattr(brokers[leader].services.partitions, "_led", {})
    assert missing_leaders(brokers, 3) == f"broker {leader} does not lead partition 0 of orders yet"
