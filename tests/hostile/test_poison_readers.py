"""Poison batches and those who read them: a partition for each of the eleven kinds, and an honest one beside them.

The broker is scripted: what a real one refuses to store does not matter here.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest

from penstock.client import Consumer, Message, TopicPartition
from penstock.client.errors import CorruptBatchError
from penstock.protocol.batch import read_header, split, stamp
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tests.client.peer import Peer, peer
from tests.hostile import poison
from tests.hostile.stage import beside_an_honest_client
from tests.waiting import in_loop, until

Place: TypeAlias = tuple[int, int]
Read: TypeAlias = Callable[[], Awaitable[list[Place]]]

TOPIC = "poisoned"
KEYS = [TopicPartition(TOPIC, number) for number in range(len(poison.KINDS) + 1)]
POISONED, HONEST = KEYS[:-1], KEYS[-1]
BEFORE = AFTER = 3
"""Messages that come before a poison batch, and after it."""
BOMB_LIMIT = 1024 * 1024


@dataclass
class Log:
    """Good messages, a batch that cannot be read unless it is the honest partition's, and good messages again."""

    batches: list[bytes] = field(default_factory=list)
    end: int = 0

    def append(self, batch: bytes) -> int:
        """Returns its offset."""
        stamped = bytearray(batch)
        stamp(stamped, self.end, 0)
        self.batches.append(bytes(stamped))
        first, self.end = self.end, read_header(stamped).next_offset
        return first

    def records_from(self, offset: int) -> bytes:
        return b"".join(each for each in self.batches if read_header(each).next_offset > offset)


def logs() -> tuple[list[Log], dict[int, int]]:
    """The log of each partition, and where in it the batch after the poison begins."""
    made, afters = [], {}
    for partition, middle in enumerate([*(build() for build in poison.KINDS.values()), poison.good()]):
        log = Log()
        log.append(poison.good())
        log.append(middle)
        afters[partition] = log.append(poison.good())
        made.append(log)
    return made, afters


LOGS, AFTERS = logs()
GOOD = {(key.partition, offset) for key in POISONED for offset in range(BEFORE)}
GOOD_AFTER = {(key.partition, AFTERS[key.partition] + number) for key in POISONED for number in range(AFTER)}
HONEST_ONES = {(HONEST.partition, offset) for offset in range(LOGS[-1].end)}


def serve(broker: Peer) -> None:
    def answer(request: FetchRequest) -> FetchResponse:
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        PartitionData(
                            partition_index=each.partition,
                            high_watermark=LOGS[each.partition].end,
                            records=LOGS[each.partition].records_from(each.fetch_offset),
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    broker.answers[FetchRequest] = answer


@asynccontextmanager
async def reading(**settings: Any) -> AsyncIterator[Consumer[Any, Any]]:
    async with peer(**{TOPIC: [0] * len(KEYS)}) as broker:
        serve(broker)
        given = {"fetch_max_wait_ms": 20, "max_decompressed_bytes": BOMB_LIMIT, **settings}
        async with Consumer(bootstrap_servers=broker.address, **given) as consumer:
            await consumer.assign(KEYS)
            for key in KEYS:
                await consumer.seek(key, 0)
            yield consumer


def place(message: Message[Any, Any]) -> Place:
    return message.partition, message.offset


def by_poll(consumer: Consumer[Any, Any]) -> Read:
    async def read() -> list[Place]:
        return [place(each) for each in await consumer.poll(7, timeout_ms=None)]

    return read


def by_iteration(consumer: Consumer[Any, Any]) -> Read:
    async def read() -> list[Place]:
        return [place(await anext(consumer))]

    return read


def by_columns(consumer: Consumer[Any, Any]) -> Read:
    async def read() -> list[Place]:
        rows = await consumer.poll_arrow(7, timeout_ms=None)
        return list(zip(rows.column("partition").to_pylist(), rows.column("offset").to_pylist(), strict=True))

    return read


def by_merging(consumer: Consumer[Any, Any]) -> Read:
    merged = consumer.merged(max_wait_ms=1)

    async def read() -> list[Place]:
        return [place(await anext(merged))]

    return read


def by_pushing(consumer: Consumer[Any, Any]) -> Read:
    async def read() -> list[Place]:
        pushed: list[Place] = []

        def take(message: Message[Any, Any]) -> None:
            pushed.append(place(message))
            consumer.end_push()

        try:
            await consumer.push(take, credits=7)
        except CorruptBatchError:
            assert not pushed
            raise
        return pushed

    return read


WAYS = pytest.mark.parametrize("way", [by_poll, by_iteration, by_columns, by_merging, by_pushing])


@WAYS
@in_loop
async def test_a_reader_gets_all_before_a_poison_batch_once_and_its_error_until_it_seeks(
    way: Callable[[Consumer[Any, Any]], Read],
) -> None:
    async with reading() as consumer:
        read = way(consumer)
        seen: list[Place] = []
        errors: dict[int, list[tuple[CorruptBatchError, set[int]]]] = {key.partition: [] for key in POISONED}

        async def go_on() -> None:
            try:
                seen.extend(await read())
            except CorruptBatchError as error:
                _, partition = error.partition or HONEST
                before = {offset for number, offset in seen if number == partition}
                errors[partition].append((error, before))

        while min(map(len, errors.values())) < 2 or len(seen) < len(GOOD | HONEST_ONES):
            await go_on()
        assert Counter(seen) == Counter(GOOD | HONEST_ONES), "each once, and nothing else"
        for key, name in zip(POISONED, poison.KINDS, strict=True):
            for error, before in errors[key.partition]:
                assert before == set(range(BEFORE)), f"{name}: all that lies before the batch comes before its error"
                assert (error.partition, error.offset, error.next_offset) == (key, BEFORE, AFTERS[key.partition]), name
                told = f"{key}: the batch at offset {BEFORE} cannot be read: "
                assert str(error).startswith(told), name
                assert f"`seek` to offset {error.next_offset}" in str(error), name
                assert "on_corrupt='skip'" in str(error), name
            assert await consumer.position(key) == BEFORE, name
            await consumer.seek(key, AFTERS[key.partition])
        seen.clear()
        while len(seen) < len(GOOD_AFTER):
            seen += await read()
        assert Counter(seen) == Counter(GOOD_AFTER)
        assert consumer.skipped_batches == 0


@WAYS
@in_loop
async def test_a_reader_that_skips_passes_over_each_poison_batch_and_counts_it(
    way: Callable[[Consumer[Any, Any]], Read],
) -> None:
    async with reading(on_corrupt="skip") as consumer:
        read = way(consumer)
        seen: list[Place] = []
        expected = GOOD | GOOD_AFTER | HONEST_ONES
        while len(seen) < len(expected):
            seen += await read()
        assert Counter(seen) == Counter(expected), "each once, and nothing else"
        assert consumer.skipped_batches == len(poison.KINDS)
        assert [await consumer.position(key) for key in KEYS] == [log.end for log in LOGS]


@pytest.mark.parametrize("held", [(0, 0), (HONEST.partition, 0)], ids=["before the batch", "of another partition"])
@in_loop
async def test_a_push_gives_all_before_a_poison_batch_and_waits_for_the_calls_that_run(held: Place) -> None:
    async with reading() as consumer:
        await consumer.assign([POISONED[0], HONEST])
        gate = asyncio.Event()
        begun: list[Place] = []
        handled: list[Place] = []

        async def handle(message: Message[Any, Any]) -> None:
            begun.append(place(message))
            if place(message) == held:
                await gate.wait()
            handled.append(place(message))

        push = asyncio.create_task(consumer.push(handle, concurrency=2))
        expected = {(0, offset) for offset in range(BEFORE)}
        await until(lambda: held in begun and (held in expected or expected <= set(handled)))
        # What is fetched next is taken meanwhile.
        for _ in range(100):
            await asyncio.sleep(0)
        assert not push.done()
        gate.set()
        with pytest.raises(CorruptBatchError):
            await push
        assert expected | {held} <= set(handled)
        assert handled.count(held) == 1
        assert begun == list(dict.fromkeys(begun)), "nothing is repeated"


@in_loop
async def test_what_is_skipped_is_logged_with_its_place_and_not_a_line_for_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="penstock.client.corruption"):
        async with reading(on_corrupt="skip") as consumer:
            seen: list[Place] = []
            while len(seen) < len(GOOD | GOOD_AFTER | HONEST_ONES):
                seen += [place(each) for each in await consumer.poll(timeout_ms=None)]
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.client.corruption"]
    assert 1 <= len(lines) < len(poison.KINDS)
    assert f"{TOPIC}-" in lines[0]
    assert f"the batch at offset {BEFORE} cannot be read" in lines[0]


@pytest.mark.parametrize("name", poison.KINDS)
@in_loop
async def test_a_message_in_a_poison_batch_cannot_be_got_by_its_id(name: str) -> None:
    partition = list(poison.KINDS).index(name)
    async with reading(on_corrupt="skip") as consumer:
        with pytest.raises(CorruptBatchError, match=f"{TOPIC}-{partition}: the batch at offset {BEFORE} cannot be"):
            await consumer.get(f"{TOPIC}-{partition}@{BEFORE}")
        message = await consumer.get(f"{TOPIC}-{partition}@{BEFORE - 1}")
        assert message is not None
        assert message.value == b"three"


@in_loop
async def test_a_consumer_gets_past_all_that_a_broker_stores_which_checks_headers_alone() -> None:
    async with beside_an_honest_client() as stage:
        attacker = await stage.attacker()
        await attacker.create_topic(TOPIC, configs={"penstock.validate": "header"})
        expected, stored = 0, 0
        for build in poison.KINDS.values():
            answer = await attacker.produce(TOPIC, build())
            # An empty batch holds no record, and is refused by its header.
            stored += answer.error_code == ErrorCode.NONE
            await attacker.produce(TOPIC, poison.good())
            expected += AFTER
        assert stored == len(poison.KINDS) - 1
        host, port = stage.node.broker.address
        settings: dict[str, Any] = {
            "on_corrupt": "skip",
            "auto_offset_reset": "earliest",
            "max_decompressed_bytes": BOMB_LIMIT,
        }
        async with Consumer(TOPIC, bootstrap_servers=f"{host}:{port}", **settings) as consumer:
            values: list[bytes | None] = []
            while len(values) < expected:
                values += [message.value for message in await consumer.poll()]
            assert values == [b"one", b"two", b"three"] * len(poison.KINDS)
            assert consumer.skipped_batches == stored


def test_each_kind_has_a_header_and_a_checksum_that_a_broker_believes() -> None:
    for name, build in poison.KINDS.items():
        [(header, view)] = split(build())
        assert header.last_offset_delta == header.record_count - 1, name
        assert len(view) < 20_000, name
