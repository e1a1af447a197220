"""Turns columns into Arrow record batches, without copying them, and back."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from penstock.protocol.columns.layout import ALL_COLUMNS, Binary, Columns, Headers, pack_bits, unpack_bits
from penstock.protocol.errors import EncodeError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

SPARK_NAMES = {
    "key": "key",
    "value": "value",
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestamp_type": "timestampType",
    "headers": "headers",
}
"""What Spark's Kafka source calls its columns, in its order."""


def to_arrow(
    columns: Columns,
    names: Mapping[str, str] | Sequence[str] | None = None,
    *,
    topic: str | None = None,
    partition: int | None = None,
    timestamp: Literal["us", "ms"] = "us",
) -> "pa.RecordBatch":
    """An Arrow record batch of the columns in `names`, or of all that are there; a mapping gives them other names.

    `topic` and `partition` are columns too, the same in every row. Timestamps are `timestamp[us, tz=UTC]`, null where
    they do not fit, or with "ms" the milliseconds as they came, int64.
    """
    import pyarrow as pa

    if names is None:
        names = [*SPARK_NAMES, *(name for name in ALL_COLUMNS if name not in SPARK_NAMES)]
        given = {"topic": topic, "partition": partition}
        names = [name for name in names if (given[name] if name in given else getattr(columns, name)) is not None]
    if not isinstance(names, Mapping):
        names = {name: name for name in names}
    arrays = []
    for name in names:
        if name == "topic":
            arrays.append(pa.repeat(pa.scalar(topic, pa.string()), columns.count))
        elif name == "partition":
            arrays.append(pa.repeat(pa.scalar(partition, pa.int32()), columns.count))
        elif (column := getattr(columns, name)) is None:
            raise ValueError(f"the column {name!r} was not decoded; name it in `columns` of decode")
        elif name == "timestamp" and timestamp == "us":
            arrays.append(_microseconds(column))
        else:
            arrays.append(_to_array(column))
    return pa.RecordBatch.from_arrays(arrays, names=list(names.values()))


def from_arrow(
    table: "pa.Table | pa.RecordBatch",
    *,
    now_ms: int,
    key: str = "key",
    value: str = "value",
    timestamp: str = "timestamp",
    headers: str = "headers",
) -> Columns:
    """What records need of `table`, by the names of its columns; its other columns are left alone.

    Keys and values are binary or text. Timestamps are of any unit, or integers of milliseconds; where there is none it
    is `now_ms`. Headers are lists of structs with a key and a value, or maps. Only `value` must be there.
    """
    import numpy as np

    if value not in table.schema.names:
        raise EncodeError(f"the table has no column {value!r}; its columns are {', '.join(table.schema.names)}")
    found = {name: _one_array(table, name) for name in (key, value, timestamp, headers) if name in table.schema.names}
    return Columns(
        count=table.num_rows,
        key=_from_binary(key, found[key]) if key in found else None,
        value=_from_binary(value, found[value]),
        timestamp=(
            _milliseconds(timestamp, found[timestamp], now_ms)
            if timestamp in found
            else np.full(table.num_rows, now_ms, np.int64)
        ),
        headers=_from_headers(headers, found[headers]) if headers in found else None,
    )


_MAX_MS = ((1 << 63) - 1) // 1000


def _to_array(column: "Binary | Headers | NDArray[Any]") -> "pa.Array":
    import pyarrow as pa

    match column:
        case Binary():
            return _to_binary(column)
        case Headers():
            fields = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
            children = [_to_binary(column.key, pa.string()), _to_binary(column.value)]
            structs = pa.StructArray.from_arrays(children, fields=fields)
            kind = pa.list_(pa.field("element", structs.type))
            buffers = [None, pa.py_buffer(column.offsets)]
            return pa.Array.from_buffers(kind, len(column.offsets) - 1, buffers, children=[structs])
        case _:
            return pa.array(column)


def _to_binary(column: Binary, kind: "pa.DataType | None" = None) -> "pa.Array":
    import pyarrow as pa

    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind or pa.binary(), len(column), buffers)


def _microseconds(milliseconds: "NDArray[np.int64]") -> "pa.Array":
    import pyarrow as pa

    fits = (milliseconds >= -_MAX_MS) & (milliseconds <= _MAX_MS)
    validity = None if fits.all() else pa.py_buffer(pack_bits(fits))
    buffers = [validity, pa.py_buffer(milliseconds * 1000)]
    return pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), len(milliseconds), buffers)


def _one_array(table: "pa.Table | pa.RecordBatch", name: str) -> "pa.Array":
    import pyarrow as pa

    if table.schema.names.count(name) > 1:
        raise EncodeError(f"the table has more than one column {name!r}")
    column = table.column(name)
    if not isinstance(column, pa.ChunkedArray):
        return column
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        raise EncodeError(f"the column {name!r} holds more than an array can; send the table in several parts")
    return joined


def _from_binary(name: str, array: "pa.Array") -> Binary:
    import numpy as np
    import pyarrow as pa
    from pyarrow import types

    kind = array.type
    if types.is_null(kind):
        array = pa.nulls(len(array), pa.binary())
    elif types.is_string(kind):
        array = array.cast(pa.binary())
    elif not types.is_binary(kind) and not types.is_large_binary(kind):
        try:
            array = array.cast(pa.large_binary())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise EncodeError(f"the column {name!r} has type {kind}; give binary or text") from None
    _, offsets, data = array.buffers()
    width: type[np.signedinteger[Any]] = np.int64 if types.is_large_binary(array.type) else np.int32
    count, first = len(array), array.offset
    return Binary(
        np.frombuffer(offsets, width)[first : first + count + 1] if count else np.zeros(1, width),
        np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8),
        _bitmap(array) if array.null_count else None,
    )


def _bitmap(array: "pa.Array") -> "NDArray[np.uint8]":
    import numpy as np

    bitmap = np.frombuffer(array.buffers()[0], np.uint8)
    return pack_bits(unpack_bits(bitmap, len(array), array.offset)) if array.offset else bitmap


def _milliseconds(name: str, array: "pa.Array", now_ms: int) -> "NDArray[np.int64]":
    import pyarrow as pa
    from pyarrow import types

    kind = array.type
    if types.is_timestamp(kind):
        # A finer unit is cut off.
        array = array.cast(pa.timestamp("ms", kind.tz), safe=False)
    elif not types.is_integer(kind) and not types.is_null(kind):
        raise EncodeError(f"the column {name!r} has type {kind}; give timestamps or integers of milliseconds")
    try:
        numbers: NDArray[np.int64] = array.cast(pa.int64()).fill_null(now_ms).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid as error:
        raise EncodeError(f"the column {name!r} has a timestamp that does not fit: {error}") from None
    return numbers


def _from_headers(name: str, array: "pa.Array") -> Headers:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types

    kind = array.type
    if types.is_map(kind):
        pairs = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
        array = array.cast(pa.list_(pairs))
    is_list = types.is_list(array.type) or types.is_large_list(array.type)
    if not is_list or not types.is_struct(array.type.value_type):
        raise EncodeError(f"the column {name!r} has type {kind}; give lists of structs with a key and a value, or maps")
    # Without the headers of null rows, which may be there all the same.
    structs = array.flatten()
    fields = dict(zip((field.name for field in structs.type), structs.flatten(), strict=True))
    if set(fields) != {"key", "value"}:
        raise EncodeError(f"the structs of the column {name!r} have the fields {list(fields)}; give key and value")
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False), out=offsets[1:])
    return Headers(offsets, _from_binary(name, fields["key"]), _from_binary(name, fields["value"]))
