"""What may be set, and what is refused with a word about what to do."""

from typing import Any

import pytest

from penstock.client.admin.offsets import EARLIEST, LATEST
from penstock.client.metadata import TopicPartition
from penstock.spark.options import Assigned, Bound, Matching, Mode, Named, OptionsError, read_options

LEAST = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "events"}


def read(mode: Mode | None = "batch", /, **options: str) -> Any:
    return read_options(LEAST | {name.replace("__", "."): value for name, value in options.items()}, mode)


def test_names_of_options_are_case_insensitive() -> None:
    options = read_options({"KAFKA.Bootstrap.Servers": "a:1", "SUBSCRIBE": "Events", "MaxOffsetsPerTrigger": "5"})

    assert options.subscription == Named(("Events",))
    assert options.max_offsets_per_trigger == 5


def test_a_batch_reads_everything_by_default() -> None:
    options = read()

    assert (options.starting, options.ending) == (Bound(EARLIEST), Bound(LATEST))
    assert options.fails_on_data_loss
    assert not options.includes_headers


def test_committed_records_are_read_unless_the_user_says_otherwise() -> None:
    assert read().reads_committed
    assert not read(kafka__isolation__level="read_uncommitted").reads_committed


@pytest.mark.parametrize(
    ("options", "subscription"),
    [
        ({"subscribe": "b, a,,b"}, Named(("b", "a"))),
        ({"subscribePattern": "e.*"}, Matching("e.*")),
        (
            {"assign": '{"b": [1, 0], "a": [2]}'},
            Assigned((TopicPartition("a", 2), *[TopicPartition("b", n) for n in (0, 1)])),
        ),
    ],
)
def test_topics_are_named_matched_or_assigned(options: dict[str, str], subscription: object) -> None:
    given = {"kafka.bootstrap.servers": "localhost:9092", **options}

    assert read_options(given).subscription == subscription


def test_offsets_of_partitions_are_json() -> None:
    options = read(startingOffsets='{"events": {"0": 5, "1": -2}}', endingOffsets='{"events": {"0": -1, "1": 9}}')

    assert options.starting.each == {TopicPartition("events", 0): 5, TopicPartition("events", 1): EARLIEST}
    assert options.ending.each == {TopicPartition("events", 0): LATEST, TopicPartition("events", 1): 9}


def test_of_several_starting_positions_the_more_general_time_counts_as_in_spark() -> None:
    by_partition = '{"events": {"0": 7}}'

    assert read(startingOffsets="earliest", startingOffsetsByTimestamp=by_partition).starting == Bound(
        each={TopicPartition("events", 0): 7}, is_time=True
    )
    assert read(startingTimestamp="5", startingOffsetsByTimestamp=by_partition).starting == Bound(5, is_time=True)


@pytest.mark.parametrize(("text", "delay_ms"), [("15m", 900_000), ("500ms", 500), ("2 h", 7_200_000), ("40", 40)])
def test_a_delay_has_a_unit(text: str, delay_ms: int) -> None:
    assert read("streaming", startingOffsets="earliest", maxTriggerDelay=text).max_trigger_delay_ms == delay_ms


@pytest.mark.parametrize(("text", "size"), [("1000", 1000), ("64m", 64 << 20), ("1g", 1 << 30), ("3 KB", 3 << 10)])
def test_bytes_may_have_a_unit(text: str, size: int) -> None:
    assert read(maxBytesPerTrigger=text).max_bytes_per_trigger == size


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscrib": "x"}, "subscrib is no option of the source: did you mean subscribe"),
        ({"group.id": "x"}, "did you mean kafka.group.id"),
        ({"path": "x"}, "known are subscribe, "),
        ({"assign": '{"a": [0]}'}, "assign and subscribe are set: set one of"),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset cannot be set here: set startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit cannot be set here"),
        ({"kafka.value.deserializer": "x"}, "values are binary"),
        ({"kafka.fetch.max.wait.ms": "soon"}, "kafka.fetch.max.wait.ms is 'soon'"),
        ({"kafka.grup.id": "x"}, "kafka.grup.id is no setting of a consumer: did you mean group.id"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "sasl.mechanism"),
        ({"minPartitions": "0"}, "minPartitions is '0': set it to a number of 1 or more"),
        ({"maxRecordsPerPartition": "many"}, "maxRecordsPerPartition is 'many'"),
        ({"maxBytesPerTrigger": "much"}, "write a number of bytes, or 500k, 64m, 1g"),
        ({"onCorrupt": "ignore"}, "onCorrupt is 'ignore': set it to raise, which fails the query, or to skip"),
        ({"kafka.on.corrupt": "skip"}, "kafka.on.corrupt cannot be set here: set onCorrupt to raise or skip"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss is 'yes': set it to true or false"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon'"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger is 9 and"),
        ({"startingOffsets": "first"}, "startingOffsets is 'first', which is no JSON"),
        ({"startingOffsets": "[1]"}, "startingOffsets is '[1]': write"),
        ({"startingOffsets": '{"events": 3}'}, "startingOffsets has no partitions for topic 'events'"),
        ({"startingOffsets": '{"events": {"0": -3}}'}, "startingOffsets has '0': -3"),
        ({"startingOffsets": '{"events": {"0": true}}'}, "startingOffsets has '0': True"),
        ({"startingOffsets": "{}"}, "startingOffsets names no partition"),
        ({"startingTimestamp": "yesterday"}, "write milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "set it to error or latest"),
    ],
)
def test_a_wrong_option_is_named_and_what_to_do(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        read_options(LEAST | options, "batch")

    assert message in str(caught.value)


def test_without_brokers_there_is_nothing_to_read() -> None:
    with pytest.raises(OptionsError, match=r"kafka.bootstrap.servers is missing"):
        read_options({"subscribe": "events"})


def test_without_topics_there_is_nothing_to_read() -> None:
    with pytest.raises(OptionsError, match="no topics are set"):
        read_options({"kafka.bootstrap.servers": "localhost:9092"})


@pytest.mark.parametrize("pattern", ["", "("])
def test_a_pattern_is_a_regular_expression(pattern: str) -> None:
    with pytest.raises(OptionsError, match="subscribePattern is"):
        read_options({"kafka.bootstrap.servers": "localhost:9092", "subscribePattern": pattern})


@pytest.mark.parametrize("text", ["{}", '{"a": []}', '{"a": 0}', '{"a": ["0"]}', '{"a": [-1]}', "a"])
def test_assigned_partitions_are_lists_of_numbers(text: str) -> None:
    with pytest.raises(OptionsError, match="assign"):
        read_options({"kafka.bootstrap.servers": "localhost:9092", "assign": text})


@pytest.mark.parametrize("options", [{}, {"startingOffsets": "latest"}, {"startingOffsets": '{"events": {"0": -1}}'}])
def test_a_stream_from_latest_needs_a_group_that_keeps_where_it_began(options: dict[str, str]) -> None:
    with pytest.raises(OptionsError, match=r"kafka.group.id"):
        read_options(LEAST | options, "streaming")

    assert read_options(LEAST | options | {"kafka.group.id": "query"}, "streaming").group == "query"
    assert read_options(LEAST | {"startingOffsets": "earliest"}, "streaming").group is None


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    text = {"endingOffsets": "latest", "endingTimestamp": "1"}.get(name, '{"events": {"0": 1}}')

    with pytest.raises(OptionsError, match=f"{name} is set, but a stream has no end"):
        read_options(LEAST | {"startingOffsets": "earliest", name: text}, "streaming")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets has latest"),
        ({"startingOffsets": '{"events": {"0": -1}}'}, "startingOffsets has latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets has earliest"),
        (
            {"startingOffsets": '{"events": {"0": 5}}', "endingOffsets": '{"events": {"0": 4}}'},
            "events-0 ends at 4, before it starts at 5",
        ),
        (
            {"startingOffsets": '{"events": {"0": 5}}', "endingOffsets": '{"events": {"1": 6}}'},
            "events-0 has only one of",
        ),
        ({"startingTimestamp": "5", "endingTimestamp": "4"}, "endingTimestamp 4 is before startingTimestamp 5"),
    ],
)
def test_a_batch_whose_end_is_not_behind_its_start_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        read_options(LEAST | options, "batch")

    assert message in str(caught.value)


def test_options_that_tune_the_java_client_are_accepted_and_do_nothing() -> None:
    plain, tuned = (
        read(),
        read(**{"fetchOffset.numRetries": "3", "groupIdPrefix": "spark", "kafkaConsumer.pollTimeoutMs": "1"}),
    )

    assert plain == tuned


def test_a_bound_is_told_in_a_few_characters() -> None:
    key = TopicPartition("events", 0)

    assert Bound(EARLIEST).describe(key) == "earliest"
    assert Bound(LATEST).describe(key) == "latest"
    assert Bound(7, is_time=True).describe(key) == "time:7"
    assert Bound(each={key: 3}).describe(key) == "3"
    assert Bound(each={}).describe(key) == "earliest"


def test_options_that_are_shown_show_no_password() -> None:
    security = {"kafka__security.protocol": "SASL_SSL", "kafka__sasl.mechanism": "PLAIN", "kafka__sasl.username": "ann"}
    options = read("batch", **security, **{"kafka__sasl.password": "s3cret"})
    assert options.settings["sasl.password"] == "s3cret"
    assert "s3cret" not in repr(options)
