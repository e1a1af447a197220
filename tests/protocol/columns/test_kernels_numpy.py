"""NumPy's kernels: finding records of equal and of changing lengths, and time that does not explode."""

import random

import numpy as np
import pytest

from penstock.protocol.batch import HEADER
from penstock.protocol.columns import decode
from penstock.protocol.columns.kernels import Regions
from penstock.protocol.columns.kernels_numpy import scan
from penstock.protocol.records import NewRecord, build, iterate
from penstock.protocol.varint import read_uvarint


def regions_of(count: int, size: int) -> Regions:
    numbers = (HEADER.size, size, count, 0, count - 1, -1, -1, False)
    return Regions._make(np.array([number]) for number in numbers)


@pytest.mark.parametrize("seed", range(30))
def test_records_are_found_in_runs_of_any_length(seed: int) -> None:
    chance = random.Random(seed)
    values: list[bytes] = []
    while len(values) < 3000:
        values += [bytes(chance.choice((1, 2, 50, 60, 70, 200, 9000)))] * chance.choice((1, 2, 5, 20, 90, 500))
    batch = bytes(build([NewRecord(value) for value in values]))
    found = scan(np.frombuffer(batch, np.uint8), regions_of(len(values), len(batch)))

    position = HEADER.size
    for end, value in zip(found.end.tolist(), values, strict=True):
        number, body = read_uvarint(batch, position)
        position = body + (number >> 1)
        assert end == position, f"seed {seed}"
        assert batch[position - 1 - len(value) : position - 1] == value
    assert found.value_length.tolist() == [len(value) for value in values]


def test_a_record_of_the_same_size_whose_length_has_other_bytes_ends_a_run() -> None:
    """One of 64 bytes in two bytes of length is as large as one of 65 in one."""
    short, long = NewRecord(bytes(57)), NewRecord(bytes(58))
    new = [short] * 50 + [long] * 50 + [short] * 50
    batch = bytes(build(new))
    value = decode(batch, impl="numpy").value
    assert value is not None

    assert value.lengths().tolist() == [len(record.value or b"") for record in iterate(batch)]
