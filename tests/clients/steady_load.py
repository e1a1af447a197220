"""A producer that goes on at its own pace, whatever happens to the broker, and knows what was acknowledged."""

import itertools
import threading
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tools.clients.client import SECONDS
from tools.clients.members import Place

PACE_SECONDS: Final = 0.03


class SteadyLoad:
    """Turn by turn a message to each partition, until it is drained. `partitions` may grow meanwhile."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.partitions = partitions
        self.acknowledged: list[Place] = []
        self._topic = topic
        self._refused: list[KafkaError] = []
        self._is_over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "topic.metadata.refresh.interval.ms": 1000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                # That its broker goes away is what this is about.
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name=f"load of {topic}", daemon=True)
        self._thread.start()

    def drain(self) -> None:
        """Send no more, and wait until everything is acknowledged."""
        self._is_over.set()
        self._thread.join(SECONDS)
        assert self._producer.flush(SECONDS) == 0, "not everything was acknowledged"
        assert not self._refused, self._refused[:3]

    def give_up(self) -> None:
        self._is_over.set()
        self._thread.join(SECONDS)
        self._producer.purge()
        self._producer.flush(1)

    def _run(self) -> None:
        for number in itertools.count():
            for partition in range(self.partitions):
                self._send(partition, b"%d" % number)
            self._producer.poll(0)
            if self._is_over.wait(PACE_SECONDS):
                return

    def _send(self, partition: int, value: bytes) -> None:
        try:
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
        except KafkaException as error:
            # A new partition is not known at once.
            if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                raise

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(error)
        else:
            value = (message.value() or b"").decode()
            self.acknowledged.append(Place(message.partition() or 0, message.offset() or 0, value))
