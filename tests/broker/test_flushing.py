"""Group commit in a running broker, on a disk whose syncs wait or fail as the test wants."""

import asyncio
import errno

from penstock.broker.partition import GATHER_BELOW_BYTES
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.produce import PartitionProduceResponse
from tests.broker.harness import (
    BrokenFiles,
    Client,
    FakeClock,
    GatedFiles,
    Node,
    batch,
    in_loop,
    produce_request,
    produced,
    records_of,
    running,
    until,
    values_of,
)


async def prepare(node: Node, *topics: str) -> Client:
    """Topics that have been written and flushed once, so that nothing but records is left to sync."""
    client = await node.connect()
    for topic in topics:
        await client.create_topic(topic)
        assert (await client.produce(topic, batch(b"0"))).error_code == ErrorCode.NONE
    return client


def ask_later(client: Client, topic: str, value: bytes, *, acks: int = -1) -> "asyncio.Task[PartitionProduceResponse]":
    return asyncio.create_task(client.produce(topic, batch(value), acks=acks))


@in_loop
async def test_acks_1_is_answered_before_the_flush_and_acks_all_and_readers_after_it() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        one = await prepare(node, "orders")
        everyone, reader = await node.connect(), await node.connect()
        files.gate.clear()
        assert (await one.produce("orders", batch(b"1"), acks=1)).base_offset == 1
        waiting = ask_later(everyone, "orders", b"2")
        await until(lambda: node.partition("orders").log.end_offset == 3)
        await until(lambda: files.waiting)
        seen = await reader.fetch("orders")
        assert values_of(records_of(seen)) == [b"0"]
        assert seen.high_watermark == 1
        assert not waiting.done()
        files.gate.set()
        assert (await waiting).base_offset == 2
        assert await reader.values("orders") == [b"0", b"1", b"2"]


@in_loop
async def test_acks_0_is_never_answered_and_never_waited_for() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await prepare(node, "orders")
        files.gate.clear()
        for value in (b"1", b"2"):
            client.send(produce_request("orders", batch(value), acks=0), 12)
        assert (await client.produce("orders", batch(b"3"), acks=1)).base_offset == 3
        files.gate.set()
        await until(lambda: node.partition("orders").high_watermark == 4)
        assert await client.values("orders") == [b"0", b"1", b"2", b"3"]


@in_loop
async def test_what_is_written_during_a_flush_is_flushed_by_the_next_one_together() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        await prepare(node, "orders", "payments")
        clients = [await node.connect() for _ in range(10)]
        await until(lambda: not node.broker.directory.flusher.has_work)
        rounds = node.broker.flushing.rounds
        files.gate.clear()
        first = ask_later(clients[0], "orders", b"first")
        await until(lambda: files.waiting)
        others = [
            ask_later(client, ("orders", "payments")[number % 2], b"x") for number, client in enumerate(clients[1:])
        ]
        await until(lambda: node.partition("orders").log.end_offset + node.partition("payments").log.end_offset == 12)
        assert node.broker.flushing.rounds == rounds
        files.gate.set()
        answers = await asyncio.gather(first, *others)
        assert all(answer.error_code == ErrorCode.NONE for answer in answers)
        assert node.broker.flushing.rounds == rounds + 2


@in_loop
async def test_a_large_batch_alone_is_flushed_without_anybody_else() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        answer = await client.produce("orders", batch(bytes(GATHER_BELOW_BYTES)))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
        assert (await client.produce("orders", batch(bytes(GATHER_BELOW_BYTES)), acks=1)).base_offset == 1
        await until(lambda: node.partition("orders").high_watermark == 2)


@in_loop
async def test_what_a_failed_sync_may_have_lost_is_never_acknowledged_nor_is_anything_after_it() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await prepare(node, "orders", "payments")
        files.failing = OSError(errno.EIO, "input/output error")
        refused = await client.produce("orders", batch(b"1"))
        files.failing = None
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert refused.base_offset == -1
        assert refused.error_message is not None
        assert "input/output error" in refused.error_message
        for topic in ("orders", "payments"):
            for acks in (1, -1):
                again = await client.produce(topic, batch(b"2"), acks=acks)
                assert again.error_code == ErrorCode.KAFKA_STORAGE_ERROR


@in_loop
async def test_a_flush_that_finds_no_descriptor_is_made_again_when_there_is_one() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await prepare(node, "orders")
        await client.create_topic("payments")
        # To sync the name of a new file its folder has to be opened.
        files.fail("sync_directory", 1, OSError(errno.EMFILE, "too many open files"))
        assert (await client.produce("payments", batch(b"1"))).error_code == ErrorCode.NONE
        assert not node.broker.failed.is_set()
        assert await client.values("payments") == [b"1"]


@in_loop
async def test_a_partition_that_went_offline_is_back_after_a_restart() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await prepare(node, "orders")
        files.failing = OSError(errno.EIO, "input/output error")
        await client.produce("orders", batch(b"1"))
        files.failing = None
        await node.restart()
        client = await node.connect()
        assert (await client.produce("orders", batch(b"2"))).error_code == ErrorCode.NONE
        values = await client.values("orders")
        assert values[0] == b"0"
        assert values[-1] == b"2"


@in_loop
async def test_recovery_points_are_saved_for_whoever_asks_though_nothing_is_flushed_any_more() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        client = await prepare(node, "orders")
        log, flushing = node.partition("orders").log, node.broker.flushing
        await client.produce("orders", batch(b"1"))
        assert log.recovery_point < log.flushed_offset == 2
        flushing.save_points_if_due()
        clock.advance(1_000)
        flushing.save_points_if_due()
        await until(lambda: log.recovery_point == 2)


@in_loop
async def test_recovery_points_that_cannot_be_saved_do_not_end_the_flushing() -> None:
    clock, files = FakeClock(), BrokenFiles()
    async with running(clock=clock, files=files) as node:
        client = await prepare(node, "orders")
        files.broken = "/recovery-points"
        for value in (b"1", b"2", b"3"):
            clock.advance(2_000)
            assert (await client.produce("orders", batch(value))).error_code == ErrorCode.NONE
        assert await client.values("orders") == [b"0", b"1", b"2", b"3"]
        files.broken = ""


@in_loop
async def test_a_stop_waits_for_the_flush_under_way_and_answers_who_waits_for_it() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await prepare(node, "orders")
        files.gate.clear()
        client.send(produce_request("orders", batch(b"1")), 12)
        await until(lambda: files.waiting)
        stopping = asyncio.create_task(node.broker.stop())
        await until(lambda: node.broker.listener.is_closing)
        files.gate.set()
        assert produced(await client.reply()).base_offset == 1
        await stopping
        await node.restart()
        assert node.broker.directory.was_clean
        assert await (await node.connect()).values("orders") == [b"0", b"1"]


@in_loop
async def test_a_flush_is_never_abandoned_though_the_flushing_is_cancelled() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await prepare(node, "orders")
        files.gate.clear()
        await client.produce("orders", batch(b"1"), acks=1)
        await until(lambda: files.waiting)
        closing = asyncio.create_task(node.broker.flushing.close())
        await asyncio.sleep(0)
        assert not closing.done()
        files.gate.set()
        await closing
        assert node.partition("orders").high_watermark == 2


@in_loop
async def test_topics_that_leave_the_flush_to_the_system_are_acknowledged_before_it() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await node.connect()
        await client.create_topic("metrics", configs={"penstock.flush": "os"})
        await client.produce("metrics", batch(b"0"))
        await until(lambda: not files.waiting)
        files.gate.clear()
        assert (await client.produce("metrics", batch(b"1"))).base_offset == 1
        assert await client.values("metrics") == [b"0", b"1"]
