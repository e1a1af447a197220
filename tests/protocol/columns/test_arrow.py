"""Arrow: the schema that Spark asks for, nothing copied, and every kind of table that can be sent."""

import random
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.protocol.columns import ALL_COLUMNS, SPARK_NAMES, Columns, decode, encode, from_arrow, to_arrow
from penstock.protocol.errors import EncodeError
from penstock.protocol.records import NewRecord, build, iterate
from tests.protocol.columns.samples import NOW, make_field, make_records, records

SPARK_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        (
            "headers",
            pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ),
    ]
)


class TestToArrow:
    def test_the_schema_is_the_one_of_sparks_kafka_source(self) -> None:
        batch = to_arrow(decode(build([NewRecord(b"value")])), SPARK_NAMES, topic="orders", partition=3)

        assert batch.schema.equals(SPARK_SCHEMA)

    @pytest.mark.parametrize("seed", range(20))
    def test_rows_are_the_records(self, seed: int) -> None:
        data = make_field(random.Random(seed))
        columns = decode(data, columns=ALL_COLUMNS)
        batch = to_arrow(columns, topic="größe", partition=7, timestamp="ms")
        batch.validate(full=True)

        rows = batch.to_pylist()
        assert [
            (row["offset"], row["timestamp"], row["key"], row["value"], [tuple(h.values()) for h in row["headers"]])
            for row in rows
        ] == [(*record[:4], list(record.headers)) for record in records(columns)]
        assert all((row["topic"], row["partition"]) == ("größe", 7) for row in rows)
        assert set(batch.schema.names) == {*ALL_COLUMNS, "topic", "partition"}

    def test_timestamps_are_microseconds_in_utc_and_null_where_they_do_not_fit(self) -> None:
        largest = (2**63 - 1) // 1000
        times = [NOW, -1, largest, largest + 1, -largest, -largest - 1, 2**63 - 1, -(2**63)]
        columns = Columns(count=len(times), timestamp=np.array(times))
        made = to_arrow(columns, ["timestamp"]).column("timestamp")

        assert made[0].as_py() == datetime.fromtimestamp(NOW / 1000, UTC)
        wanted = [NOW * 1000, -1000, largest * 1000, None, -largest * 1000, None, None, None]
        assert made.cast(pa.int64()).to_pylist() == wanted

    def test_nothing_is_copied(self) -> None:
        columns = decode(build([NewRecord(b"value", key=b"key")] * 100))
        batch = to_arrow(columns)

        assert columns.value is not None
        assert batch.column("value").buffers()[2].address == columns.value.data.ctypes.data
        assert columns.offset is not None
        assert batch.column("offset").buffers()[1].address == columns.offset.ctypes.data

    def test_columns_get_the_names_and_the_order_asked_for(self) -> None:
        batch = to_arrow(decode(build([NewRecord(b"value")])), {"value": "payload", "offset": "at"})

        assert batch.to_pylist() == [{"payload": b"value", "at": 0}]
        with pytest.raises(ValueError, match="'crc' was not decoded"):
            to_arrow(decode(build([NewRecord(b"value")])), ["crc"])

    def test_no_records_are_a_batch_of_no_rows(self) -> None:
        batch = to_arrow(decode(b""), SPARK_NAMES, topic="orders", partition=0)
        batch.validate(full=True)

        assert (batch.num_rows, batch.schema.equals(SPARK_SCHEMA)) == (0, True)


HEADER_TYPES = [
    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    pa.large_list(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())])),
    pa.map_(pa.string(), pa.binary()),
]


def sent(table: Any, **options: Any) -> list[tuple[Any, ...]]:
    """What a table's records are when they have been encoded: key, value, timestamp and headers."""
    batches = encode(from_arrow(table, now_ms=NOW, **options))
    read = [record for batch, _ in batches for record in iterate(batch)]
    return [(record.key, record.value, record.timestamp, list(record.headers)) for record in read]


class TestFromArrow:
    def test_what_was_decoded_can_be_sent_again(self) -> None:
        new = make_records(random.Random(3), 50)
        columns = decode(build(new))
        again = sent(to_arrow(columns))

        assert again == [(record.key, record.value, record.timestamp, list(record.headers)) for record in new]

    @pytest.mark.parametrize(
        "kind",
        [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.string_view(), pa.binary_view()],
        ids=str,
    )
    def test_keys_and_values_are_binary_or_text(self, kind: Any) -> None:
        array = pa.array([b"\xc3\xa9", None, b"", b"d"], pa.binary()).cast(kind)
        table = pa.table({"key": array, "value": array})

        assert [row[:2] for row in sent(table)] == [(v, v) for v in (b"\xc3\xa9", None, b"", b"d")]
        assert [row[1] for row in sent(table.slice(1, 2))] == [None, b""]

    def test_dictionaries_fixed_sizes_and_nulls_are_taken_too(self) -> None:
        key = pa.array(["a", "b", "a"]).dictionary_encode()
        value = pa.array([b"12", b"34", None], pa.binary(2))

        assert [row[:2] for row in sent(pa.table({"key": key, "value": value}))] == [
            (b"a", b"12"),
            (b"b", b"34"),
            (b"a", None),
        ]
        assert [row[:2] for row in sent(pa.table({"value": pa.nulls(2)}))] == [(None, None)] * 2

    def test_slices_and_chunks_are_taken_as_they_are(self) -> None:
        array = pa.array([None if at % 3 == 0 else b"%d" % at for at in range(100)], pa.binary())
        for first, count in ((0, 100), (1, 50), (9, 8), (17, 83), (100, 0)):
            part = array.slice(first, count)
            wanted = part.to_pylist()
            assert [row[1] for row in sent(pa.RecordBatch.from_arrays([part], names=["value"]))] == wanted
            table = pa.table({"value": pa.chunked_array([part, part.slice(count // 2)], pa.binary())})
            assert [row[1] for row in sent(table)] == wanted + wanted[count // 2 :]

    @pytest.mark.parametrize("kind", HEADER_TYPES, ids=["list", "large list", "map"])
    def test_headers_are_lists_of_structs_or_maps(self, kind: Any) -> None:
        rows: list[list[tuple[str, bytes | None]] | None] = [
            [("a", b"1"), ("b", None)],
            None,
            [],
            [("é", b"")],
            [("c", b"3")],
        ]
        given: list[Any] = rows
        if not pa.types.is_map(kind):
            given = [row and [{"key": key, "value": value} for key, value in row] for row in rows]
        table = pa.table({"value": pa.nulls(5), "headers": pa.array(given, kind)})

        assert [row[3] for row in sent(table)] == [row or [] for row in rows]
        assert [row[3] for row in sent(table.slice(3))] == rows[3:]

    def test_headers_of_null_rows_are_left_out_though_they_are_there(self) -> None:
        structs = pa.array([{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}], HEADER_TYPES[0].value_type)
        offsets = pa.py_buffer(np.array([0, 1, 2], np.int32))
        headers = pa.Array.from_buffers(pa.list_(structs.type), 2, [pa.py_buffer(b"\x02"), offsets], children=[structs])

        assert [row[3] for row in sent(pa.table({"value": pa.nulls(2), "headers": headers}))] == [[], [("b", b"2")]]

    @pytest.mark.parametrize(
        ("array", "wanted"),
        [
            (pa.array([5, None], pa.int64()), [5, NOW]),
            (pa.array([5, None], pa.int32()), [5, NOW]),
            (pa.array([5_000_999, None], pa.timestamp("us")), [5000, NOW]),
            (pa.array([5, None], pa.timestamp("s", tz="Europe/Berlin")), [5000, NOW]),
            (pa.nulls(2), [NOW, NOW]),
        ],
        ids=["int64", "int32", "us", "s", "null"],
    )
    def test_timestamps_are_of_any_unit_or_milliseconds(self, array: Any, wanted: list[int]) -> None:
        assert [row[2] for row in sent(pa.table({"value": pa.nulls(2), "timestamp": array}))] == wanted

    def test_without_a_column_records_have_no_key_and_the_time_of_now(self) -> None:
        assert sent(pa.table({"value": ["v"]})) == [(None, b"v", NOW, [])]

    def test_columns_may_have_other_names(self) -> None:
        table = pa.table({"id": ["k"], "body": ["v"], "key": [1.5]})

        assert sent(table, key="id", value="body") == [(b"k", b"v", NOW, [])]

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            (pa.table({"payload": ["v"]}), "no column 'value'; its columns are payload"),
            (pa.table({"value": [1.5]}), "'value' has type double"),
            (pa.table({"value": ["v"], "timestamp": ["now"]}), "'timestamp' has type string"),
            (pa.table({"value": ["v"], "timestamp": pa.array([2**64 - 1], pa.uint64())}), "does not fit"),
            (pa.table({"value": ["v"], "headers": ["h"]}), "'headers' has type string"),
            (pa.table({"value": ["v"], "headers": [[{"k": "a", "v": "b"}]]}), "have the fields"),
            (pa.table([["v"], ["w"]], names=["value", "value"]), "more than one column"),
        ],
    )
    def test_what_cannot_be_sent_is_refused_with_the_reason(self, table: Any, message: str) -> None:
        with pytest.raises(EncodeError, match=message):
            from_arrow(table, now_ms=NOW)

    def test_a_null_key_of_a_header_is_refused(self) -> None:
        headers = pa.array([[{"key": None, "value": b"1"}]], HEADER_TYPES[0])
        with pytest.raises(EncodeError, match="no key"):
            sent(pa.table({"value": ["v"], "headers": headers}))
