"""Speaks the bare protocol: one request to one broker, never sent again, and the error code of its answer."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from penstock.client.cluster.connection import Connection
from penstock.client.errors import ConnectionLostError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import NewRecord, build
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.protocol.schemas.transactions import InitProducerIdRequest, InitProducerIdResponse
from tools.error_table.cells import SENT, Target
from tools.error_table.senders import SECONDS, VALUE, read_mode

CLOSED = "connection closed"
ACKS = {"0": 0, "1": 1, "all": -1}


@dataclass(frozen=True, slots=True)
class View:
    """What a broker says of the cluster."""

    addresses: Mapping[int, tuple[str, int]]
    topic_ids: Mapping[str, bytes]
    leaders: Mapping[Target, int]
    in_sync: Mapping[Target, frozenset[int]]


@asynccontextmanager
async def connected(host: str, port: int) -> AsyncIterator[Connection]:
    connection = await Connection.open(host, port, request_timeout_ms=2 * SECONDS * 1000)
    try:
        yield connection
    finally:
        await connection.close()


async def look(bootstrap: str, topics: Sequence[str]) -> View:
    host, _, port = bootstrap.rpartition(":")
    async with connected(host, int(port)) as connection:
        asked = [MetadataRequestTopic(name=topic) for topic in topics]
        told = await connection.request(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
    partitions = [
        (Target(topic.name, partition.partition_index), partition)
        for topic in told.topics
        for partition in topic.partitions
    ]
    return View(
        addresses={broker.node_id: (broker.host, broker.port) for broker in told.brokers},
        topic_ids={topic.name: topic.topic_id for topic in told.topics},
        leaders={target: partition.leader_id for target, partition in partitions},
        in_sync={target: frozenset(partition.isr_nodes) for target, partition in partitions},
    )


async def send(bootstrap: str, mode: str, targets: Sequence[Target]) -> list[str]:
    """A sender, as it is called in senders.py: the request goes to the leader."""
    view = await look(bootstrap, [target.topic for target in targets])
    outcomes = []
    for target in targets:
        async with connected(*view.addresses[view.leaders[target]]) as connection:
            outcomes.append(await produce(connection, view, target, mode))
    return outcomes


async def produce(connection: Connection, view: View, target: Target, mode: str) -> str:
    acks, idempotent = read_mode(mode)
    producer = None
    if idempotent:
        producer = await connection.request(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
    return await produce_batch(connection, view, target, ACKS[acks], new_batch(producer))


def new_batch(producer: InitProducerIdResponse | None = None) -> bytes:
    """One record: the first of a producer, if there is one."""
    if producer is None:
        return bytes(build([NewRecord(VALUE)]))
    number, epoch = producer.producer_id, producer.producer_epoch
    return bytes(build([NewRecord(VALUE)], producer_id=number, producer_epoch=epoch, base_sequence=0))


async def produce_batch(
    connection: Connection,
    view: View,
    target: Target,
    acks: int,
    batch: bytes,
    *,
    timeout_ms: int = SECONDS * 1000,
) -> str:
    data = PartitionProduceData(index=target.partition, records=batch)
    to = TopicProduceData(name=target.topic, topic_id=view.topic_ids[target.topic], partition_data=[data])
    answer = await connection.request(ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[to]))
    if answer is not None:
        [told] = answer.responses[0].partition_responses
        return ErrorCode(told.error_code).name if told.error_code else f"offset {told.base_offset}"
    # There is no answer to acks=0, but there is one to the next request, unless the broker has hung up.
    try:
        await connection.request(MetadataRequest(topics=[]))
    except ConnectionLostError:
        return CLOSED
    return SENT
