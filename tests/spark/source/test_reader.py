"""What tasks read, on a real broker and from batches made by hand, without Spark."""

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.client.errors import BrokerError, CorruptBatchError
from penstock.client.metadata import TopicPartition
from penstock.protocol.batch import read_header, stamp, whole_batches
from penstock.protocol.columns import Columns, Impl, decode_pieces
from penstock.protocol.compression import Codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import NewRecord, build
from penstock.spark.options import Named, SourceOptions
from penstock.spark.planning import Range
from penstock.spark.positions import DataLossError, find_partitions
from penstock.spark.source import fetch as fetching
from penstock.spark.source import reader as reading
from penstock.spark.source.fetch import Chunk
from tests.hostile import poison
from tests.spark.cluster import TestCluster

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)
OFFSETS = pa.schema([("offset", pa.int64())])


def whole(cluster: TestCluster, topic: str, start: int, end: int) -> Range:
    ids = cluster.link.run(find_partitions(cluster.cluster, Named((topic,)))).topic_ids
    return Range(topic, ids[topic], 0, start, end)


def read(options: SourceOptions, wanted: Range, schema: pa.Schema = OFFSETS) -> pa.Table:
    return pa.Table.from_batches(reading.read_range(options, wanted, schema), schema)


def offsets(options: SourceOptions, wanted: Range) -> list[int]:
    return list(read(options, wanted).column("offset").to_pylist())


def test_rows_have_the_columns_of_sparks_kafka_source(cluster: TestCluster) -> None:
    topic = cluster.create("rows")
    cluster.send(
        topic,
        [
            NewRecord(b"value", b"key", [("a", b"1"), ("b", None)], 1_000),
            NewRecord(None, None, (), 2_000),
        ],
    )

    one, two = read(cluster.options(subscribe=topic), whole(cluster, topic, 0, 2), SCHEMA).to_pylist()

    assert one | {"timestamp": one["timestamp"].timestamp()} == {
        "key": b"key",
        "value": b"value",
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": 1.0,
        "timestampType": 0,
        "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    }
    assert (two["key"], two["value"], two["headers"]) == (None, None, None), "no headers are null, as in Spark's source"


def test_only_columns_that_are_asked_for_are_decoded(cluster: TestCluster) -> None:
    topic = cluster.create("columns")
    cluster.send(topic, ["a", "b"])
    schema = pa.schema([("timestampType", pa.int32()), ("value", pa.binary())])

    assert read(cluster.options(subscribe=topic), whole(cluster, topic, 0, 2), schema).to_pydict() == {
        "timestampType": [0, 0],
        "value": [b"a", b"b"],
    }


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_read(cluster: TestCluster, codec: Codec) -> None:
    topic = cluster.create("codec")
    cluster.send(topic, ["x" * 100] * 50, codec=codec)

    assert offsets(cluster.options(subscribe=topic), whole(cluster, topic, 0, 50)) == list(range(50))


def test_a_range_within_batches_is_cut_out(cluster: TestCluster) -> None:
    topic = cluster.create("cut")
    cluster.send_count(topic, 100, batch=30)
    options = cluster.options(subscribe=topic)

    assert offsets(options, whole(cluster, topic, 17, 61)) == list(range(17, 61))
    assert offsets(options, whole(cluster, topic, 99, 100)) == [99]


def test_many_small_answers_make_the_whole(cluster: TestCluster) -> None:
    topic = cluster.create("small")
    cluster.send_count(topic, 200, batch=7)
    options = cluster.options(subscribe=topic, kafka__max__partition__fetch__bytes="100")

    assert offsets(options, whole(cluster, topic, 3, 200)) == list(range(3, 200))


def test_a_small_range_of_a_long_log_is_fetched_alone(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = cluster.create("alone")
    for _ in range(20):
        cluster.send(topic, ["x" * 50_000] * 2)
    fetched: list[tuple[int, int]] = []

    async def watch(*args: Any, **options: Any) -> Chunk:
        chunk = await fetching.fetch_chunk(*args, **options)
        fetched.append((options["max_bytes"], len(chunk.data)))
        return chunk

    monkeypatch.setattr(reading, "fetch_chunk", watch)
    assert offsets(cluster.options(subscribe=topic), whole(cluster, topic, 3, 4)) == [3]
    assert len(fetched) == 1
    assert fetched[0][0] == reading.LEAST_BYTES
    assert fetched[0][1] < 110_000, "one batch, which a broker sends whole"

    fetched.clear()
    assert offsets(cluster.options(subscribe=topic), whole(cluster, topic, 2, 40)) == list(range(2, 40))
    assert [most for most, _ in fetched] == [reading.LEAST_BYTES, pytest.approx(36 * 50_000 * 1.1, rel=0.01)]


def test_record_batches_have_a_size_that_spark_likes(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_ROWS", 40)
    topic = cluster.create("sizes")
    cluster.send_count(topic, 100)

    batches = list(reading.read_range(cluster.options(subscribe=topic), whole(cluster, topic, 0, 100), OFFSETS))

    assert [batch.num_rows for batch in batches] == [40, 40, 20]


def test_a_reader_that_is_left_early_leaves_nothing_behind(cluster: TestCluster) -> None:
    topic = cluster.create("left")
    cluster.send_count(topic, 100, batch=5)
    options = cluster.options(subscribe=topic, kafka__max__partition__fetch__bytes="100")
    rows = reading.read_range(options, whole(cluster, topic, 0, 100), OFFSETS)
    assert isinstance(rows, Iterator)
    next(rows)

    rows.close()  # type: ignore[attr-defined]

    assert offsets(options, whole(cluster, topic, 90, 100)) == list(range(90, 100))


def test_retention_that_overtook_the_query_is_a_clear_error(cluster: TestCluster) -> None:
    topic = cluster.create("overtaken")
    cluster.send_count(topic, 100)
    wanted = whole(cluster, topic, 10, 100)
    cluster.delete_records(topic, 40)

    with pytest.raises(DataLossError, match=f"offsets 10 to 40 of {topic}-0 are gone: retention"):
        read(cluster.options(subscribe=topic), wanted)


def test_retention_that_overtook_the_query_is_skipped_and_logged_if_loss_is_tolerated(
    cluster: TestCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = cluster.create("skipped")
    cluster.send_count(topic, 100)
    options = cluster.options(subscribe=topic, failOnDataLoss="false")
    part, rest = whole(cluster, topic, 10, 30), whole(cluster, topic, 30, 100)
    cluster.delete_records(topic, 40)
    caplog.set_level(logging.WARNING)

    assert offsets(options, rest) == list(range(40, 100))
    assert offsets(options, part) == []
    assert "are gone" in caplog.text


def test_retention_may_overtake_in_the_middle_of_a_range(cluster: TestCluster) -> None:
    topic = cluster.create("middle")
    cluster.send_count(topic, 100, batch=10)
    options = cluster.options(subscribe=topic, kafka__max__partition__fetch__bytes="100", failOnDataLoss="false")
    rows = reading.read_range(options, whole(cluster, topic, 0, 100), OFFSETS)
    seen = next(rows).column(0).to_pylist()
    cluster.delete_records(topic, 70)

    seen += [offset for batch in rows for offset in batch.column(0).to_pylist()]

    assert seen[:10] == list(range(10))
    assert seen[-30:] == list(range(70, 100))


class Clock:
    """Stands still, unless the test has it go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(reading, "time", SimpleNamespace(monotonic=lambda: self.now))

    def pause_after_each(self, rows: Iterator[pa.RecordBatch]) -> list[int]:
        """The offsets, as Spark takes them that needs hours for each batch."""
        seen = []
        for batch in rows:
            seen += batch.column(0).to_pylist()
            self.now += 10_000
        return seen


def test_retention_may_overtake_while_spark_takes_its_time(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.create("late")
    cluster.send_count(topic, 100, batch=10)
    options = cluster.options(subscribe=topic, kafka__max__partition__fetch__bytes="100", failOnDataLoss="false")
    clock = Clock(monkeypatch)
    rows = reading.read_range(options, whole(cluster, topic, 0, 100), OFFSETS)
    next(rows)
    cluster.delete_records(topic, 70)

    assert clock.pause_after_each(rows)[-30:] == list(range(70, 100))


def test_a_log_that_was_cut_off_is_a_clear_error(cluster: TestCluster) -> None:
    topic = cluster.create("short")
    cluster.send_count(topic, 10)

    with pytest.raises(DataLossError, match="the log ends at 10 now"):
        read(cluster.options(subscribe=topic), whole(cluster, topic, 20, 30))

    tolerant = cluster.options(subscribe=topic, failOnDataLoss="false")
    assert offsets(tolerant, whole(cluster, topic, 20, 30)) == []


def test_records_that_do_not_come_are_waited_for_and_then_an_error(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MAX_WAIT_MS", 10)
    topic = cluster.create("waiting")
    cluster.send_count(topic, 10)
    options, clock = {"subscribe": topic}, Clock(monkeypatch)

    async def fetch(*args: Any, **options: Any) -> Chunk:
        clock.now += 10
        return await fetching.fetch_chunk(*args, **options)

    monkeypatch.setattr(reading, "fetch_chunk", fetch)

    with pytest.raises(DataLossError, match=f"offsets 10 to 12 of {topic}-0 are gone: the log ends at 10 now"):
        read(cluster.options(**options), whole(cluster, topic, 5, 12))

    assert offsets(cluster.options(**options, failOnDataLoss="false"), whole(cluster, topic, 5, 12)) == [5, 6, 7, 8, 9]


def test_a_topic_that_is_gone_is_an_error_or_the_end_of_the_range(cluster: TestCluster) -> None:
    topic, remade = cluster.create("gone"), cluster.create("remade")
    ranges = []
    for name in (topic, remade):
        cluster.send_count(name, 10)
        ranges.append(whole(cluster, name, 0, 10))
        cluster.delete_topic(name)
    cluster.broker.create_topic(remade)
    cluster.send_count(remade, 10)

    for wanted, why in zip(ranges, ["there is no such topic", "was deleted and made again"], strict=True):
        with pytest.raises(DataLossError, match=why):
            read(cluster.options(subscribe=wanted.topic), wanted)
        assert offsets(cluster.options(subscribe=wanted.topic, failOnDataLoss="false"), wanted) == []


def test_a_topic_made_again_with_fewer_partitions_is_an_error_or_the_end_of_the_range(cluster: TestCluster) -> None:
    topic = cluster.create("fewer", 2)
    cluster.send_count(topic, 10, partition=1)
    ids = cluster.link.run(find_partitions(cluster.cluster, Named((topic,)))).topic_ids
    wanted = Range(topic, ids[topic], 1, 0, 10)
    cluster.delete_topic(topic)
    cluster.broker.create_topic(topic)

    with pytest.raises(DataLossError, match="the topic has one partition"):
        read(cluster.options(subscribe=topic), wanted)
    assert offsets(cluster.options(subscribe=topic, failOnDataLoss="false"), wanted) == []


def test_an_offset_that_is_outside_for_a_moment_is_asked_for_again_after_a_pause(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.create("moment")
    cluster.send_count(topic, 10)
    left, paused = [1, 2, 3], []

    async def fail_first(*args: Any, **options: Any) -> Chunk:
        if left:
            left.pop()
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, topic)
        return await fetching.fetch_chunk(*args, **options)

    def pause_ms(tries: int) -> float:
        paused.append(tries)
        return 1.0

    monkeypatch.setattr(reading, "fetch_chunk", fail_first)
    monkeypatch.setattr(reading, "backoff_ms", pause_ms)

    assert offsets(cluster.options(subscribe=topic), whole(cluster, topic, 0, 10)) == list(range(10))
    assert paused == [1, 2, 3]


def test_an_offset_that_stays_outside_is_an_error_in_the_end(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.create("outside")
    cluster.send_count(topic, 10)
    clock = Clock(monkeypatch)

    async def fail(*_: object, **__: object) -> Chunk:
        clock.now += 10
        raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, topic)

    monkeypatch.setattr(reading, "fetch_chunk", fail)

    with pytest.raises(DataLossError, match=f"offsets 0 to 10 of {topic}-0.* for 60000 ms now"):
        read(cluster.options(subscribe=topic, failOnDataLoss="false"), whole(cluster, topic, 0, 10))


def chunk(data: bytes | bytearray, next_offset: int, aborted: tuple[tuple[int, int], ...] = ()) -> Chunk:
    return Chunk(memoryview(data), next_offset, next_offset, aborted)


@pytest.fixture
def serve(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has fetches answered with chunks made by hand, and reads them."""

    def read_them(chunks: list[Chunk], start: int, end: int, **options: str) -> list[int]:
        answers = iter(chunks)

        async def answer(*_: object, **__: object) -> Chunk:
            return next(answers)

        monkeypatch.setattr(reading, "fetch_chunk", answer)
        return offsets(cluster.options(subscribe="made", **options), Range("made", "", 0, start, end))

    return read_them


def records(first: int, *deltas: int, last: int | None = None, **header: Any) -> bytearray:
    return build(
        [NewRecord(b"x")] * len(deltas), base_offset=first, offset_deltas=deltas, last_offset_delta=last, **header
    )


def test_gaps_of_compaction_are_no_loss(serve: Any) -> None:
    first, second = records(0, 0, 3, last=9), records(20, 1, 5, last=9)

    assert serve([chunk(first + second, 30)], 0, 30) == [0, 3, 21, 25]
    assert serve([chunk(first, 10), chunk(second, 30)], 2, 25) == [3, 21]
    assert serve([chunk(second, 30)], 4, 20) == []


def test_a_batch_that_compaction_has_emptied_is_passed(serve: Any) -> None:
    assert serve([chunk(records(0, last=9), 10), chunk(records(10, 0), 11)], 0, 11) == [10]


def marker(offset: int, producer_id: int, *, commit: bool) -> bytearray:
    key = (0).to_bytes(2, "big") + int(commit).to_bytes(2, "big")
    return build(
        [NewRecord(bytes(6), key)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def transactional(offset: int, producer_id: int) -> bytearray:
    return records(offset, 0, 1, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def test_aborted_transactions_and_control_records_are_left_out(serve: Any) -> None:
    log = (
        transactional(0, 7)
        + transactional(2, 8)
        + marker(4, 7, commit=False)
        + marker(5, 8, commit=True)
        + transactional(6, 7)
        + marker(8, 7, commit=True)
    )

    assert serve([chunk(log, 9, aborted=((7, 0),))], 0, 9) == [2, 3, 6, 7]


def test_a_damaged_batch_is_an_error_that_says_where(serve: Any) -> None:
    damaged = records(0, 0, 1)
    damaged[-1] ^= 1

    with pytest.raises(CorruptBatchError, match=r"made-0: the batch at offset 0 cannot be read: .*onCorrupt=skip"):
        serve([chunk(damaged, 2)], 0, 2)


def poisoned(offset: int, name: str) -> bytearray:
    data = bytearray(poison.KINDS[name]())
    stamp(data, offset, 0)
    return data


@pytest.mark.parametrize("name", poison.KINDS)
def test_a_poison_batch_fails_the_query_or_is_passed_over_and_logged(
    serve: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    middle = poisoned(2, name)
    after = read_header(middle).next_offset
    log = records(0, 0, 1) + middle + records(after, 0, 1)

    with pytest.raises(CorruptBatchError, match=f"made-0: the batch at offset 2 .*onCorrupt=skip .* at offset {after}"):
        serve([chunk(log, after + 2)], 0, after + 2)
    with caplog.at_level(logging.WARNING):
        assert serve([chunk(log, after + 2)], 0, after + 2, onCorrupt="skip") == [0, 1, after, after + 1]
    assert f"made-0: the batch at offset 2 cannot be read: {REASONS.get(name, '')}" in caplog.text
    assert f"offsets 0 to {after + 2} of made-0: 1 batches could not be read and were passed over" in caplog.text


REASONS = {"zstd bomb": "the zstd data decompresses to more than 67108864 bytes", "broken gzip": "the gzip data is cut"}


def test_a_bomb_is_refused_at_the_size_that_the_user_has_set(serve: Any) -> None:
    with pytest.raises(CorruptBatchError, match="more than 1000000 bytes"):
        serve([chunk(poisoned(0, "zstd bomb"), 1)], 0, 1, **{"kafka.max.decompressed.bytes": "1000000"})


def test_a_wrong_checksum_is_passed_over_unless_it_would_lead_beyond_the_log(serve: Any) -> None:
    damaged = records(2, 0, 1)
    damaged[-1] ^= 1
    log = records(0, 0, 1) + damaged
    assert serve([chunk(log + records(4, 0), 5)], 0, 5, onCorrupt="skip") == [0, 1, 4]
    assert serve([chunk(log, 4), chunk(records(4, 0), 5)], 0, 5, onCorrupt="skip") == [0, 1, 4]
    damaged[23:27] = (1000).to_bytes(4)
    lying = memoryview(records(0, 0, 1) + damaged)
    with pytest.raises(CorruptBatchError, match="where it ends cannot be told"):
        serve([Chunk(lying, whole_batches(lying, 0)[1], 5, ())], 0, 5, onCorrupt="skip")


def test_transactions_are_told_apart_behind_a_batch_that_was_passed_over(serve: Any) -> None:
    log = (
        transactional(0, 7)
        + poisoned(2, "absurd key length")
        + transactional(3, 8)
        + marker(5, 7, commit=False)
        + transactional(6, 7)
        + marker(8, 7, commit=True)
        + marker(9, 8, commit=True)
    )
    assert serve([chunk(log, 10, aborted=((7, 0),))], 0, 10, onCorrupt="skip") == [3, 4, 6, 7]


@pytest.mark.parametrize(
    ("data", "why"),
    [(bytes(100), "format 0 is not supported"), (records(0, 0, 1)[:-1], "does not fit"), (records(0, 0, 1), "before")],
    ids=["no batch", "cut off", "before the offset"],
)
def test_bytes_that_lead_nowhere_are_an_error_at_once(serve: Any, data: bytes, why: str) -> None:
    with pytest.raises(CorruptBatchError, match=f"made-0: the batch at offset 4 cannot be read: .*{why}"):
        serve([chunk(data, whole_batches(memoryview(data), 4)[1])], 4, 6)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_log_that_is_short_for_a_moment_is_read_whole_however_long_spark_takes(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """As after a change of leadership, when the new leader does not know yet how much is committed."""
    chunks = iter([chunk(records(0, 0, 1), 2), chunk(b"", 2), chunk(b"", 2), chunk(records(2, 0, 1), 4)])

    async def answer(*_: object, **__: object) -> Chunk:
        return next(chunks)

    monkeypatch.setattr(reading, "fetch_chunk", answer)
    options = cluster.options(subscribe="made", failOnDataLoss=fails)

    rows = reading.read_range(options, Range("made", "", 0, 0, 4), OFFSETS)
    assert Clock(monkeypatch).pause_after_each(rows) == [0, 1, 2, 3]


def test_checksums_are_not_checked_if_the_user_says_so(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = records(0, 0, 1)
    damaged[-2] ^= 1

    async def answer(*_: object, **__: object) -> Chunk:
        return chunk(damaged, 2)

    monkeypatch.setattr(reading, "fetch_chunk", answer)
    trusting = cluster.options(subscribe="made", kafka__check__crcs="false")

    assert offsets(trusting, Range("made", "", 0, 0, 2)) == [0, 1]


def test_numba_is_loaded_once_it_pays(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = cluster.create("many")
    cluster.send_count(topic, 100)
    used: list[str] = []

    def decode(data: memoryview, *, impl: Impl, **named: Any) -> Iterator[Columns]:
        used.append(impl)
        return decode_pieces(data, impl=impl, **named)

    monkeypatch.setattr(reading, "decode_pieces", decode)
    monkeypatch.setattr(reading, "_decoder", type(reading._decoder)())
    monkeypatch.setattr(reading, "ROWS_FOR_NUMBA", 150)
    options, wanted = cluster.options(subscribe=topic), whole(cluster, topic, 0, 100)

    assert offsets(options, wanted) == offsets(options, wanted)
    assert used == ["numpy", "auto"]


def test_the_key_of_a_range_is_its_partition() -> None:
    assert Range("a", "", 3, 0, 1).key == TopicPartition("a", 3)
