"""Single messages by their ids, of any topic."""

import pytest

from penstock.client.admin.offsets import delete_records
from penstock.client.cluster.cluster import Cluster
from penstock.client.consumer.consumer import Consumer
from penstock.client.consumer.deserializers import DeserializationError
from penstock.client.consumer.lookup import find_batch
from penstock.client.errors import (
    CorruptBatchError,
    MissingMessageError,
    UnknownPartitionError,
    UnknownTopicError,
    unwrap,
)
from penstock.client.message import MessageId
from penstock.client.serializers import STRING
from penstock.protocol.compression import Codec
from penstock.protocol.control import ControlType, build_end_marker
from penstock.protocol.records import NewRecord, build
from penstock.protocol.schemas.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.testing import Broker
from tests.client.consuming import Stage
from tests.client.peer import Peer, peer
from tests.client.threads import client_threads
from tests.waiting import in_loop


@in_loop
async def test_a_message_is_found_by_its_id_or_the_text_of_it(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await stage.append([NewRecord(b"v", b"k", (("h", b"1"),), 77)], partition=1)
    async with stage.lone_consumer(value_deserializer=STRING) as consumer:
        message = await consumer.get(MessageId(stage.topic, 1, 0))
        assert message is not None
        assert (message.key, message.value, message.headers, message.timestamp) == (b"k", "v", (("h", b"1"),), 77)
        assert await consumer.get(str(message.id)) == message
        assert consumer.assignment == set()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@in_loop
async def test_a_message_in_the_middle_of_a_large_batch_is_found(broker: Broker, codec: Codec) -> None:
    stage = Stage(broker)
    await stage.send(*[b"%d" % number for number in range(3_000)], codec=codec)
    before = client_threads()
    async with stage.lone_consumer() as consumer:
        for offset in (0, 1_234, 2_999):
            message = await consumer.get(f"{stage.topic}-0@{offset}")
            assert message is not None
            assert message.value == b"%d" % offset
    assert client_threads() == before


@in_loop
async def test_what_polls_return_does_not_depend_on_it(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    async with stage.consumer() as consumer:
        [first] = await consumer.poll(1, timeout_ms=None)
        message = await consumer.get(f"{stage.topic}-0@7")
        assert message is not None
        assert message.offset == 7
        [second] = await consumer.poll(1, timeout_ms=None)
    assert (first.offset, second.offset) == (0, 1)


@in_loop
async def test_a_message_that_was_deleted_is_none_and_one_beyond_the_end_is_an_error(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    async with Cluster(broker.bootstrap) as cluster:
        unwrap(await delete_records(cluster, {stage.key: 5}))
    async with stage.lone_consumer() as consumer:
        assert await consumer.get(f"{stage.topic}-0@4") is None
        assert await consumer.get(f"{stage.topic}-0@5") is not None
        for offset in (10, 11, 99):
            with pytest.raises(MissingMessageError, match=f"no message at offset {offset}: .* has offsets 5 to 9"):
                await consumer.get(f"{stage.topic}-0@{offset}")


@in_loop
async def test_topics_and_partitions_that_do_not_exist_are_told(broker: Broker) -> None:
    stage = Stage(broker)
    async with stage.lone_consumer() as consumer:
        with pytest.raises(UnknownTopicError, match="did you mean"):
            await consumer.get(f"{stage.topic[1:]}-0@0")
        with pytest.raises(UnknownPartitionError, match="has one partition,"):
            await consumer.get(f"{stage.topic}-1@0")
        with pytest.raises(ValueError, match="is no message id"):
            await consumer.get("orders")


@in_loop
async def test_a_message_that_cannot_be_deserialized_is_told_with_its_bytes(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.send(b"\xff")
    async with stage.lone_consumer(value_deserializer=STRING) as consumer:
        with pytest.raises(DeserializationError) as raised:
            await consumer.get(f"{stage.topic}-0@0")
    assert raised.value.message.value == b"\xff"


# What only a broker with transactions or after compaction answers


def answer(broker: Peer, data: bytes, aborted: tuple[AbortedTransaction, ...] = ()) -> None:
    def fetch(request: FetchRequest) -> FetchResponse:
        (topic,) = request.topics
        partition = PartitionData(
            partition_index=0,
            high_watermark=100,
            records=data,
            aborted_transactions=list(aborted) if request.isolation_level else None,
        )
        return FetchResponse(
            responses=[FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[partition])]
        )

    broker.answers[FetchRequest] = fetch


@in_loop
async def test_what_compaction_took_is_gone() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        kept = build([NewRecord(b"a")], base_offset=4, offset_deltas=[2], last_offset_delta=2)
        answer(broker, bytes(kept))
        assert (await find_batch(cluster, MessageId("orders", 0, 5))).header.base_offset == 4
        with pytest.raises(MissingMessageError, match="compacted away") as raised:
            await find_batch(cluster, MessageId("orders", 0, 3))
        assert raised.value.is_gone


@in_loop
async def test_the_end_of_a_transaction_and_what_was_aborted_are_no_messages() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        marker = build_end_marker(
            ControlType.ABORT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=5
        )
        answer(broker, bytes(marker))
        with pytest.raises(MissingMessageError, match="the end of a transaction"):
            await find_batch(cluster, MessageId("orders", 0, 5))
        written = build([NewRecord(b"a")], base_offset=4, producer_id=1, producer_epoch=0, transactional=True)
        answer(broker, bytes(written), (AbortedTransaction(producer_id=1, first_offset=3),))
        assert (await find_batch(cluster, MessageId("orders", 0, 4))).header.base_offset == 4
        with pytest.raises(MissingMessageError, match="with its transaction") as raised:
            await find_batch(cluster, MessageId("orders", 0, 4), read_committed=True)
        assert raised.value.is_gone
        answer(broker, b"")
        with pytest.raises(MissingMessageError, match="still open") as raised:
            await find_batch(cluster, MessageId("orders", 0, 4), read_committed=True)
        assert not raised.value.is_gone


@in_loop
async def test_a_damaged_batch_is_told() -> None:
    async with peer(orders=[0]) as broker, Consumer(bootstrap_servers=str(broker.address)) as consumer:
        damaged = build([NewRecord(b"a")])
        damaged[-2] ^= 1
        answer(broker, bytes(damaged))
        with pytest.raises(CorruptBatchError, match="cannot be read"):
            await consumer.get("orders-0@0")
