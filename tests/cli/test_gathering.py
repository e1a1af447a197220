"""Batches that fill while others are under way."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.cli.gathering import OVERHEAD_BYTES, Gatherer, size_of
from penstock.protocol.records import NewRecord
from tests.client.peer import in_loop

Send = Callable[[int, list[NewRecord]], Awaitable[None]]


class Sink:
    """Keeps what is sent; a batch is under way until `let_go`."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, list[bytes | None]]] = []
        self.waiting: list[asyncio.Future[None]] = []
        self.is_open = False

    async def send(self, partition: int, records: list[NewRecord]) -> None:
        self.begun.append((partition, [record.value for record in records]))
        if not self.is_open:
            self.waiting.append(asyncio.get_running_loop().create_future())
            await self.waiting[-1]

    async def let_go(self) -> None:
        self.waiting.pop(0).set_result(None)
        await turn()


async def turn() -> None:
    """Whatever can happen now has happened."""
    for _ in range(10):
        await asyncio.sleep(0)


def room_for(records: int) -> int:
    """Bytes of so many records with a value of one byte."""
    return records * (1 + OVERHEAD_BYTES)


def add(gatherer: Gatherer, partition: int, *values: bytes) -> None:
    for value in values:
        gatherer.add(partition, NewRecord(value))


@in_loop
async def test_a_batch_is_sent_when_the_next_record_has_no_room_in_it() -> None:
    sink = Sink()
    gatherer = Gatherer(sink.send, batch_bytes=room_for(2))
    add(gatherer, 0, b"a", b"b")
    await turn()
    assert sink.begun == []
    add(gatherer, 0, b"c")
    await turn()
    assert sink.begun == [(0, [b"a", b"b"])]
    await gatherer.cancel()


@in_loop
async def test_of_a_partition_one_batch_is_under_way_and_the_order_is_kept() -> None:
    sink = Sink()
    gatherer = Gatherer(sink.send, batch_bytes=room_for(2))
    add(gatherer, 0, b"a", b"b", b"c", b"d", b"e")
    add(gatherer, 1, b"x", b"y", b"z")
    await turn()
    assert sink.begun == [(0, [b"a", b"b"]), (1, [b"x", b"y"])]
    await sink.let_go()
    assert sink.begun[2:] == [(0, [b"c", b"d"])]
    sink.is_open = True
    while sink.waiting:
        await sink.let_go()
    await gatherer.finish()
    assert [values for partition, values in sink.begun if partition == 0] == [[b"a", b"b"], [b"c", b"d"], [b"e"]]


@in_loop
async def test_a_flush_sends_what_fills_no_batch_and_what_comes_while_it_waits() -> None:
    sink = Sink()
    gatherer = Gatherer(sink.send, batch_bytes=room_for(10))
    add(gatherer, 0, b"a")
    gatherer.flush()
    await turn()
    add(gatherer, 0, b"b", b"c")
    gatherer.flush()
    await turn()
    assert sink.begun == [(0, [b"a"])]
    await sink.let_go()
    assert sink.begun == [(0, [b"a"]), (0, [b"b", b"c"])]
    add(gatherer, 0, b"d")
    await sink.let_go()
    assert len(sink.begun) == 2, "nobody has flushed the last one"
    await gatherer.cancel()


@in_loop
async def test_a_record_larger_than_a_batch_goes_alone() -> None:
    sink = Sink()
    sink.is_open = True
    gatherer = Gatherer(sink.send, batch_bytes=room_for(2))
    add(gatherer, 0, b"a", b"x" * 1000, b"b")
    await gatherer.finish()
    assert sink.begun == [(0, [b"a"]), (0, [b"x" * 1000]), (0, [b"b"])]


@in_loop
async def test_there_is_room_when_enough_is_sent() -> None:
    sink = Sink()
    gatherer = Gatherer(sink.send, batch_bytes=room_for(2), max_bytes=room_for(3))
    add(gatherer, 0, b"a", b"b", b"c")
    await gatherer.room()
    add(gatherer, 0, b"d")
    waiting = asyncio.create_task(gatherer.room())
    await turn()
    assert not waiting.done()
    sink.is_open = True
    await sink.let_go()
    await waiting
    await gatherer.finish()
    assert sink.begun == [(0, [b"a", b"b"]), (0, [b"c", b"d"])]


@in_loop
async def test_after_a_failure_nothing_more_is_sent_and_it_is_told() -> None:
    begun = []

    async def send(partition: int, records: list[NewRecord]) -> None:
        begun.append(records[0].value)
        if partition == 0:
            raise ValueError("no")

    gatherer = Gatherer(send, batch_bytes=room_for(1))
    add(gatherer, 0, b"a", b"b", b"c")
    await turn()
    add(gatherer, 1, b"x", b"y", b"z")
    with pytest.raises(ValueError, match="no"):
        await gatherer.room()
    with pytest.raises(ValueError, match="no"):
        await gatherer.finish()
    assert begun == [b"a"]


@in_loop
async def test_what_is_under_way_can_be_given_up() -> None:
    sink = Sink()
    gatherer = Gatherer(sink.send)
    add(gatherer, 0, b"a")
    gatherer.flush()
    await turn()
    await gatherer.cancel()
    assert sink.waiting[0].cancelled()


def test_the_size_counts_key_value_and_headers() -> None:
    record = NewRecord(b"value", b"key", [("name", b"1"), ("other", None)])
    assert size_of(record) - OVERHEAD_BYTES == 5 + 3 + 4 + 1 + 5
    assert size_of(NewRecord(None)) == OVERHEAD_BYTES
