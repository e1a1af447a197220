"""Partitions by key agree with other clients; records without a key are spread."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as oracle

from penstock.machines.partitioners import (
    RoundRobin,
    Sticky,
    jump_hash,
    jump_partition_of_key,
    murmur2,
    partition_of_key,
)


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


JAVA = Path(__file__).parent.parent / "fixtures" / "partitions" / "java.tsv"
PARTITION_COUNTS = (1, 3, 8, 12, 1000)
KEYS = [b"user-%d" % number for number in range(40_000)]


def test_keys_have_the_hash_and_the_partitions_that_java_has_written_down() -> None:
    lines = JAVA.read_text().splitlines()
    assert len(lines) > 100
    for line in lines:
        written, signed, *partitions = line.split("\t")
        key = bytes.fromhex(written)
        assert murmur2(key) == int(signed) % 2**32, line
        assert [partition_of_key(key, count) for count in PARTITION_COUNTS] == list(map(int, partitions)), line


@pytest.mark.parametrize(
    ("key", "buckets", "bucket"),
    [(1, 1, 0), (42, 57, 43), (0xDEAD10CC, 1, 0), (0xDEAD10CC, 666, 361), (256, 1024, 520), (0, 60, 0)],
)
def test_the_jump_hash_is_that_of_others(key: int, buckets: int, bucket: int) -> None:
    assert jump_hash(key, buckets) == bucket


@given(st.integers(0, 2**64 - 1), st.integers(1, 2_000))
def test_by_jump_hash_a_key_moves_only_to_the_bucket_that_is_added(key: int, buckets: int) -> None:
    before, after = jump_hash(key, buckets), jump_hash(key, buckets + 1)

    assert 0 <= before < buckets
    assert after in (before, buckets)


def test_a_ninth_partition_moves_a_ninth_of_the_keys_by_jump_and_most_of_them_by_modulo() -> None:
    moved = {
        choose: sum(choose(key, 8) != choose(key, 9) for key in KEYS) / len(KEYS)
        for choose in (jump_partition_of_key, partition_of_key)
    }

    assert moved[jump_partition_of_key] == pytest.approx(1 / 9, abs=0.01)
    assert moved[partition_of_key] == pytest.approx(8 / 9, abs=0.01)


def test_jump_gives_every_partition_its_share() -> None:
    counts = Counter(jump_partition_of_key(key, 9) for key in KEYS)

    assert sorted(counts) == list(range(9))
    assert max(counts.values()) < 1.1 * len(KEYS) / 9
