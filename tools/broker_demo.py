"""Runs the first half of `make demo`: a broker is started, used by a real Kafka client, stopped, and started again."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from rich.console import Console
from rich.table import Table

from tools.group_demo import show_group

TOPIC = "readings"
PARTITIONS = 3
MESSAGES = 6_000
MESSAGES_PER_SECOND = 2_000
SEGMENT_BYTES = 1024 * 1024
CHART_COLUMNS = 40


class BrokerDemo:
    def __init__(self, folder: str, console: Console) -> None:
        self._data = Path(folder) / "broker"
        self._console = console

    def run(self) -> None:
        self._step("Serve", "penstock serve, in a process of its own.")
        with serving(self._data) as address:
            self._console.print(f"A broker listens on {address}.")
            self._send(address)
            before = self._consume(address)
            self._step("Share", "Two consumers of one group, a consumer for each partition at any time.")
            show_group(address, TOPIC, PARTITIONS, MESSAGES, self._console)
            self._show_files()
        self._step("Restart", "The broker was stopped with SIGTERM. It starts again on the same folder.")
        with serving(self._data) as address:
            after = Counter(message.partition() or 0 for message in consumed(address))
        assert after == before, f"{after} is not {before}"
        self._console.print(f"All {after.total():,} messages are there.")

    def _send(self, address: str) -> None:
        what = f"confluent-kafka sends {MESSAGES_PER_SECOND:,} messages a second, acks=all: each is on disk."
        self._step("Send", what)
        admin = AdminClient({"bootstrap.servers": address})
        # With the broker's time beside the producer's, the last step can show how long each message took.
        config = {"segment.bytes": str(SEGMENT_BYTES), "message.timestamp.type": "LogAppendTime"}
        topic = NewTopic(TOPIC, PARTITIONS, 1, config=config)
        for made in admin.create_topics([topic]).values():
            made.result()
        producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 1})
        latencies_ms = sorted(self._send_steadily(producer))
        middle, late = (latencies_ms[int(len(latencies_ms) * share)] for share in (0.5, 0.99))
        self._console.print(
            f"{MESSAGES:,} acknowledged, [bold]half within {middle:.1f} ms[/bold], 99 % within {late:.1f} ms:"
        )
        self._chart(latencies_ms, late)

    def _send_steadily(self, producer: Producer) -> list[float]:
        """Send each message when its time has come; return how long each took, in ms, those that had to wait for their
        turn included."""
        latencies_ms: list[float] = []

        def send(number: int, due: float) -> None:
            def delivered(error: object, _: Message) -> None:
                assert error is None, error
                latencies_ms.append((time.perf_counter() - due) * 1000)

            key, value = b"sensor-%d" % (number % 50), b'{"reading":%d,"celsius":%d}' % (number, 15 + number % 11)
            producer.produce(TOPIC, value + b" " * 600, key=key, on_delivery=delivered)

        # The first message connects, and gets the producer its id; it is not measured.
        send(0, time.perf_counter())
        assert producer.flush(60) == 0
        latencies_ms.clear()
        began = time.perf_counter()
        for number in range(1, MESSAGES):
            due = began + number / MESSAGES_PER_SECOND
            while (early := due - time.perf_counter()) > 0:
                # It reports what was acknowledged meanwhile.
                producer.poll(min(early, 0.001))
            send(number, due)
        assert producer.flush(60) == 0
        return latencies_ms

    def _chart(self, latencies_ms: list[float], longest_ms: float) -> None:
        """How many messages took how long, a column for each slice of time; the slowest hundredth is left out."""
        slices = Counter(
            min(CHART_COLUMNS - 1, int(each / longest_ms * CHART_COLUMNS))
            for each in latencies_ms
            if each <= longest_ms
        )
        highest = max(slices.values())
        levels = " ▁▂▃▄▅▆▇█"
        columns = [levels[-(-slices[column] * 8 // highest)] for column in range(CHART_COLUMNS)]
        self._console.print(f"  0 ms {''.join(columns)} {longest_ms:.1f} ms")

    def _consume(self, address: str) -> "Counter[int]":
        self._step("Consume", "From the beginning of all partitions.")
        messages = consumed(address)
        table = Table(box=None, pad_edge=False)
        for column in ("partition", "offset", "key", "value"):
            table.add_column(column, justify="right" if column in ("partition", "offset") else "left")
        for message in messages[:5]:
            key, value = message.key() or b"", message.value() or b""
            table.add_row(str(message.partition()), str(message.offset()), key.decode(), value.decode().strip())
        self._console.print(table)
        counts = Counter(message.partition() or 0 for message in messages)
        shares = ", ".join(f"{counts[number]:,} in partition {number}" for number in sorted(counts))
        self._console.print(f"{len(messages):,} messages: {shares}.")
        return counts

    def _show_files(self) -> None:
        self._step("Look", "Each partition is a folder of segments.")
        table = Table(box=None, pad_edge=False)
        table.add_column("file")
        table.add_column("bytes", justify="right")
        for path in sorted((self._data / "logs").glob(f"{TOPIC}-*/*.log")):
            table.add_row(f"{path.parent.name}/{path.name}", f"{path.stat().st_size:,}")
        self._console.print(table)

    def _step(self, name: str, what: str) -> None:
        self._console.print(f"\n[bold]{name}[/bold]  {what}")


@contextmanager
def serving(data: Path) -> Iterator[str]:
    """A broker from here to the end of the block; gives its address."""
    program = "from penstock.cli.main import main; main()"
    command = [sys.executable, "-c", program, "serve", "--data-dir", str(data), "--listen", "127.0.0.1:0"]
    # A group of two does not wait long for more members.
    command += ["-X", "group.initial.rebalance.delay.ms=200"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "the broker did not start"
            yield process.stdout.readline().partition(" to ")[2].partition(";")[0]
        finally:
            process.terminate()
            assert process.wait(30) == 0, "the broker did not stop in order"


def consumed(address: str) -> list[Message]:
    """All messages of the topic."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "demo", "enable.auto.commit": False})
    try:
        partitions = [TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
        ends = sum(consumer.get_watermark_offsets(partition, timeout=30)[1] for partition in partitions)
        consumer.assign(partitions)
        messages: list[Message] = []
        while len(messages) < ends:
            found = consumer.consume(10_000, timeout=30)
            assert found, f"{len(messages)} of {ends} messages came, and no more"
            messages += [message for message in found if message.error() is None]
        return messages
    finally:
        consumer.close()
