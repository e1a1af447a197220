"""Checksums of rows: of what they hold, and of nothing else."""

import pyarrow as pa
import pytest

from penstock.spark.lake.checksums import Checksum
from penstock.spark.lake.files import arrow_schema
from tests.spark.lakes import rows


def checksum(table: pa.Table) -> int:
    made = Checksum()
    for batch in table.to_batches():
        made.add(batch)
    return made.value


def test_a_checksum_is_the_same_however_the_rows_lie_in_memory() -> None:
    whole = pa.Table.from_batches([rows(range(100))])
    pieces = pa.Table.from_batches([rows(range(10)), rows(range(200)).slice(10, 70), rows(range(80, 100))])
    assert checksum(whole) == checksum(pieces)


@pytest.mark.parametrize("column", arrow_schema().names)
def test_a_checksum_is_another_when_any_column_is(column: str) -> None:
    table = pa.Table.from_batches([rows(range(20))])
    index = table.schema.names.index(column)
    # The same values in another order: nothing but where they stand has changed.
    other = table.column(column).take(pa.array([1, 0, *range(2, 20)]))
    if other == table.column(column):
        other = pa.chunked_array([pa.nulls(20, table.schema.field(index).type)])
    assert checksum(table) != checksum(table.set_column(index, table.schema.field(index), other))


def test_a_checksum_tells_null_from_empty() -> None:
    table = pa.Table.from_batches([rows([0])])
    for column, empty in (("key", b""), ("headers", [])):
        field = table.schema.field(column)
        index = table.schema.names.index(column)
        nothing = table.set_column(index, field, pa.array([None], field.type))
        assert checksum(nothing) != checksum(table.set_column(index, field, pa.array([empty], field.type)))
