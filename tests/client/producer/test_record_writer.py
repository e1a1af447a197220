"""Records written quickly are those that are read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.errors import UnsendableError
from penstock.client.producer.record_writer import (
    HEADER_BYTES,
    Record,
    stamp_header,
    stamp_producer,
    write_headers,
    write_records,
)
from penstock.protocol.batch import read_header, verify
from penstock.protocol.compression import Codec
from penstock.protocol.records import NewRecord, build, iterate

BASE = 1_700_000_000_000

content = st.none() | st.binary(max_size=300)
header = st.tuples(st.text(st.characters(codec="utf-8"), max_size=20), content)
record = st.tuples(
    content,
    content,
    st.integers(BASE - 5_000, BASE + 100_000) | st.just(BASE),
    st.lists(header, max_size=3),
)


@given(st.lists(record, min_size=1, max_size=40), st.integers(0, 40))
def test_what_is_written_is_what_the_protocol_writes(records: list[tuple[bytes, bytes, int, list]], cut: int) -> None:  # type: ignore[type-arg]
    base = records[0][2]
    written = bytearray(HEADER_BYTES)
    latest = -1
    for first, part in ((0, records[:cut]), (cut, records[cut:])):
        plain: list[Record] = [(key, value, stamp) for key, value, stamp, _ in part]
        headers = {first + at: write_headers(each[3]) for at, each in enumerate(part) if each[3]}
        piece, stamp = write_records(plain, headers, first=first, base_timestamp=base)
        written += piece
        latest = max(latest, stamp)
    stamp_header(written, codec=Codec.NONE, count=len(records), base_timestamp=base, max_timestamp=latest)
    stamp_producer(written, 5, 6, 7)

    expected = build(
        [NewRecord(value, key, tuple(headers), stamp) for key, value, stamp, headers in records],
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
    )
    assert written == expected
    verify(read_header(written), written)


@pytest.mark.parametrize("size", [8_191, 8_192, 16_383, 16_384, 1_048_576, 2_000_000])
def test_large_records_are_written_as_well(size: int) -> None:
    piece, _ = write_records([(b"k" * size, b"v" * size, BASE)], {}, first=20_000, base_timestamp=BASE)
    written = bytearray(HEADER_BYTES) + piece
    stamp_header(written, codec=Codec.NONE, count=20_001, base_timestamp=BASE, max_timestamp=BASE)
    written[57:61] = (1).to_bytes(4, "big")

    [found] = iterate(written)
    assert (found.offset, found.key, found.value) == (20_000, b"k" * size, b"v" * size)


def test_headers_are_checked_where_they_are_given() -> None:
    with pytest.raises(TypeError, match="a header is a name"):
        write_headers([(b"name", b"value")])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="a header is a name"):
        write_headers([("name", "value")])  # type: ignore[list-item]
    with pytest.raises(UnsendableError, match="cannot be written as UTF-8"):
        write_headers([("\ud800", b"value")])


def test_headers_may_be_a_dict() -> None:
    assert write_headers({"trace": b"1", "empty": None}) == write_headers([("trace", b"1"), ("empty", None)])


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        (["trace"], r"headers are a dict, or a list of pairs such as \('trace', b'1'\), and 'trace' is no such pair"),
        (("trace", b"1"), "'trace' is no such pair"),
        ({"trace": "1"}, r"not \('trace', '1'\): encode the value"),
        ([(b"trace", b"1")], r"a header is a name \(str\) and a value"),
    ],
)
def test_headers_that_are_none_are_refused_with_what_to_give(headers: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        write_headers(headers)
