"""Writes records to a partition as exactly one batch, which tests need that look at batches; producers gather."""

import time
from collections.abc import Iterable

from penstock.client.cluster.cluster import Cluster, Target, Terms
from penstock.client.errors import broker_error
from penstock.client.metadata import TopicPartition
from penstock.protocol.compression import Codec
from penstock.protocol.records import NewRecord, build
from penstock.protocol.schemas.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData


async def produce(
    cluster: Cluster, topic: str, partition: int, records: Iterable[NewRecord], *, codec: Codec = Codec.NONE
) -> int:
    """The offset of the first record. A record without a timestamp gets the present one."""
    now_ms = time.time_ns() // 1_000_000
    stamped = [record if record.timestamp >= 0 else record._replace(timestamp=now_ms) for record in records]
    batch = build(stamped, codec=codec)
    key = TopicPartition(topic, partition)

    def request(target: Target) -> ProduceRequest:
        data = PartitionProduceData(index=target.partition, records=batch)
        to = TopicProduceData(name=target.topic, topic_id=target.topic_id, partition_data=[data])
        return ProduceRequest(acks=-1, timeout_ms=cluster.request_timeout_ms, topic_data=[to])

    def read(response: ProduceResponse, _: Target) -> int:
        (answer,) = [each for topic in response.responses for each in topic.partition_responses]
        if answer.error_code:
            raise broker_error(answer.error_code, str(key), answer.error_message)
        return answer.base_offset

    return await cluster.request_to_leader(key, request, read, terms=Terms(repeatable=False))
