"""What brokers say about a cluster, as the client keeps it."""

import pytest

from penstock.client.errors import UnknownPartitionError
from penstock.client.metadata import Broker, Partition, TopicPartition, named, near_names, read_broker, read_topic
from penstock.protocol.schemas.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def test_a_partition_is_written_as_kafka_names_its_folder() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"


def test_a_broker_has_an_address() -> None:
    broker = read_broker(MetadataResponseBroker(node_id=4, host="h", port=9, rack="r"))
    assert broker == Broker(4, "h", 9, "r")
    assert str(broker.address) == "h:9"


def test_partitions_stand_in_the_order_of_their_numbers() -> None:
    told = MetadataResponseTopic(
        name="orders",
        topic_id=b"i" * 16,
        partitions=[
            MetadataResponsePartition(partition_index=1, leader_id=-1, replica_nodes=[2], offline_replicas=[2]),
            MetadataResponsePartition(
                partition_index=0, leader_id=1, leader_epoch=7, replica_nodes=[1, 2], isr_nodes=[1]
            ),
        ],
    )
    topic = read_topic(told)
    assert topic.topic_id == b"i" * 16
    assert topic.partition(0) == Partition(0, 1, 7, (1, 2), (1,))
    assert topic.partition(1) == Partition(1, -1, -1, (2,), (), (2,))


@pytest.mark.parametrize("number", [-1, 1])
def test_a_topic_has_no_partition_beyond_its_own(number: int) -> None:
    topic = read_topic(MetadataResponseTopic(name="orders", partitions=[MetadataResponsePartition()]))
    with pytest.raises(UnknownPartitionError):
        topic.partition(number)


@pytest.mark.parametrize(
    ("written", "meant"),
    [("ordes", ["orders"]), ("Orders", ["orders"]), ("oders", ["orders"]), ("payment", ["payments"]), ("xyz", [])],
)
def test_near_names_are_those_that_somebody_may_have_meant(written: str, meant: list[str]) -> None:
    assert near_names(written, ["orders", "payments", "clicks", "audit-log"]) == meant


def test_near_names_are_few_and_the_likeliest_comes_first() -> None:
    assert near_names("log-a", ["log-b", "log-aa", "log-c"], most=3) == ["log-aa", "log-c", "log-b"]
    assert len(near_names("logs", [f"logs{number}" for number in range(20)], most=3)) == 3


def test_partitions_are_named_in_order_and_not_too_many_of_them() -> None:
    keys = [TopicPartition("orders", number) for number in (2, 0, 1)]
    assert named(keys) == "orders-0, orders-1, orders-2"
    assert named(TopicPartition("t", number) for number in range(7)) == "t-0, t-1, t-2, t-3, t-4 and 2 more"
    assert named([]) == "nothing"
