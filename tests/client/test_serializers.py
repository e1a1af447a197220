"""From objects to bytes and back."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from penstock.client.serializers import BYTES, JSON, STRING, Json, SerializationError


@dataclass
class Order:
    number: int
    paid: bool = False


@pytest.mark.parametrize("data", [b"", b"\x00\xff", bytearray(b"ab"), memoryview(b"ab")])
def test_bytes_stay_as_they_are(data: bytes) -> None:
    assert BYTES.serialize("t", data) == bytes(data)
    assert BYTES.deserialize("t", bytes(data)) == bytes(data)


def test_what_is_no_bytes_is_refused_with_the_serializer_to_use() -> None:
    with pytest.raises(SerializationError, match=r"'orders' is of type str.*penstock\.client\.STRING"):
        BYTES.serialize("orders", "text")  # type: ignore[arg-type]


def test_text_is_utf_8() -> None:
    assert STRING.serialize("t", "größe") == "größe".encode()
    assert STRING.deserialize("t", "größe".encode()) == "größe"


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(SerializationError, match="int, not str"):
        STRING.serialize("orders", 3)  # type: ignore[arg-type]
    with pytest.raises(SerializationError, match="'orders' is no UTF-8"):
        STRING.deserialize("orders", b"\xff")


def test_json_goes_both_ways() -> None:
    data = {"a": [1, 2.5, None, True, "ä"]}
    assert JSON.deserialize("t", JSON.serialize("t", data)) == data


def test_json_of_a_type_is_checked_against_it() -> None:
    orders = Json(Order)
    assert orders.deserialize("orders", orders.serialize("orders", Order(3, True))) == Order(3, True)
    with pytest.raises(SerializationError, match=r"'orders'.*number"):
        orders.deserialize("orders", b'{"number": "three"}')


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(SerializationError, match="not the JSON"):
        JSON.deserialize("orders", data)


def test_what_cannot_be_json_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    for data in (object(), loop):
        with pytest.raises(SerializationError, match="cannot be written as JSON"):
            JSON.serialize("orders", data)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("wrap", [lambda n: n, lambda n: {"a": [1.5, n]}, Order], ids=["alone", "nested", "dataclass"])
def test_a_float_that_is_no_number_is_refused_with_what_to_do(number: float, wrap: Any) -> None:
    with pytest.raises(SerializationError, match=r"'orders'.*NaN or infinite: write None, or text, in its place"):
        JSON.serialize("orders", wrap(number))


def test_the_word_null_and_none_are_no_reason_to_refuse_anything() -> None:
    for data in ({"a": None, "b": 2.5}, "null", ["null", None, {"c": (1.0, None)}]):
        assert JSON.deserialize("t", JSON.serialize("t", data)) is not None


@dataclass
class Paid:
    amount: Decimal
    at: datetime
    tags: set[str]
    raw: bytes


def test_types_that_json_does_not_have_come_back_with_a_type_and_as_lists_and_text_without_one() -> None:
    paid = Paid(Decimal("0.10"), datetime(2026, 1, 2, tzinfo=UTC), {"new"}, b"\x00")
    written = JSON.serialize("orders", paid)
    assert Json(Paid).deserialize("orders", written) == paid
    assert JSON.deserialize("orders", written) == {
        "amount": "0.10",
        "at": "2026-01-02T00:00:00Z",
        "tags": ["new"],
        "raw": "AA==",
    }
