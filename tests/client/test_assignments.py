"""Assignments, of every version and of none."""

import pytest

from penstock.client.assignments import read_assignment
from penstock.client.metadata import TopicPartition
from penstock.protocol.codec import encode
from penstock.protocol.schemas.embedded import ConsumerProtocolAssignment, ConsumerProtocolAssignmentTopicPartition


def assignment(version: int, **topics: list[int]) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
        user_data=b"sticky",
    )
    return version.to_bytes(2, "big") + encode(message, min(version, 3))


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_read_in_every_version_and_sorted(version: int) -> None:
    assert read_assignment(assignment(version, b=[2, 0], a=[1])) == (
        TopicPartition("a", 1),
        TopicPartition("b", 0),
        TopicPartition("b", 2),
    )


def test_a_later_version_begins_like_the_last_known_one() -> None:
    assert read_assignment(assignment(7, a=[1]) + b"more") == (TopicPartition("a", 1),)


def test_without_bytes_nothing_was_assigned() -> None:
    assert read_assignment(b"") == ()
    assert read_assignment(assignment(0)) == ()


@pytest.mark.parametrize("data", [b"\0", b"all", b"\xff\xff\0\0\0\0", b"\0\1\0\0\0\5"])
def test_other_bytes_are_no_assignment(data: bytes) -> None:
    assert read_assignment(data) is None
