"""What health says of disks, by facts alone."""

from penstock.cli.cluster.findings import Disk, Finding, HealthFacts, Kind, Severity
from penstock.cli.cluster.health import diagnose
from penstock.client.metadata import TopicPartition
from tests.cli.cluster.ill import cluster, only, partition

GIB = 1 << 30


def disks(*free: int, total: int = 100 * GIB, reserve: int = GIB) -> HealthFacts:
    """A disk for each broker, with so much free."""
    return cluster(disks={broker: [Disk("/data", total, each, reserve)] for broker, each in enumerate(free)})


def test_disks_with_room_are_healthy() -> None:
    assert diagnose(disks(7 * GIB, 60 * GIB)) == []
    assert diagnose(cluster(disks={0: [Disk("/data")]})) == []


def test_a_disk_below_its_reserve_refuses_records() -> None:
    found = only(disks(GIB - 1, 60 * GIB))
    assert (found.kind, found.severity, found.brokers) == (Kind.DISK_FULL, Severity.BROKEN, (0,))
    assert found.what.startswith("the disk of broker 0 is full: broker 0 has 1.0 GiB of 100.0 GiB free")
    assert "KAFKA_STORAGE_ERROR" in found.means
    assert "retention.ms" in found.advice


def test_disks_near_their_reserve_are_at_risk_and_named_together() -> None:
    found = only(disks(6 * GIB - 1, 2 * GIB, 60 * GIB))
    assert (found.kind, found.severity, found.brokers) == (Kind.DISK_NEARLY_FULL, Severity.AT_RISK, (0, 1))
    assert found.what.startswith("the disks of brokers 0 and 1 are nearly full: ")


def test_a_folder_that_cannot_be_used_is_told_with_what_the_broker_says() -> None:
    found = only(cluster(disks={1: [Disk("/data", fault="KAFKA_STORAGE_ERROR: disk error")]}))
    assert (found.kind, found.severity, found.brokers) == (Kind.FOLDER_OFFLINE, Severity.BROKEN, (1,))
    assert "/data: KAFKA_STORAGE_ERROR" in found.what


def offline(leader: int) -> Finding:
    return only(cluster(partition(leader, (leader, 2), (leader, 2)), offline={0: [TopicPartition("orders", 0)]}))


def test_a_log_that_its_leader_does_not_serve_refuses_clients() -> None:
    assert (offline(0).kind, offline(0).severity) == (Kind.LOG_OFFLINE, Severity.BROKEN)
    assert "are refused" in offline(0).means


def test_a_log_that_a_follower_does_not_serve_protects_less() -> None:
    assert (offline(1).kind, offline(1).severity) == (Kind.LOG_OFFLINE, Severity.AT_RISK)
    assert offline(1).partitions == (TopicPartition("orders", 0),)
