"""Names the columns of the source: those of Spark's Kafka source, or those of them that the user's schema has."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.protocol.columns import SPARK_NAMES
from penstock.spark.options import OptionsError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
HEADERS: Final = {"headers": "array<struct<key: string, value: binary>>"}

# The decoder's names of the columns.
_DECODED: Final = {spark: ours for ours, spark in SPARK_NAMES.items()}


def schema_text(*, includes_headers: bool) -> str:
    """The whole schema, as Spark's SQL writes it."""
    columns = COLUMNS | HEADERS if includes_headers else COLUMNS
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def check_schema(schema: "StructType") -> tuple[str, ...]:
    """The names of the columns that a schema asks for, in their order. A schema with headers needs no
    includeHeaders."""
    known = COLUMNS | HEADERS
    for each in schema.fields:
        if each.name not in known:
            raise OptionsError(f"the schema has a column {each.name!r}: choose from {', '.join(known)}")
        kind, right = each.dataType.simpleString(), known[each.name].replace(" ", "")
        if kind != right:
            raise OptionsError(
                f"the schema has {each.name} as {kind}, but it is {right}: ask for that, and cast it later"
            )
    if not schema.fields:
        raise OptionsError(f"the schema has no column: choose from {', '.join(known)}")
    return tuple(schema.fieldNames())


def decoded_names(columns: Sequence[str]) -> dict[str, str]:
    """Spark's names of some columns, by the decoder's."""
    return {_DECODED[name]: name for name in columns}
