"""Rows of Arrow as messages."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock.client.producer.bulk_result import NewMessage
from penstock.spark.sink.rows import RowError, divide

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def messages(made: pa.RecordBatch, topic: str | None = "x") -> list[NewMessage]:
    (piece,) = divide(made, made.schema.names, topic)
    return piece.one_by_one()


def test_a_message_has_all_that_the_columns_say() -> None:
    stamp = datetime(2026, 1, 2, 3, 4, 5, 678_999, UTC)
    headers = [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, []]

    made = messages(
        batch(
            key=pa.array(["k", None, ""]),
            value=pa.array([b"v", b"", None]),
            headers=pa.array(headers, HEADERS),
            partition=pa.array([3, None, 0], pa.int32()),
            timestamp=pa.array([stamp, None, None], pa.timestamp("us", "UTC")),
        )
    )

    assert made == [
        NewMessage(b"v", b"k", 3, [("a", b"1"), ("b", None)], 1_767_323_045_678),
        NewMessage(b"", None, None, [], None),
        NewMessage(None, b"", 0, [], None),
    ]


def test_seconds_are_cut_off_at_milliseconds() -> None:
    seconds = pa.array([1.0, 1.2345678, None, 0.0])

    assert [each.timestamp_ms for each in messages(batch(value=["a"] * 4, timestamp=seconds))] == [1000, 1234, None, 0]


def test_columns_that_are_not_used_are_left_out() -> None:
    (piece,) = divide(batch(value=["a"], offset=[1], topic=["y"]), ["value"], "x")

    assert (piece.topic, piece.messages.schema.names, piece.rows) == ("x", ["value"], None)


def test_rows_are_divided_by_topic_and_stay_in_their_order() -> None:
    made = batch(topic=["a", "b", "a", "c", "b", "a"], value=[str(number) for number in range(6)])

    pieces = divide(made, ["topic", "value"], None)

    assert {each.topic: each.messages.column("value").to_pylist() for each in pieces} == {
        "a": ["0", "2", "5"],
        "b": ["1", "4"],
        "c": ["3"],
    }
    assert [pieces[0].place(row) for row in range(3)] == [0, 2, 5]
    assert [each.topic for each in divide(made.slice(3, 1), ["topic", "value"], None)] == ["c"]
    assert divide(made.slice(0, 0), ["topic", "value"], None) == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"topic": ["a", "b", None]}, "has no topic"),
        ({"partition": pa.array([0, None, -1], pa.int32())}, "has a negative partition"),
        ({"timestamp": pa.array([0, None, -1000], pa.timestamp("us", "UTC"))}, "before 1970"),
        ({"timestamp": pa.array([0.0, None, -1.0])}, "has a timestamp that is no time"),
        ({"timestamp": pa.array([0.0, None, float("nan")])}, "has a timestamp that is no time"),
        ({"timestamp": pa.array([0.0, None, 1e18])}, "has a timestamp that is no time"),
        ({"headers": pa.array([[], None, [{"key": "a"}, {"value": b"1"}]], HEADERS)}, "has a header without a key"),
        ({"headers": pa.array([[{"key": "a"}], None, [None]], HEADERS)}, "has a header without a key"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_named(columns: dict[str, Any], message: str) -> None:
    made = batch(value=["a", "b", "c"], **columns)

    with pytest.raises(RowError, match=message) as caught:
        divide(made, made.schema.names, None if "topic" in columns else "x")

    assert caught.value.row == 2
