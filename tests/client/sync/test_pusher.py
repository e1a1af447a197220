"""Push to functions that block, against a real broker."""

import threading
from collections.abc import Callable

import pytest

from penstock.client.errors import PushError
from penstock.client.message import Message
from penstock.client.sync import Admin, Consumer
from penstock.testing import Broker
from tests.client.sync.test_consumer import PARTITION, fill, settings
from tests.client.threads import client_threads


def test_messages_are_pushed_to_a_function_that_blocks_in_a_thread() -> None:
    with Broker() as broker, Admin(broker.bootstrap) as admin:
        fill(broker, 300)
        before = client_threads()
        with Consumer(settings(broker), "orders") as consumer:
            seen: list[int] = []

            def handle(message: Message[bytes | None, bytes | None]) -> None:
                assert threading.current_thread().name.startswith("penstock-push")
                assert consumer.position(PARTITION) == message.offset
                seen.append(message.offset)
                if message.offset == 299:
                    consumer.end_push()

            consumer.push(handle, credits=50)
            assert seen == list(range(300))
        assert admin.committed("g")[PARTITION].offset == 300
        assert client_threads() == before


def test_lists_are_pushed_and_acknowledged_by_hand() -> None:
    with Broker() as broker, Admin(broker.bootstrap) as admin:
        fill(broker, 300)
        with Consumer(settings(broker), "orders") as consumer:
            count = 0

            def handle(messages: list[Message[bytes, bytes]], acknowledge: Callable[[], None]) -> None:
                nonlocal count
                count += len(messages)
                acknowledge()
                if count == 300:
                    consumer.end_push()

            consumer.push(handle, lists=True, ack="call", credits=100)
        assert admin.committed("g")[PARTITION].offset == 300


def test_a_pushed_function_that_fails_ends_the_push_or_is_dealt_with() -> None:
    with Broker() as broker:
        fill(broker, 10)
        failed: list[int] = []
        with Consumer(settings(broker), "orders") as consumer:

            def handle(message: Message[bytes, bytes]) -> None:
                if message.offset in (4, 7):
                    raise ZeroDivisionError
                if message.offset == 9:
                    consumer.end_push()

            with pytest.raises(PushError, match="orders-0@4"):
                consumer.push(handle)
            consumer.push(handle, on_error=lambda message, error: failed.append(message.offset))
            assert failed == [4, 7]


def test_a_callback_cannot_close_the_consumer_but_end_the_push() -> None:
    with Broker() as broker:
        fill(broker, 1)
        with Consumer(settings(broker), "orders") as consumer:

            def handle(message: Message[bytes, bytes]) -> None:
                with pytest.raises(RuntimeError, match="call end_push"):
                    consumer.close()
                consumer.end_push()

            consumer.push(handle)
