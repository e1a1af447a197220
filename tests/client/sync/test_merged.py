"""Iteration in the order of timestamps for callers that block, against a real broker."""

from penstock.client.sync import Consumer, Producer
from penstock.testing import Broker
from tests.client.sync.test_consumer import settings


def test_partitions_are_merged_in_the_order_of_time() -> None:
    with Broker() as broker, Producer(broker.bootstrap) as producer:
        producer.create_topic("orders", 2)
        for number in range(100):
            producer.send("orders", b"%d" % number, partition=number % 2, timestamp_ms=1_700_000_000_000 + number)
        producer.flush()
        with Consumer(settings(broker), "orders") as consumer:
            merged = consumer.merged()
            seen = [int(next(merged).value or b"") for _ in range(100)]
            assert seen == list(range(100))
            assert (merged.late, merged.is_late) == (0, False)
        assert list(merged) == []
