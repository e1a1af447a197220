"""Producers that block, against a real broker."""

import threading

import pytest

from penstock.client.errors import ClientError, UnsendableError
from penstock.client.serializers import JSON, STRING, SerializationError
from penstock.client.settings import SettingsError
from penstock.client.sync import Consumer, Producer
from penstock.testing import Broker
from tests.client.threads import client_threads


def read_all(broker: Broker, topic: str, count: int) -> list[bytes | None]:
    with Consumer(topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        values: list[bytes | None] = []
        while len(values) < count:
            values += [message.value for message in consumer.poll()]
    return values


def test_messages_of_one_thread_arrive_in_order_and_tell_where_they_are() -> None:
    with Broker() as broker, Producer(broker.bootstrap) as producer:
        producer.create_topic("orders")
        sendings = [producer.send("orders", b"%d" % number) for number in range(5000)]
        assert [sending.result().offset for sending in sendings[::1000]] == [0, 1000, 2000, 3000, 4000]
        producer.flush()
        assert all(sending.done() for sending in sendings)
        assert read_all(broker, "orders", 5000) == [b"%d" % number for number in range(5000)]


def test_many_threads_may_send() -> None:
    with Broker() as broker, Producer(broker.bootstrap) as producer:
        producer.create_topic("orders")

        def send(name: int) -> None:
            for number in range(500):
                producer.send("orders", b"%d-%d" % (name, number))

        threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
        values = read_all(broker, "orders", 2000)
        for name in range(4):
            own = [value for value in values if value is not None and value.startswith(b"%d-" % name)]
            assert own == [b"%d-%d" % (name, number) for number in range(500)]


def test_who_sends_more_than_the_memory_holds_waits_and_loses_nothing() -> None:
    with Broker() as broker, Producer(broker.bootstrap, buffer_memory=100_000, batch_size=4096) as producer:
        producer.create_topic("orders")
        sendings = [producer.send("orders", bytes(1000)) for _ in range(3000)]
        producer.flush()
        assert [sending.result().offset for sending in sendings] == list(range(3000))


def test_what_cannot_be_sent_is_told_by_its_result_and_takes_nothing_with_it() -> None:
    with Broker() as broker, Producer(broker.bootstrap, value_serializer=JSON, key_serializer=STRING) as producer:
        producer.create_topic("orders")
        unwritable = producer.send("orders", object())
        large = producer.send("orders", "x" * 2_000_000)
        fine = producer.send("orders", {"paid": True}, key="k")
        with pytest.raises(SerializationError):
            unwritable.result()
        with pytest.raises(UnsendableError, match=r"max\.request\.size"):
            large.result()
        assert fine.result().offset == 0


def test_a_batch_is_sent_behind_what_was_sent_before_it() -> None:
    with Broker() as broker, Producer(broker.bootstrap) as producer:
        producer.create_topic("orders")
        producer.send("orders", b"first")
        result = producer.send_batch("orders", [b"second", (b"key", b"third")])
        result.raise_for_errors()
        assert read_all(broker, "orders", 3) == [b"first", b"second", b"third"]
        assert producer.partitions_for("orders") == [0]


def test_after_close_everything_is_sent_and_no_thread_is_left() -> None:
    with Broker() as broker:
        before = client_threads()
        producer = Producer(broker.bootstrap, linger_ms=60_000)
        producer.create_topic("orders")
        sending = producer.send("orders", b"paid")
        producer.close()
        producer.close()
        assert sending.result().offset == 0
        assert client_threads() == before
        with pytest.raises(ClientError, match="closed"):
            producer.send("orders", b"more")


def test_a_producer_that_cannot_be_made_leaves_no_thread() -> None:
    before = client_threads()
    with pytest.raises(SettingsError):
        Producer("localhost:9092", acks="maybe")  # type: ignore[arg-type]
    assert client_threads() == before
