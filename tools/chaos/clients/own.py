"""Clients of Penstock's own SDK: idempotent producers, patient and hasty, one that sends everything once, a reader,
and a member of a group."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from threading import Event
from typing import Any

from penstock.client import Admin, ClientError, Consumer, Message, Producer, SendFuture, TopicPartition
from penstock.client.errors import UnknownTopicError
from tools.chaos.clients.journal import Journal
from tools.chaos.clients.work import (
    BESIDE,
    BESIDE_RATE,
    COMMIT_SECONDS,
    FLUSH_SECONDS,
    HASTY_MS,
    HEARTBEAT_MS,
    MAX_WAITING,
    POLL_SECONDS,
    REQUEST_MS,
    ROUND_MS,
    SESSION_MS,
    Pace,
    Work,
    beside,
)
from tools.chaos.history import Outcome, Place

AT_ONCE = 500


def produce(work: Work, journal: Journal, ending: Event) -> None:
    asyncio.run(_produce(work, journal, ending, request_timeout_ms=REQUEST_MS))


def produce_hastily(work: Work, journal: Journal, ending: Event) -> None:
    """Gives a message up before a fault is over, and goes on: what it says of the outcome must hold all the same."""
    timing: dict[str, Any] = {"delivery_timeout_ms": HASTY_MS, "request_timeout_ms": HASTY_MS // 2}
    asyncio.run(_produce(work, journal, ending, **timing))


def produce_once(work: Work, journal: Journal, ending: Event) -> None:
    """One request at a time and no second try, so that a refusal says for certain that a message is not there. It waits
    for an answer for as long as a round may take: a request that it had given up could be appended after the next."""
    once: dict[str, Any] = {"enable_idempotence": False, "retries": 0, "max_in_flight_requests_per_connection": 1}
    asyncio.run(_produce(work, journal, ending, **once, request_timeout_ms=ROUND_MS, delivery_timeout_ms=2 * ROUND_MS))


def produce_beside(work: Work, journal: Journal, ending: Event) -> None:
    """To the topics of which less is promised."""

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for end, (acks, _) in BESIDE.items():
                settings: dict[str, Any] = {"acks": acks, "enable_idempotence": acks == "all"}
                there = [beside(work.topic, end)]
                made = _produce(work, journal, ending, places=there, pace=Pace(BESIDE_RATE), **settings)
                group.create_task(made)

    asyncio.run(run())


async def _produce(
    work: Work,
    journal: Journal,
    ending: Event,
    *,
    places: Sequence[Place] = (),
    pace: Pace | None = None,
    **settings: Any,
) -> None:
    waiting: dict[Place, int] = defaultdict(int)

    def delivered(place: Place, value: str, number: int, future: SendFuture) -> None:
        waiting[place] -= 1
        error = future.exception()
        if error is None:
            journal.sent(place, value, number, "ok", future.result().offset)
        else:
            journal.sent(place, value, number, "unknown" if error.outcome_unknown else "failed")

    places, pace, turns = places or work.places(), pace or Pace(), count()
    producer = Producer(work.bootstrap, client_id=work.client, linger_ms=2, **settings)
    while not ending.is_set():
        for _ in range(pace.due()):
            place = places[next(turns) % len(places)]
            if waiting[place] < MAX_WAITING:
                value, number = journal.sending(place)
                waiting[place] += 1
                future = producer.send(place[0], value.encode(), partition=place[1])
                future.add_done_callback(partial(delivered, place, value, number))
        await asyncio.sleep(0.01)
    with suppress(TimeoutError):
        async with asyncio.timeout(FLUSH_SECONDS):
            await producer.close()


def read(work: Work, journal: Journal, ending: Event) -> None:
    """All partitions from their start; what the group has committed is asked for as well, from outside the group."""
    asyncio.run(_read(work, journal, ending))


async def _read(work: Work, journal: Journal, ending: Event) -> None:
    consumer = Consumer(**_reading(work))
    async with consumer, Admin(work.bootstrap, request_timeout_ms=REQUEST_MS) as admin:
        places = [TopicPartition(*place) for place in work.places()]
        await consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        due = time.monotonic()
        while not ending.is_set():
            await _take(consumer, journal)
            if time.monotonic() >= due:
                since = time.monotonic()
                with suppress(ClientError):
                    told = await admin.committed(work.group)
                    journal.fetched(work.group, {(*place,): one.offset for place, one in told.items()}, since)
                due = time.monotonic() + COMMIT_SECONDS


def join(work: Work, journal: Journal, ending: Event) -> None:
    """A member of the group: it reads what it is assigned, commits it, and asks what is committed."""
    asyncio.run(_join(work, journal, ending))


async def _join(work: Work, journal: Journal, ending: Event) -> None:
    consumer = Consumer(
        **_reading(work), group_id=work.group, session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS
    )

    async def commit() -> None:
        if offsets := journal.positions():
            since = time.monotonic()
            outcome: Outcome = "ok"
            try:
                await consumer.commit({TopicPartition(*place): offset for place, offset in offsets.items()})
            except ClientError:
                outcome = "unknown"
            journal.committed(work.group, offsets, since, outcome)

    async def ask() -> None:
        since = time.monotonic()
        try:
            told = await consumer.committed(*consumer.assignment)
        except ClientError:
            return
        found = {(*place,): -1 if offset is None else offset for place, offset in told.items()}
        journal.fetched(work.group, found, since)

    def began(taken: frozenset[TopicPartition]) -> None:
        for one in taken:
            journal.began((*one,))

    async def revoked(taken: frozenset[TopicPartition]) -> None:
        await commit()
        began(taken)

    consumer.subscribe(work.topic, on_assigned=began, on_revoked=revoked, on_lost=began)
    async with consumer:
        due = time.monotonic()
        while not ending.is_set():
            await _take(consumer, journal)
            if time.monotonic() >= due:
                await commit()
                await ask()
                due = time.monotonic() + COMMIT_SECONDS


def _reading(work: Work) -> dict[str, Any]:
    return {
        "bootstrap_servers": work.bootstrap,
        "client_id": work.client,
        "enable_auto_commit": False,
        # An offset that a reader had, and that is gone, shows as one that it goes back to.
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": 100,
        "request_timeout_ms": REQUEST_MS,
    }


async def _take(consumer: Consumer, journal: Journal) -> None:
    # A topic that is deleted, and created again, is not there in the meantime.
    with suppress(UnknownTopicError):
        _note(journal, await consumer.poll(AT_ONCE, timeout_ms=POLL_SECONDS * 1000))


def _note(journal: Journal, messages: Iterable[Message[Any, Any]]) -> None:
    found: dict[Place, list[tuple[int, str]]] = defaultdict(list)
    for message in messages:
        found[message.topic, message.partition].append((message.offset, (message.value or b"").decode()))
    for place, values in found.items():
        journal.read(place, values)
