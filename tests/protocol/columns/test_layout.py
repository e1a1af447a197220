"""The layout of columns: bitmaps, slices and the sizes of varints."""

import random

import numpy as np

from penstock.protocol.columns.layout import Binary, pack_bits, unpack_bits, varint_sizes, zigzag
from penstock.protocol.varint import varlong
from tests.protocol.columns.samples import strings


def test_a_bitmap_gives_back_the_flags_from_any_bit_on() -> None:
    chance = random.Random(1)
    flags = np.array([chance.random() < 0.5 for _ in range(70)])
    bitmap = pack_bits(flags)

    assert bitmap[0] & 1 == flags[0]
    for start in range(70):
        for count in {0, min(9, 70 - start), 70 - start}:
            assert unpack_bits(bitmap, count, start).tolist() == flags[start : start + count].tolist()


def test_a_slice_has_the_rows_of_the_whole() -> None:
    column = Binary(np.arange(21) * 2, np.arange(40, dtype=np.uint8), pack_bits(np.arange(20) % 3 > 0))

    assert len(column) == 20
    for first in range(20):
        for count in (0, 1, 20 - first):
            assert strings(column.slice(first, count)) == strings(column)[first : first + count]


def test_sizes_are_those_of_the_varints_written() -> None:
    edges = [sign * (1 << bit) + step for bit in range(63) for sign in (1, -1) for step in (-1, 0, 1)]
    values = [0, *edges, 2**63 - 1, -(2**63)]

    assert varint_sizes(zigzag(np.array(values))).tolist() == [len(varlong(value)) for value in values]
