"""What the sink is told, and what it says against it."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.options import OptionsError
from penstock.spark.sink.options import SinkOptions, check_columns, read_sink_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
TEXT, BYTES, INT, LONG, STAMP = StringType(), BinaryType(), IntegerType(), LongType(), TimestampType()


def headers(value: DataType) -> ArrayType:
    return ArrayType(StructType().add("key", TEXT, nullable=False).add("value", value), containsNull=False)


HEADERS = headers(BYTES)


def columns(*fields: tuple[str, DataType], topic: str | None = "orders") -> tuple[str, ...]:
    schema = StructType([StructField(*each) for each in fields])
    return check_columns(schema, SinkOptions(settings=SERVERS, topic=topic))


def test_settings_of_the_producer_and_the_topic_are_read() -> None:
    options = read_sink_options({**SERVERS, "Topic": " orders ", "kafka.compression.type": "zstd"})

    assert options.topic == "orders"
    assert options.settings == {"bootstrap.servers": "localhost:9092", "compression.type": "zstd"}
    assert read_sink_options(SERVERS).topic is None


def test_options_that_spark_adds_or_the_source_has_too_are_fine() -> None:
    more = {"checkpointLocation": "/tmp/c", "queryName": "q", "includeHeaders": "true", "kafka.group.id": "g"}

    assert read_sink_options(SERVERS | more).topic is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"kafka\.bootstrap\.servers is missing"),
        (SERVERS | {"topik": "x"}, "topik is no option of the sink: did you mean topic"),
        (SERVERS | {"path": "x"}, r"path is no option of the sink: known are topic and kafka\.\*"),
        (SERVERS | {"subscribe": "x"}, "subscribe is an option of the source: name the topic to write to with 'topic'"),
        (SERVERS | {"topic": " "}, "topic is empty"),
        (SERVERS | {"kafka.compression.type": "zip"}, r"kafka\.compression\.type is 'zip'"),
        (SERVERS | {"kafka.acks": "1"}, r"kafka\.acks is '1', but must be all, or enable\.idempotence=false"),
        (SERVERS | {"kafka.lingerms": "1"}, r"kafka\.lingerms is no setting of a producer: did you mean linger\.ms"),
        (SERVERS | {"kafka.key.serializer": "x"}, r"kafka\.key\.serializer cannot be set here: leave it out"),
        (SERVERS | {"kafka.transactional.id": "x"}, "the sink sends at least once, without transactions"),
    ],
)
def test_a_wrong_option_says_what_to_do(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        read_sink_options(options)


def test_acks_may_be_fewer_if_idempotence_is_given_up() -> None:
    settings = read_sink_options(SERVERS | {"kafka.acks": "1", "kafka.enable.idempotence": "false"}).settings

    assert settings["acks"] == "1"


def test_only_columns_that_messages_have_are_used() -> None:
    every = columns(("headers", HEADERS), ("timestamp", STAMP), ("value", BYTES), ("key", TEXT), ("partition", INT))

    assert every == ("key", "value", "headers", "partition", "timestamp")
    assert columns(("offset", LONG), ("value", TEXT)) == ("value",)
    assert columns(("timestamp", DoubleType()), ("value", TEXT), ("topic", TEXT), topic=None) == (
        "topic",
        "value",
        "timestamp",
    )


def test_the_option_topic_has_the_last_word_over_the_column() -> None:
    assert columns(("value", TEXT), ("topic", LONG)) == ("value",)


def test_strings_may_be_sorted_in_any_way() -> None:
    assert columns(("value", StringType("UNICODE_CI"))) == ("value",)


@pytest.mark.parametrize(
    ("fields", "topic", "message"),
    [
        ([("Value", TEXT)], "x", "there is no column 'value', only 'Value': name the one to be sent 'value'"),
        ([], "x", "there is no column 'value', only none at all"),
        ([("value", TEXT)], None, "there is neither an option 'topic' nor a column 'topic'"),
        ([("value", LONG)], "x", "the column 'value' is bigint, but must be string or binary: cast it"),
        ([("value", TEXT), ("key", INT)], "x", "the column 'key' is int, but must be string or binary"),
        ([("value", TEXT), ("topic", BYTES)], None, "the column 'topic' is binary, but must be string"),
        ([("value", TEXT), ("partition", LONG)], "x", "the column 'partition' is bigint, but must be int"),
        ([("value", TEXT), ("timestamp", DateType())], "x", "'timestamp' is date, but must be timestamp or double"),
        ([("value", TEXT), ("headers", MapType(TEXT, BYTES))], "x", "'headers' is map<.*>, but must be array<struct<"),
        ([("value", TEXT), ("headers", headers(TEXT))], "x", "value:string>>, but must be .*value:binary>>: cast it"),
        ([("value", TEXT), ("value", BYTES)], "x", "there are two columns 'value': drop one"),
    ],
)
def test_a_wrong_column_says_what_to_do(fields: list[tuple[str, DataType]], topic: str | None, message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        columns(*fields, topic=topic)
