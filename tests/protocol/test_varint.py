"""Varints: known encodings, round trips, and every way to be too long."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.errors import DecodeError, EncodeError
from penstock.protocol.varint import Buffer, read_uvarint, read_varint, read_varlong, uvarint, varint, varlong

Reader = Callable[[Buffer, int], tuple[int, int]]
Writer = Callable[[int], bytes]

UNSIGNED = [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (16383, "ff7f"), (16384, "808001")]
ZIGZAG = [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"), (8191, "fe7f")]

KNOWN: list[tuple[Writer, Reader, int, str]] = [
    *((uvarint, read_uvarint, value, encoded) for value, encoded in UNSIGNED),
    *((varint, read_varint, value, encoded) for value, encoded in ZIGZAG),
    *((varlong, read_varlong, value, encoded) for value, encoded in ZIGZAG),
    (uvarint, read_uvarint, 2**32 - 1, "ffffffff0f"),
    (varint, read_varint, 2**31 - 1, "feffffff0f"),
    (varint, read_varint, -(2**31), "ffffffff0f"),
    (varlong, read_varlong, 2**63 - 1, "feffffffffffffffff01"),
    (varlong, read_varlong, -(2**63), "ffffffffffffffffff01"),
]
READERS = [(read_uvarint, 5), (read_varint, 5), (read_varlong, 10)]


@pytest.mark.parametrize(("write", "read", "value", "encoded"), KNOWN)
def test_known_values_have_known_encodings(write: Writer, read: Reader, value: int, encoded: str) -> None:
    assert write(value).hex() == encoded
    assert read(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize(
    ("write", "read", "values"),
    [
        (uvarint, read_uvarint, st.integers(0, 2**32 - 1)),
        (varint, read_varint, st.integers(-(2**31), 2**31 - 1)),
        (varlong, read_varlong, st.integers(-(2**63), 2**63 - 1)),
    ],
)
def test_what_is_written_is_read_from_any_place_in_any_buffer(
    write: Writer, read: Reader, values: st.SearchStrategy[int]
) -> None:
    @given(values, st.binary(max_size=3), st.binary(max_size=3))
    def check(value: int, before: bytes, after: bytes) -> None:
        data = before + write(value) + after
        end = len(data) - len(after)
        assert read(data, len(before)) == (value, end)
        assert read(memoryview(bytearray(data)), len(before)) == (value, end)

    check()


@pytest.mark.parametrize(
    ("write", "value"),
    [
        (uvarint, -1),
        (uvarint, 2**32),
        (varint, 2**31),
        (varint, -(2**31) - 1),
        (varlong, 2**63),
        (varlong, -(2**63) - 1),
    ],
)
def test_a_value_out_of_range_is_not_written(write: Writer, value: int) -> None:
    with pytest.raises(EncodeError, match="does not fit"):
        write(value)


@pytest.mark.parametrize(("read", "longest"), READERS)
def test_running_off_the_end_is_a_decode_error(read: Reader, longest: int) -> None:
    for length in range(longest):
        with pytest.raises(DecodeError, match="past the end"):
            read(b"\x80" * length, 0)
    with pytest.raises(DecodeError, match="past the end"):
        read(b"\x00", 1)


@pytest.mark.parametrize(("read", "longest"), READERS)
def test_a_varint_longer_than_its_type_needs_is_a_decode_error(read: Reader, longest: int) -> None:
    with pytest.raises(DecodeError, match="longer than"):
        read(b"\x80" * longest + b"\x00", 0)
    with pytest.raises(DecodeError, match="longer than"):
        read(b"\xff" * 1_000_000, 0)


@pytest.mark.parametrize(
    ("read", "encoded"),
    [
        (read_uvarint, "8080808010"),
        (read_varint, "ffffffff1f"),
        (read_varlong, "ffffffffffffffffff02"),
        (read_varlong, "ffffffffffffffffff7f"),
    ],
)
def test_a_varint_of_more_bits_than_its_type_is_a_decode_error(read: Reader, encoded: str) -> None:
    with pytest.raises(DecodeError, match="does not fit"):
        read(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("read", [read_uvarint, read_varint, read_varlong])
def test_padding_within_the_longest_encoding_is_read_as_kafka_reads_it(read: Reader) -> None:
    assert read(bytes.fromhex("8000"), 0) == (0, 2)
    assert read(bytes.fromhex("8080808000"), 0) == (0, 5)
