"""Fetches of one topic id: whole batches, and where to go on behind them."""

import pytest

from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import BrokerError
from penstock.client.metadata import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import iterate
from penstock.protocol.schemas.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from penstock.protocol.schemas.metadata import MetadataRequest
from penstock.spark.link import connect
from penstock.spark.offsets import id_text
from penstock.spark.options import Named
from penstock.spark.positions import find_partitions
from penstock.spark.source.fetch import Chunk, RemadeTopicError, _read, fetch_chunk
from tests.client import peer as scripted
from tests.spark.cluster import TestCluster
from tests.waiting import in_loop


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


@in_loop
async def test_a_task_follows_the_leader_that_a_refusal_names() -> None:
    async with scripted.peers(2, orders=[0]) as (old, new), Cluster(old.address) as cluster:
        sent = scripted.topic_id("orders")

        def answered(**data: object) -> FetchResponse:
            partition = PartitionData(partition_index=0, **data)  # type: ignore[arg-type]
            return FetchResponse(responses=[FetchableTopicResponse(topic_id=sent, partitions=[partition])])

        refusal = answered(
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=3),
        )
        refusal.node_endpoints = [NodeEndpoint(node_id=1, host="127.0.0.1", port=new.port)]
        old.answers[FetchRequest] = lambda _: refusal
        new.answers[FetchRequest] = lambda _: answered(last_stable_offset=7, records=b"")

        chunk = await fetch_chunk(cluster, TopicPartition("orders", 0), id_text(sent), 0)

        assert chunk.last_stable_offset == 7
        assert len(old.requests(MetadataRequest)) == 1
        assert [each.topics[0].topic_id for each in new.requests(FetchRequest)] == [sent]
