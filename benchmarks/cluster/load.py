"""Writes to all partitions at a steady rate and reads them, in a process of its own: idempotently, with acks=all, by
librdkafka. It says how long acknowledgements took, and which messages were never read."""

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from confluent_kafka import Consumer, Producer, TopicPartition

# Each has a partition in a request, and five requests under way to a broker.
PRODUCERS: Final = 16
_TICK_SECONDS: Final = 0.01
_SEED: Final = 1
_DRAIN_SECONDS: Final = 120.0
# librdkafka names all partitions in each of its fetches: there are two a second and broker, whatever is written.
_FETCH: Final = {"fetch.min.bytes": 10_000_000, "fetch.wait.max.ms": 500, "queued.min.messages": 1000}


@dataclass(slots=True)
class Told:
    """What the load has seen so far. `longest_seconds` is that of one acknowledgement since `mark`, and
    `oldest` the number of the first message that has none."""

    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    read: int = 0
    waiting: int = 0
    longest_seconds: float = 0.0
    oldest: int = 0
    missing: int = 0
    first_failure: str = ""


class Load:
    """Runs in its block. `ask` and `finish` return what it has seen."""

    def __init__(self, bootstrap: str, topics: Sequence[str], *, partitions: int, rate: int) -> None:
        command = [sys.executable, "-m", "benchmarks.cluster.load", bootstrap, str(partitions), str(rate), *topics]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def ask(self) -> Told:
        return self._ask("ask")

    def mark(self) -> None:
        """The longest acknowledgement is looked for from now on."""
        self._ask("mark")

    def set_rate(self, rate: int) -> None:
        """Send so many messages a second from now on."""
        self._ask(f"rate {rate}")

    def finish(self) -> Told:
        """Returns when all is acknowledged and read, or not even after a long time."""
        return self._ask("finish")

    def _ask(self, question: str) -> Told:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{question}\n")
        self._process.stdin.flush()
        return Told(**json.loads(self._process.stdout.readline()))


class _Running:
    def __init__(self, bootstrap: str, topics: Sequence[str], partitions: int, rate: int) -> None:
        self._places = [(topic, number) for topic in topics for number in range(partitions)]
        # Neighbours in time are on different brokers, and every partition has its turn.
        random.Random(_SEED).shuffle(self._places)
        self._rate = rate
        common: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
        settings = {**common, "acks": "all", "enable.idempotence": True, "linger.ms": 5}
        self._producers = [Producer(settings) for _ in range(PRODUCERS)]
        self._consumer = Consumer({**common, **_FETCH, "group.id": "bench", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, number, 0) for topic, number in self._places])
        self._told = Told()
        self._sent_at: dict[int, float] = {}
        self._unread: set[int] = set()
        self._read: set[int] = set()
        self._stopping = threading.Event()
        self._reader = threading.Thread(target=self._read_on)
        self._reader.start()

    def run(self, questions: "_Questions") -> None:
        due = time.monotonic()
        while True:
            question = questions.next()
            if question is not None:
                what, *number = question.split()
                if what == "finish":
                    break
                self._tell()
                if what == "mark":
                    self._told.longest_seconds = 0.0
                elif what == "rate":
                    self._rate, due = int(number[0]), time.monotonic()
            now = time.monotonic()
            while due <= now:
                self._send()
                due += 1 / self._rate
            for producer in self._producers:
                producer.poll(0)
            time.sleep(_TICK_SECONDS)
        self._finish()

    def _send(self) -> None:
        number = self._told.sent
        topic, partition = self._places[number % len(self._places)]
        self._sent_at[number] = time.monotonic()
        self._told.sent += 1

        def delivered(error: object, _: object) -> None:
            self._delivered(number, error)

        producer = self._producers[number % len(self._places) % PRODUCERS]
        producer.produce(topic, b"load-%d" % number, partition=partition, on_delivery=delivered)

    def _delivered(self, number: int, error: object) -> None:
        told = self._told
        took = time.monotonic() - self._sent_at.pop(number)
        if error is not None:
            told.failed += 1
            told.first_failure = told.first_failure or str(error)
            return
        told.acknowledged += 1
        told.longest_seconds = max(told.longest_seconds, took)
        self._unread.add(number)

    def _read_on(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(1000, 0.1):
                value = message.value()
                if message.error() is None and value is not None and value.startswith(b"load-"):
                    self._read.add(int(value.removeprefix(b"load-")))

    def _tell(self) -> None:
        told = self._told
        told.read = len(self._read)
        told.waiting = len(self._sent_at)
        told.oldest = min(self._sent_at, default=told.sent)
        told.missing = len(self._unread - self._read)
        print(json.dumps(asdict(told)), flush=True)

    def _finish(self) -> None:
        deadline = time.monotonic() + _DRAIN_SECONDS
        for producer in self._producers:
            while producer.flush(1) and time.monotonic() < deadline:
                pass
        while self._unread - self._read and time.monotonic() < deadline:
            time.sleep(_TICK_SECONDS)
        self._stopping.set()
        self._reader.join()
        self._consumer.close()
        self._tell()


class _Questions:
    """Lines of the input, as they come; its end is the last one."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> str | None:
        return self._lines.pop(0) if self._lines else None

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.append(line.strip())
        self._lines.append("finish")


if __name__ == "__main__":
    bootstrap_, partitions_, rate_, *topics_ = sys.argv[1:]
    _Running(bootstrap_, topics_, int(partitions_), int(rate_)).run(_Questions())
