"""Fetches of one topic id: whole batches, and where to go on behind them."""

import pytest

from penstock.client.errors import BrokerError
from penstock.client.metadata import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import NewRecord, build, iterate
from penstock.protocol.schemas.fetch import AbortedTransaction, FetchableTopicResponse, FetchResponse, PartitionData
from penstock.spark.connecting import connect
from penstock.spark.fetching import Chunk, RemadeTopicError, _read, fetch_chunk, whole_batches
from penstock.spark.options import Named
from penstock.spark.positions import find_partitions
from tests.spark.cluster import TestCluster


def batch(first: int, count: int, last_delta: int | None = None) -> bytearray:
    return build([NewRecord(b"x")] * count, base_offset=first, last_offset_delta=last_delta)


def topic_id(cluster: TestCluster, topic: str) -> str:
    return cluster.link.run(find_partitions(cluster.cluster, Named((topic,)))).topic_ids[topic]


def fetch(cluster: TestCluster, topic: str, offset: int, of: str = "") -> Chunk:
    return cluster.link.run(fetch_chunk(cluster.cluster, TopicPartition(topic, 0), of, offset))


def test_a_chunk_is_whole_batches_and_where_to_go_on(cluster: TestCluster) -> None:
    topic = cluster.create("fetched")
    cluster.send_count(topic, 30, batch=10)

    chunk = fetch(cluster, topic, 12, topic_id(cluster, topic))

    assert next(iterate(chunk.data[: len(chunk.data) // 2])).offset == 10
    assert (chunk.next_offset, chunk.last_stable_offset, chunk.aborted) == (30, 30, ())


def test_at_the_end_of_a_log_nothing_comes(cluster: TestCluster) -> None:
    topic = cluster.create("fetched")
    cluster.send(topic, ["only"])

    chunk = fetch(cluster, topic, 1)

    assert (len(chunk.data), chunk.next_offset) == (0, 1)


def test_a_topic_that_was_made_again_is_not_read(cluster: TestCluster) -> None:
    topic = cluster.create("remade")
    before = topic_id(cluster, topic)
    cluster.send(topic, ["old"])
    assert fetch(cluster, topic, 0, before).next_offset == 1
    cluster.delete_topic(topic)
    cluster.broker.create_topic(topic)
    cluster.send(topic, ["new"])

    with pytest.raises(RemadeTopicError, match="was deleted and made again"):
        fetch(cluster, topic, 0, before)


def test_a_process_that_remembers_the_topic_before_does_not_take_the_new_one_for_remade(cluster: TestCluster) -> None:
    topic = cluster.create("renewed")
    cluster.send(topic, ["old"])
    # A worker of Spark's lives longer than a batch, and has a cache of its own.
    worker = connect({"bootstrap.servers": cluster.bootstrap, "client.id": topic})
    key = TopicPartition(topic, 0)
    assert worker.run(fetch_chunk(worker.cluster, key, topic_id(cluster, topic), 0)).next_offset == 1
    cluster.delete_topic(topic)
    cluster.broker.create_topic(topic)
    cluster.send(topic, ["new", "er"])

    assert worker.run(fetch_chunk(worker.cluster, key, topic_id(cluster, topic), 0)).next_offset == 2


def test_an_offset_beyond_the_log_is_an_error(cluster: TestCluster) -> None:
    topic = cluster.create("short")

    with pytest.raises(BrokerError, match=f"offset 5 of {topic}-0") as caught:
        fetch(cluster, topic, 5)

    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_batch_that_was_cut_off_is_left_out() -> None:
    data = memoryview(batch(0, 3) + batch(3, 2))

    assert whole_batches(data, 0) == (len(data), 5)
    assert whole_batches(data[:-1], 0) == (len(batch(0, 3)), 3)
    assert whole_batches(data[: len(batch(0, 3)) + 20], 0) == (len(batch(0, 3)), 3)
    assert whole_batches(memoryview(b""), 7) == (0, 7)


def test_batches_behind_the_end_are_left_out() -> None:
    data = memoryview(batch(0, 3) + batch(3, 2) + batch(9, 1))

    assert whole_batches(data, 0, 3) == (len(batch(0, 3)), 3)
    assert whole_batches(data, 0, 4) == (len(batch(0, 3) + batch(3, 2)), 9)
    assert whole_batches(data, 0, 10) == (len(data), 10)
    assert whole_batches(memoryview(batch(9, 1)), 5, 7) == (0, 9), "compaction has taken all that was wanted"


def test_after_compaction_the_next_offset_is_behind_the_gap() -> None:
    assert whole_batches(memoryview(batch(4, 1, last_delta=9)), 2)[1] == 14


def test_what_is_no_batch_is_left_for_the_decoder_to_refuse() -> None:
    assert whole_batches(memoryview(bytes(100)), 3) == (100, 3)
    assert whole_batches(memoryview(batch(0, 3))[:-1], 3) == (len(batch(0, 3)) - 1, 3)


def answer(**data: object) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic="a", partitions=[PartitionData(**data)])])  # type: ignore[arg-type]


def test_aborted_transactions_are_told_to_the_decoder() -> None:
    aborted = [AbortedTransaction(producer_id=7, first_offset=3)]
    response = answer(partition_index=0, high_watermark=9, last_stable_offset=5, aborted_transactions=aborted)

    chunk = _read(response, TopicPartition("a", 0), 2)

    assert (chunk.aborted, chunk.last_stable_offset) == (((7, 3),), 5)


def test_a_broker_that_tells_no_stable_offset_has_no_transactions() -> None:
    response = answer(partition_index=0, high_watermark=9, aborted_transactions=None)

    assert _read(response, TopicPartition("a", 0), 2).last_stable_offset == 9


def test_an_answer_without_the_partition_has_nothing_of_it() -> None:
    assert _read(answer(partition_index=1), TopicPartition("a", 0), 2).next_offset == 2
    with pytest.raises(BrokerError, match="a fetch of a-0"):
        _read(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND), TopicPartition("a", 0), 2)
