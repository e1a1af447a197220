"""Groups lie where Kafka would look for them."""

import pytest

from penstock.machines.groups import sharding
from penstock.machines.groups.bounds import NAME_BYTES
from penstock.machines.groups.sharding import OFFSETS_TOPIC, java_hash, partition_for

# Printed by Java: the string's hashCode, and Kafka's choice among 50 and among 7 partitions.
KNOWN = [
    ("", 0, 0, 0),
    ("g", 103, 3, 5),
    ("my-group", -1906497762, 12, 1),
    ("console-consumer-54321", 162209106, 6, 3),
    ("grüppe", -1233264812, 12, 3),
    ("🚀 rocket", -1391342671, 21, 5),
    ("polygenelubricants", -2147483648, 0, 0),
    ("group-with-a-very-long-name-that-overflows-many-times", -1319365385, 35, 2),
]


@pytest.mark.parametrize(("group", "number", "of_50", "of_7"), KNOWN)
def test_a_group_lies_in_the_partition_that_kafka_would_choose(group: str, number: int, of_50: int, of_7: int) -> None:
    assert java_hash(group) == number
    assert partition_for(group, 50) == of_50
    assert partition_for(group, 7) == of_7


def test_half_a_character_is_no_obstacle() -> None:
    assert java_hash("\ud83d") == 0xD83D


def test_what_is_no_name_is_neither_hashed_nor_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = []

    def counted(text: str) -> int:
        hashed.append(text)
        return 7

    monkeypatch.setattr(sharding, "java_hash", counted)
    before = sharding._partition_for.cache_info().currsize
    assert partition_for("x" * (NAME_BYTES + 1), 50) == 0
    assert not hashed
    assert sharding._partition_for.cache_info().currsize == before
    assert partition_for("x" * NAME_BYTES, 49) == 7


def test_the_topic_has_kafkas_name() -> None:
    assert OFFSETS_TOPIC == "__consumer_offsets"
