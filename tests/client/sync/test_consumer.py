"""Consumers that block, against a real broker."""

import asyncio
import threading

import pytest

from penstock.client.consumer.deduplication import Deduplicator
from penstock.client.errors import CorruptBatchError, MissingMessageError
from penstock.client.metadata import TopicPartition
from penstock.client.serializers import STRING
from penstock.client.sync import Admin, Consumer, Producer
from penstock.testing import Broker
from tests.broker.harness import Client
from tests.client.threads import client_threads
from tests.hostile import poison

PARTITION = TopicPartition("orders", 0)


def fill(broker: Broker, count: int) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.create_topic("orders")
        producer.send_batch("orders", [b"%d" % number for number in range(count)]).raise_for_errors()


def settings(broker: Broker) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}


def test_messages_are_polled_and_iterated_in_order() -> None:
    with Broker() as broker:
        fill(broker, 1200)
        with Consumer(settings(broker), "orders", value_deserializer=STRING) as consumer:
            seen = [message.value for message in consumer.poll(100, timeout_ms=None)]
            for message in consumer:
                seen.append(message.value)
                if len(seen) == 1200:
                    break
        assert seen == [str(number) for number in range(1200)]


def test_what_iteration_has_not_returned_is_neither_committed_nor_lost() -> None:
    with Broker() as broker, Admin(broker.bootstrap) as admin:
        fill(broker, 50)
        with Consumer(settings(broker), "orders") as consumer:
            for message in consumer:
                if message.offset == 9:
                    break
            consumer.commit()
            assert admin.committed("g")[PARTITION].offset == 10
            assert consumer.position(PARTITION) == 10
            assert [message.offset for message in consumer.poll(5, timeout_ms=None)] == [10, 11, 12, 13, 14]
            next(consumer)
        assert admin.committed("g")[PARTITION].offset == 16


def test_an_exception_in_the_loop_has_its_message_come_again() -> None:
    with Broker() as broker:
        fill(broker, 20)

        def work() -> None:
            with Consumer(settings(broker), "orders") as consumer:
                for message in consumer:
                    if message.offset == 5:
                        raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            work()
        with Consumer(settings(broker), "orders") as consumer:
            assert next(consumer).offset == 5


def test_positions_are_moved_paused_and_told() -> None:
    with Broker() as broker:
        fill(broker, 20)
        with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
            consumer.assign([PARTITION])
            assert consumer.assignment == {PARTITION}
            consumer.seek(PARTITION, 7)
            assert next(consumer).offset == 7
            consumer.seek_to_beginning()
            assert next(consumer).offset == 0
            consumer.pause(PARTITION)
            assert consumer.paused == {PARTITION}
            assert consumer.poll(timeout_ms=0) == []
            consumer.resume(PARTITION)
            assert next(consumer).offset == 1
            assert consumer.lag() == {PARTITION: 18}
            assert consumer.beginning_offsets() == {PARTITION: 0}
            assert consumer.end_offsets() == {PARTITION: 20}
            consumer.seek_to_end()
            assert consumer.position(PARTITION) == 20
            consumer.seek_to_time(0)
            assert consumer.position(PARTITION) == 0
            assert consumer.offsets_for_times({PARTITION: 0}) == {PARTITION: 0}


def test_commits_without_waiting_are_told_to_a_callback_and_listeners_hear_of_partitions() -> None:
    with Broker() as broker:
        fill(broker, 20)
        assigned: list[frozenset[TopicPartition]] = []
        committed = threading.Event()
        with Consumer(settings(broker), enable_auto_commit=False) as consumer:
            consumer.subscribe(["orders"], on_assigned=assigned.append)
            assert len(consumer.poll(timeout_ms=None)) == 20
            consumer.commit_soon(callback=lambda offsets, error: committed.set())
            assert committed.wait(10)
            assert consumer.committed() == {PARTITION: 20}
            consumer.unsubscribe()
            assert consumer.assignment == set()
        assert assigned == [frozenset({PARTITION})]


def test_after_close_no_thread_is_left_and_iteration_ends() -> None:
    with Broker() as broker:
        fill(broker, 1)
        before = client_threads()
        consumer = Consumer(settings(broker), "orders")
        next(consumer)
        consumer.close()
        consumer.close()
        assert list(consumer) == []
        assert client_threads() == before


def test_whole_columns_come_as_arrow_and_count_as_other_polls_do() -> None:
    with Broker() as broker:
        fill(broker, 50)
        with Consumer(settings(broker), "orders") as consumer:
            assert next(consumer).offset == 0
            rows = consumer.poll_arrow(20, timeout_ms=None)
            assert rows.column("offset").to_pylist() == list(range(1, 21))
            assert next(consumer).offset == 21
            assert consumer.poll_arrow(timeout_ms=None).num_rows == 28
            assert consumer.poll_arrow(timeout_ms=0).num_rows == 0


def test_one_message_is_got_by_its_id() -> None:
    with Broker() as broker:
        fill(broker, 10)
        with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
            message = consumer.get("orders-0@7")
            assert message is not None
            assert message.value == b"7"
            with pytest.raises(MissingMessageError):
                consumer.get("orders-0@10")


def test_duplicates_are_dropped() -> None:
    with Broker() as broker, Producer(broker.bootstrap) as producer:
        producer.create_topic("orders")
        for name in (b"a", b"b", b"a", b"c"):
            producer.send("orders", name, headers=[("message-id", name)])
        producer.flush()
        dedup = Deduplicator(header="message-id")
        with Consumer(settings(broker), "orders", dedup=dedup) as consumer:
            assert [next(consumer).value for _ in range(3)] == [b"a", b"b", b"c"]
        assert dedup.dropped == 1


def test_a_batch_that_cannot_be_read_is_an_error_or_is_passed_over() -> None:
    async def store(address: str, *batches: bytes) -> None:
        host, _, port = address.rpartition(":")
        client = await Client.open((host, int(port)))
        for each in batches:
            assert (await client.produce("orders", each)).error_code == 0
        client.close()

    with Broker() as broker:
        broker.create_topic("orders", 1, {"penstock.validate": "header"})
        asyncio.run(store(broker.bootstrap, poison.good(), poison.count_too_low(), poison.good()))
        with Consumer(settings(broker), "orders") as consumer:
            seen = [next(consumer).offset for _ in range(3)]
            with pytest.raises(CorruptBatchError) as caught:
                next(consumer)
            assert (seen, caught.value.next_offset) == ([0, 1, 2], 5)
            consumer.seek(PARTITION, 5)
            assert [next(consumer).offset for _ in range(3)] == [5, 6, 7]
        with Consumer(settings(broker) | {"group.id": "h", "on.corrupt": "skip"}, "orders") as consumer:
            assert [next(consumer).offset for _ in range(6)] == [0, 1, 2, 5, 6, 7]
            assert consumer.skipped_batches == 1
