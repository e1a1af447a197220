"""Clients of librdkafka: an idempotent producer, a member of a group, and the last reader of a round."""

import time
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from itertools import count
from threading import Event
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tools.chaos.clients.journal import Journal
from tools.chaos.clients.work import (
    COMMIT_SECONDS,
    FLUSH_SECONDS,
    HEARTBEAT_MS,
    MAX_WAITING,
    POLL_SECONDS,
    REQUEST_MS,
    SESSION_MS,
    Pace,
    Work,
)
from tools.chaos.history import Outcome, Place

AT_ONCE: Final = 500
TOLD_NONE: Final = -1
RECONNECT: Final = {"reconnect.backoff.max.ms": 500, "log_level": 0}


def produce(work: Work, journal: Journal, ending: Event) -> None:
    """It sends again what may not have arrived, and brokers sort that out. It gives no message up within a round: if it
    did, librdkafka would begin a new epoch, and send in it what may have been written in the one before.

    What fails may have been written by an earlier try, and librdkafka does not say: no failure is certain."""
    shared = {"bootstrap.servers": work.bootstrap, "client.id": work.client, "enable.idempotence": True, "linger.ms": 2}
    producer = Producer({**shared, "request.timeout.ms": REQUEST_MS, **RECONNECT})
    waiting: dict[Place, int] = defaultdict(int)

    def delivered(place: Place, value: str, number: int, error: KafkaError | None, message: Message) -> None:
        waiting[place] -= 1
        if error is None:
            journal.sent(place, value, number, "ok", message.offset())
        else:
            journal.sent(place, value, number, "unknown")

    places, pace = work.places(), Pace()
    turns = count()
    while not ending.is_set():
        for _ in range(pace.due()):
            place = places[next(turns) % len(places)]
            if waiting[place] < MAX_WAITING:
                value, number = journal.sending(place)
                waiting[place] += 1
                told = partial(delivered, place, value, number)
                producer.produce(place[0], value, partition=place[1], on_delivery=told)
        producer.poll(0.01)
    producer.flush(FLUSH_SECONDS)


def read_to_end(work: Work, places: Iterable[Place], journal: Journal, seconds: float) -> bool:
    """All that is there now; False if that does not come in time."""
    consumer = Consumer({**_reading(work), "group.id": "unused"})
    deadline = time.monotonic() + seconds
    try:
        starts = [TopicPartition(topic, number, 0) for topic, number in places]
        consumer.assign(starts)
        try:
            ends = {(one.topic, one.partition): _end(consumer, one, seconds) for one in starts}
        except KafkaException:
            return False
        while any(journal.positions().get(place, 0) < end for place, end in ends.items()):
            if time.monotonic() > deadline:
                return False
            _take(consumer, journal)
        return True
    finally:
        consumer.close()


def join(work: Work, journal: Journal, ending: Event) -> None:
    """A member of the group: it reads what it is assigned, commits it, and asks what is committed."""
    timing = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS, "socket.timeout.ms": REQUEST_MS}
    consumer = Consumer({**_reading(work), **timing, "group.id": work.group})

    def commit() -> None:
        if offsets := journal.positions():
            since = time.monotonic()
            outcome: Outcome = "ok"
            try:
                told = consumer.commit(offsets=[TopicPartition(*at) for at in _places(offsets)], asynchronous=False)
                if any(place.error is not None for place in told or ()):
                    outcome = "unknown"
            except KafkaException:
                outcome = "unknown"
            journal.committed(work.group, offsets, since, outcome)

    def ask() -> None:
        since = time.monotonic()
        try:
            told = consumer.committed(consumer.assignment(), timeout=REQUEST_MS / 1000)
        except KafkaException:
            return
        found = {(one.topic, one.partition): max(one.offset, TOLD_NONE) for one in told if one.error is None}
        journal.fetched(work.group, found, since)

    def assigned(_: object, given: list[TopicPartition]) -> None:
        for one in given:
            journal.began((one.topic, one.partition))

    def revoked(_: object, taken: list[TopicPartition]) -> None:
        commit()
        lost(_, taken)

    def lost(_: object, taken: list[TopicPartition]) -> None:
        for one in taken:
            journal.began((one.topic, one.partition))

    consumer.subscribe([work.topic], on_assign=assigned, on_revoke=revoked, on_lost=lost)
    due = time.monotonic()
    try:
        while not ending.is_set():
            _take(consumer, journal)
            if time.monotonic() >= due:
                commit()
                ask()
                due = time.monotonic() + COMMIT_SECONDS
    finally:
        consumer.close()


def _reading(work: Work) -> dict[str, Any]:
    return {
        "bootstrap.servers": work.bootstrap,
        "client.id": work.client,
        "enable.auto.commit": False,
        # An offset that a reader had, and that is gone, shows as one that it goes back to.
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 100,
        **RECONNECT,
    }


def _end(consumer: Consumer, place: TopicPartition, seconds: float) -> int:
    return int(consumer.get_watermark_offsets(place, timeout=seconds)[1])


def _take(consumer: Consumer, journal: Journal) -> None:
    found: dict[Place, list[tuple[int, str]]] = defaultdict(list)
    for message in consumer.consume(AT_ONCE, POLL_SECONDS):
        if message.error() is None:
            place = (message.topic() or "", message.partition() or 0)
            found[place].append((message.offset() or 0, (message.value() or b"").decode()))
    for place, values in found.items():
        journal.read(place, values)


def _places(offsets: dict[Place, int]) -> list[tuple[str, int, int]]:
    return [(topic, number, offset) for (topic, number), offset in offsets.items()]
