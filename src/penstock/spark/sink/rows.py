"""`divide` makes messages of the rows of a DataFrame: it checks and divides them by topic, as whole columns of
Arrow."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.client.producer.bulk_result import NewMessage

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


class RowError(ValueError):
    """A row cannot be a message; `row` is its place in the record batch."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


@dataclass(slots=True, frozen=True)
class Piece:
    """The rows of one topic, as `Producer.send_batch` takes them."""

    topic: str
    messages: "pa.RecordBatch"
    rows: "NDArray[np.int64] | None" = None
    """The positions of the rows in the record batch, if it has rows of other topics too."""

    def place(self, row: int) -> int:
        return row if self.rows is None else int(self.rows[row])

    def one_by_one(self) -> list[NewMessage]:
        """The messages as Python objects: slower for many of them, but no library has to be loaded to send them."""
        import pyarrow as pa

        read = self.messages
        columns = {name: read.column(name) for name in read.schema.names}
        for name in columns.keys() & {"key", "value"}:
            columns[name] = columns[name].cast(pa.binary())
        if "timestamp" in columns and pa.types.is_timestamp(columns["timestamp"].type):
            columns["timestamp"] = columns["timestamp"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        nothing = [None] * len(read)
        lists = (columns[name].to_pylist() if name in columns else nothing for name in _ORDER)
        return [
            NewMessage(value, key, partition, [(each["key"], each["value"]) for each in headers or ()], timestamp)
            for value, key, partition, headers, timestamp in zip(*lists, strict=True)
        ]


def divide(batch: "pa.RecordBatch", columns: Sequence[str], topic: str | None) -> list[Piece]:
    """The messages of a record batch, in order for each topic. All go to `topic` if it is given; otherwise the column
    `topic` says where."""
    import pyarrow as pa

    if not batch.num_rows:
        return []
    _check(batch, columns)
    made = {name: batch.column(name) for name in columns if name != "topic"}
    if "timestamp" in made and pa.types.is_floating(made["timestamp"].type):
        made["timestamp"] = _from_seconds(made["timestamp"])
    messages = pa.RecordBatch.from_pydict(made)
    if topic is not None:
        return [Piece(topic, messages)]
    return _by_topic(batch.column("topic"), messages)


_ORDER: Final = ("value", "key", "partition", "headers", "timestamp")
_MAX_SECONDS: Final = float(1 << 43)
"""Limits timestamps: later than any year that Spark knows, and in microseconds it fits 64 bits."""


def _by_topic(topics: "pa.Array", messages: "pa.RecordBatch") -> list[Piece]:
    import pyarrow as pa

    from penstock.protocol.columns import group_rows

    encoded = topics.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        return [Piece(names[0], messages)]
    groups = group_rows(encoded.indices.to_numpy())
    return [Piece(names[index], messages.take(pa.array(rows)), rows) for index, rows in groups]


def _check(batch: "pa.RecordBatch", columns: Sequence[str]) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if "topic" in columns and batch.column("topic").null_count:
        _refuse(pc.is_null(batch.column("topic")), "has no topic: fill the column, or set the option 'topic'")
    if "partition" in columns:
        _refuse(pc.less(batch.column("partition"), 0), "has a negative partition: they are numbered from 0, or null")
    if "timestamp" in columns:
        stamps = batch.column("timestamp")
        if pa.types.is_floating(stamps.type):
            # The comparison is false for NaN too.
            fits = pc.and_(pc.greater_equal(stamps, 0), pc.less(stamps, _MAX_SECONDS))
            _refuse(pc.invert(fits), "has a timestamp that is no time: give seconds since 1970, or null")
        else:
            _refuse(pc.less(stamps.cast(pa.int64()), 0), "has a timestamp before 1970, which a message cannot have")
    if "headers" in columns:
        _check_headers(batch.column("headers"))


def _check_headers(headers: "pa.Array") -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = pc.struct_field(pc.list_flatten(headers), "key")
    if keys.null_count:
        first = int(pc.index(pc.is_null(keys), pa.scalar(True)).as_py())
        raise RowError(int(pc.list_parent_indices(headers)[first].as_py()), "has a header without a key: give it one")


def _refuse(is_wrong: "pa.Array", why: str) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if (first := pc.index(is_wrong, pa.scalar(True)).as_py()) >= 0:
        raise RowError(first, why)


def _from_seconds(seconds: "pa.Array") -> "pa.Array":
    """Seconds as milliseconds, cut off as Spark does: at the microsecond first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    microseconds = pc.trunc(pc.multiply(seconds, 1e6)).cast(pa.int64())
    return pc.divide(microseconds, 1000)
