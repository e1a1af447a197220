"""Partitions by key agree with other clients; records without a key are spread."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as oracle

from penstock.machines.partitioners import RoundRobin, Sticky, murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_the_java_client(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


@given(st.binary(max_size=200), st.integers(1, 10_000))
def test_a_key_has_the_partition_that_kafka_python_gives_it(key: bytes, partitions: int) -> None:
    assert murmur2(key) == oracle(key) % 2**32
    assert partition_of_key(key, partitions) == (oracle(key) & 0x7FFFFFFF) % partitions


def test_round_robin_takes_turns() -> None:
    partitioner = RoundRobin()

    assert [partitioner.choose(range(3)) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_round_robin_passes_over_partitions_that_cannot_be_written_to() -> None:
    partitioner = RoundRobin()

    assert [partitioner.choose(available) for available in ([1, 2, 5], [1, 5], [1, 2, 5], [0, 1], [0, 1])] == [
        1,
        5,
        1,
        0,
        1,
    ]


def test_a_sticky_choice_lasts_until_enough_was_sent() -> None:
    partitioner = Sticky(sticky_bytes=100)
    chances = [0.5, 0.9, 0.9, 0.9, 0.0, 0.0]

    assert [partitioner.choose(range(4), 40, chance) for chance in chances] == [2, 2, 2, 3, 3, 3]


def test_a_sticky_choice_moves_to_another_partition_if_there_is_one() -> None:
    partitioner = Sticky(sticky_bytes=1)
    chosen = [partitioner.choose(range(5), 1, step % 7 / 7) for step in range(100)]

    assert all(one != following for one, following in pairwise(chosen))
    assert Sticky(sticky_bytes=1).choose([3], 1, 0.99) == 3


def test_a_sticky_choice_leaves_a_partition_that_cannot_be_written_to() -> None:
    partitioner = Sticky()
    assert partitioner.choose(range(3), 1, 0.0) == 0

    assert partitioner.choose([1, 2], 1, 0.0) == 1
    assert partitioner.choose(range(3), 1, 0.0) == 1


@given(st.integers(1, 20), st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=50))
def test_every_chance_picks_an_existing_partition(partitions: int, chances: list[float]) -> None:
    partitioner = Sticky(sticky_bytes=1)

    counts = Counter(partitioner.choose(range(partitions), 1, chance) for chance in chances)

    assert set(counts) <= set(range(partitions))
