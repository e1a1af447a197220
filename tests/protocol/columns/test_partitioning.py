"""Partitioning: the hash of Java's client, rows grouped in their order, and the records of rows."""

import random

import numpy as np
import pytest

from penstock.machines.partitioners import partition_of_key
from penstock.protocol.columns import ALL_COLUMNS, Impl, decode, group_rows, partition_by, take
from penstock.protocol.records import NewRecord, build
from tests.protocol.columns.samples import IMPLEMENTATIONS, make_field, records

both = pytest.mark.parametrize("impl", IMPLEMENTATIONS)


@both
@pytest.mark.parametrize("partitions", [1, 3, 12, 1000])
@pytest.mark.parametrize("most", [0, 12, 40, 3000])
def test_every_key_goes_where_javas_client_sends_it(impl: Impl, partitions: int, most: int) -> None:
    chance = random.Random(most)
    keys = [None if chance.random() < 0.1 else chance.randbytes(chance.randint(0, most)) for _ in range(400)]
    column = decode(build([NewRecord(b"", key=key) for key in keys])).key
    assert column is not None
    chosen = partition_by(column, partitions, impl=impl)

    assert chosen.dtype == np.int32
    assert chosen.tolist() == [-1 if key is None else partition_of_key(key, partitions) for key in keys]


@both
def test_a_single_very_long_key_among_short_ones_is_hashed(impl: Impl) -> None:
    keys = [b"short", bytes(range(256)) * 400 + b"abc", b"", b"four"]
    column = decode(build([NewRecord(b"", key=key) for key in keys])).key
    assert column is not None

    assert partition_by(column, 10**6, impl=impl).tolist() == [partition_of_key(key, 10**6) for key in keys]


@pytest.mark.parametrize("scale", [1, 40_000], ids=["narrow", "wide"])
def test_rows_are_grouped_by_partition_in_their_order(scale: int) -> None:
    partitions = np.array([2, 0, 2, -1, 0, 2], np.int32) * scale
    groups = [(partition, rows.tolist()) for partition, rows in group_rows(partitions)]

    assert groups == [(-scale, [3]), (0, [1, 4]), (2 * scale, [0, 2, 5])]
    assert group_rows(np.array([], np.int32)) == []


@both
@pytest.mark.parametrize("seed", range(20))
def test_the_records_of_rows_are_taken_in_the_order_of_the_rows(impl: Impl, seed: int) -> None:
    chance = random.Random(seed)
    columns = decode(make_field(chance), columns=ALL_COLUMNS)
    whole = records(columns)
    rows = [chance.randrange(columns.count) for _ in range(columns.count)]
    taken = take(columns, np.array(rows, np.int64), impl=impl)

    assert taken.count == len(rows)
    assert records(taken) == [whole[row] for row in rows], f"seed {seed}"
    assert columns.crc is not None
    assert taken.crc is not None
    assert taken.crc.tolist() == columns.crc[rows].tolist()
