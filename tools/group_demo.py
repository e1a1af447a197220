"""Shows groups in `make demo`: two consumers share a topic, one leaves, and the other takes over where it was."""

import time
from collections import Counter
from collections.abc import Callable

from confluent_kafka import Consumer, Message, TopicPartition
from rich.console import Console
from rich.table import Table

GROUP = "billing"
PATIENCE_SECONDS = 60


class Member:
    """One consumer of the group: what it was given, and what it has read."""

    def __init__(self, name: str, address: str, topic: str) -> None:
        self.name = name
        self.partitions: list[int] = []
        self.read: Counter[int] = Counter()
        self._has_to_commit = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": GROUP,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                # By its heartbeats a member learns that another has come or gone.
                "heartbeat.interval.ms": 200,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def poll(self, at_most: int) -> None:
        for message in self._consumer.consume(at_most, timeout=0.05):
            self._take(message)

    def leave(self) -> None:
        """Its partitions then go to other members, which begin after what it has read."""
        self._consumer.close()

    def _take(self, message: Message) -> None:
        assert message.error() is None, message.error()
        self.read[message.partition() or 0] += 1
        self._has_to_commit = True

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions = sorted(each.partition for each in partitions)

    def _revoked(self, consumer: Consumer, _: list[TopicPartition]) -> None:
        if self._has_to_commit:
            consumer.commit(asynchronous=False)
            self._has_to_commit = False
        self.partitions = []


def show_group(address: str, topic: str, partitions: int, messages: int, console: Console) -> None:
    ada, grace = Member("ada", address, topic), Member("grace", address, topic)
    members = [ada, grace]
    try:
        _poll_until(members, lambda: ada.partitions and grace.partitions and _owned(members) == partitions, 0)
        _show(members, console)
        _poll_until(members, lambda: _read(members) >= messages // 3, 500)
        console.print(f"Both have read {_read(members):,} of {messages:,} messages. Then ada commits and leaves.")
        ada.leave()
        members.remove(ada)
        _poll_until(members, lambda: _owned(members) == partitions, 0)
        _show(members, console)
        _poll_until(members, lambda: _read([ada, grace]) >= messages, 5000)
    finally:
        for member in members:
            member.leave()
    total = _read([ada, grace])
    assert total == messages, f"{total} messages were read, {messages} were sent"
    shares = ", ".join(f"{member.name} {member.read.total():,}" for member in (ada, grace))
    console.print(f"Every message was read once: {shares}.")


def _poll_until(members: list[Member], condition: Callable[[], object], at_most: int) -> None:
    """With none at a time the members only take part in the group."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the group did not come to an end in time"
        for member in members:
            member.poll(max(at_most, 1))


def _owned(members: list[Member]) -> int:
    return sum(len(member.partitions) for member in members)


def _read(members: list[Member]) -> int:
    return sum(member.read.total() for member in members)


def _show(members: list[Member], console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("member")
    table.add_column("partitions")
    for member in members:
        table.add_row(member.name, ", ".join(map(str, member.partitions)))
    console.print(table)
