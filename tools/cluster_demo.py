"""Shows several brokers in `make demo`: each partition is on three of them, a leader is killed while messages are sent,
and none that was acknowledged is missing."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from rich.console import Console
from rich.table import Table

BROKERS: Final = 3
TOPIC: Final = "flows"
PARTITIONS: Final = 6
KILLED: Final = 1
RATE: Final = 1_000
# Messages that are acknowledged before the kill, and after the broker is back.
MARGIN: Final = 500
LOOK_SECONDS: Final = 0.02
PATIENCE_SECONDS: Final = 60
ASK_SECONDS: Final = 5
# A broker that is killed is part of the show.
QUIET: Final = {"log_level": 0}
STYLES: Final = {"leads": "bold green", "in sync": "green", "behind": "yellow", "away": "red"}


class ClusterDemo:
    def __init__(self, folder: str, console: Console) -> None:
        self._data = Path(folder) / "brokers"
        self._console = console

    def run(self) -> None:
        self._step("Grow", f"penstock serve --processes {BROKERS}: a cluster by one command.")
        with serving(self._data) as bootstrap:
            self._console.print(f"{BROKERS} brokers listen on {bootstrap}.")
            admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
            for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS)]).values():
                made.result(PATIENCE_SECONDS)
            self._console.print(f"Topic {TOPIC} has {PARTITIONS} partitions, and each of them a copy on every broker:")
            self._show(until(admin, lambda roles: not roles.lacks("in sync", "leads"), "all copies in sync"))
            with sending(bootstrap) as sender:
                self._kill(admin, sender)
            self._count(bootstrap, sender)

    def _kill(self, admin: AdminClient, sender: "Sender") -> None:
        sender.wait_for(MARGIN)
        self._step("Kill", f"Broker {KILLED} gets SIGKILL; {RATE:,} messages a second are sent, acks=all.")
        began = time.monotonic()
        kill(self._data)
        during = until(admin, lambda roles: roles.led_by_others(), f"partitions of broker {KILLED} led by others")
        taken_ms = (time.monotonic() - began) * 1000
        self._console.print(f"After {taken_ms:.0f} ms the others lead what it led, and sending goes on:")
        self._show(during)
        self._step("Return", "The broker is started again, and fetches what it has missed.")
        after = until(admin, lambda roles: not roles.lacks("in sync", "leads"), "all copies in sync again")
        self._console.print(f"{time.monotonic() - began:.1f} s after the kill it is in sync:")
        self._show(after)
        sender.wait_for(sender.sent + MARGIN)

    def _count(self, bootstrap: str, sender: "Sender") -> None:
        assert not sender.failures, sender.failures[:3]
        acknowledged, found = sender.acknowledged, read(bootstrap, len(sender.acknowledged))
        self._console.print(
            f"\n{sender.sent:,} messages were sent and {len(acknowledged):,} acknowledged, half of them within "
            f"{median(acknowledged.values()) * 1000:.0f} ms, "
            f"the slowest after {max(acknowledged.values()) * 1000:.0f} ms."
        )
        missing = acknowledged.keys() - found.keys()
        doubled = [number for number, times in found.items() if times > 1]
        assert not missing, f"{len(missing)} acknowledged messages are missing, such as {min(missing)}"
        assert not doubled, f"{len(doubled)} messages are there twice, such as {min(doubled)}"
        self._console.print(f"All {len(found):,} messages are there, each of them once. Not one is missing.")

    def _show(self, roles: "Roles") -> None:
        table = Table(box=None, pad_edge=False)
        table.add_column("broker", justify="right")
        for index in range(PARTITIONS):
            table.add_column(f"{TOPIC}-{index}")
        for broker in range(BROKERS):
            cells = [roles.of(broker, index) for index in range(PARTITIONS)]
            table.add_row(str(broker), *(f"[{STYLES[cell]}]{cell}[/]" for cell in cells))
        self._console.print(table)

    def _step(self, name: str, what: str) -> None:
        self._console.print(f"\n[bold]{name}[/bold]  {what}")


@dataclass(frozen=True, slots=True)
class Roles:
    """What each broker is to each partition, by the metadata of one moment."""

    alive: frozenset[int]
    leaders: tuple[int, ...]
    isrs: tuple[tuple[int, ...], ...]

    def of(self, broker: int, index: int) -> str:
        if broker not in self.alive:
            return "away"
        if self.leaders[index] == broker:
            return "leads"
        return "in sync" if broker in self.isrs[index] else "behind"

    def lacks(self, *expected: str) -> bool:
        """Whether any broker is something else to any partition."""
        return any(self.of(broker, index) not in expected for broker in range(BROKERS) for index in range(PARTITIONS))

    def led_by_others(self) -> bool:
        return all(leader in self.alive and leader != KILLED for leader in self.leaders)


def look(admin: AdminClient) -> Roles | None:
    """None if there is no answer in time: librdkafka may have asked the broker that was just killed."""
    try:
        metadata = admin.list_topics(timeout=ASK_SECONDS)
    except KafkaException:
        return None
    partitions = metadata.topics[TOPIC].partitions
    return Roles(
        frozenset(metadata.brokers),
        tuple(partitions[index].leader for index in range(PARTITIONS)),
        tuple(tuple(partitions[index].isrs) for index in range(PARTITIONS)),
    )


def until(admin: AdminClient, holds: Callable[[Roles], bool], what: str) -> Roles:
    """Look until it holds, and return what was seen then."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (seen := look(admin)) is None or not holds(seen):
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_SECONDS} s; {seen}"
        time.sleep(LOOK_SECONDS)
    return seen


class Sender:
    """Sends numbered messages at a steady rate, from a thread of its own, and notes which are acknowledged, and after
    how many seconds."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        self.acknowledged: dict[int, float] = {}
        self.failures: list[str] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **QUIET})
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="sender")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when every message has been acknowledged, or has failed."""
        self._stopped.set()
        self._thread.join()

    def wait_for(self, count: int) -> None:
        """Wait until this many messages are acknowledged."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self.acknowledged) < count:
            is_sending = self._thread.is_alive() and time.monotonic() < deadline
            assert is_sending, f"{len(self.acknowledged)} of {count} messages were acknowledged"
            time.sleep(LOOK_SECONDS)

    def _run(self) -> None:
        # The first ones wait for connections, which is not what is to be seen.
        self._producer.list_topics(TOPIC, timeout=PATIENCE_SECONDS)
        for number in range(PARTITIONS):
            self._send(number)
        self._producer.flush(PATIENCE_SECONDS)
        began = time.monotonic()
        while not self._stopped.is_set():
            while self.sent < (time.monotonic() - began) * RATE:
                self._send(self.sent)
            self._producer.poll(0.005)
        assert self._producer.flush(PATIENCE_SECONDS) == 0, "messages are neither acknowledged nor failed"

    def _send(self, number: int) -> None:
        sent_at = time.monotonic()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(str(error))
            else:
                self.acknowledged[number] = time.monotonic() - sent_at

        self._producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=delivered)
        self.sent += 1


@contextmanager
def sending(bootstrap: str) -> Iterator[Sender]:
    sender = Sender(bootstrap)
    sender.start()
    try:
        yield sender
    finally:
        sender.stop()


@contextmanager
def serving(data: Path) -> Iterator[str]:
    """Brokers from here to the end of the block; gives their addresses."""
    command = [sys.executable, "-P", "-m", "penstock", "serve", "--processes", str(BROKERS), "--data-dir", str(data)]
    command += ["--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "the brokers did not start"
            yield process.stdout.readline().partition(" to ")[2].partition(";")[0]
        finally:
            process.terminate()
            assert process.wait(PATIENCE_SECONDS) == 0, "the brokers did not stop in order"


def kill(data: Path) -> None:
    processes = json.loads((data / "processes").read_text())
    (pid,) = [each["pid"] for each in processes if each["node_id"] == KILLED]
    os.kill(pid, signal.SIGKILL)


def read(bootstrap: str, count: int) -> Counter[int]:
    """How often each number is in the topic, which has `count` messages at least."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False, **QUIET})
    try:
        places = [TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)]
        ends = sum(consumer.get_watermark_offsets(place, timeout=PATIENCE_SECONDS)[1] for place in places)
        assert ends >= count, f"the partitions have {ends} messages, of {count} that were acknowledged"
        consumer.assign(places)
        found: Counter[int] = Counter()
        while found.total() < ends:
            messages = consumer.consume(min(1_000, ends - found.total()), timeout=PATIENCE_SECONDS)
            assert messages, f"{found.total()} of {ends} messages came, and no more"
            found.update(int(message.value() or b"") for message in messages if message.error() is None)
        return found
    finally:
        consumer.close()


def main() -> int:
    with TemporaryDirectory(prefix="penstock-demo-") as folder:
        ClusterDemo(folder, Console(highlight=False)).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
