"""The columns of Spark's Kafka source, or some of them."""

import pytest
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructType, TimestampType

from penstock.spark.options import OptionsError
from penstock.spark.schema import check_schema, decoded_names, schema_text


def kafka_schema() -> StructType:
    return (
        StructType()
        .add("key", BinaryType())
        .add("value", BinaryType())
        .add("topic", StringType())
        .add("partition", IntegerType())
        .add("offset", LongType())
        .add("timestamp", TimestampType())
        .add("timestampType", IntegerType())
    )


def headers() -> ArrayType:
    return ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))


def test_the_schema_is_that_of_sparks_kafka_source() -> None:
    assert schema_text(includes_headers=False) == (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    )
    assert schema_text(includes_headers=True).endswith(", headers array<struct<key: string, value: binary>>")
    assert check_schema(kafka_schema().add("headers", headers()))[-1] == "headers"


def test_some_of_the_columns_may_be_asked_for_in_any_order() -> None:
    asked = StructType().add("offset", LongType()).add("value", BinaryType())

    assert check_schema(asked) == ("offset", "value")
    assert decoded_names(("timestampType", "value")) == {"timestamp_type": "timestampType", "value": "value"}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (StructType().add("values", BinaryType()), "a column 'values': choose from key, value"),
        (StructType().add("value", StringType()), "value as string, but it is binary"),
        (StructType(), "no column"),
    ],
)
def test_another_schema_is_refused(schema: StructType, message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        check_schema(schema)
