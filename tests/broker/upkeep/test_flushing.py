"""Group commit in a running broker, on a disk whose syncs wait or fail as the test wants."""

import asyncio
import errno
import logging
import threading
from collections.abc import Iterator

import pytest

from penstock.broker.engine.plain import GATHER_BELOW_BYTES
from penstock.broker.upkeep import flushing as flushing_module
from penstock.broker.upkeep.flushing import rest_seconds
from penstock.machines.flush_urgency import Urgency
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.produce import PartitionProduceResponse
from tests.broker.harness import (
    BrokenFiles,
    Client,
    FakeClock,
    GatedFiles,
    Node,
    batch,
    fetch_request,
    in_loop,
    produce_request,
    produced,
    records_of,
    running,
    turns,
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
        rounds = node.broker.upkeep.flushing.rounds
        files.gate.clear()
        first = ask_later(clients[0], "orders", b"first")
        await until(lambda: files.waiting)
        others = [
            ask_later(client, ("orders", "payments")[number % 2], b"x") for number, client in enumerate(clients[1:])
        ]
        await until(lambda: node.partition("orders").log.end_offset + node.partition("payments").log.end_offset == 12)
        assert node.broker.upkeep.flushing.rounds == rounds
        files.gate.set()
        answers = await asyncio.gather(first, *others)
        assert all(answer.error_code == ErrorCode.NONE for answer in answers)
        assert node.broker.upkeep.flushing.rounds == rounds + 2


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
        log, flushing = node.partition("orders").log, node.broker.upkeep.flushing
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
async def test_recovery_points_that_could_not_be_saved_are_saved_later_though_nothing_is_flushed_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, files = FakeClock(), BrokenFiles()
    async with running(clock=clock, files=files) as node:
        client = await prepare(node, "orders")
        log, flushing = node.partition("orders").log, node.broker.upkeep.flushing
        files.broken = "/recovery-points"
        clock.advance(2_000)
        await client.produce("orders", batch(b"1"))
        await until(lambda: "recovery points were not saved" in caplog.text)
        files.broken = ""
        assert log.recovery_point < log.flushed_offset == 2
        clock.advance(1_000)
        flushing.save_points_if_due()
        await until(lambda: log.recovery_point == 2)


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
        closing = asyncio.create_task(node.broker.upkeep.flushing.close())
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


# Rests


@pytest.mark.parametrize(
    ("cpu_us", "rest_ms"), [(0, 2), (10, 2), (40, 2), (100, 5), (200, 10), (1_000, 50), (100_000, 50)]
)
def test_flushes_that_no_client_waits_for_take_2_percent_of_a_core_with_rests_of_2_to_50_ms(
    cpu_us: int, rest_ms: int
) -> None:
    assert rest_seconds(Urgency.NONE, cpu_us / 1e6) == pytest.approx(rest_ms / 1e3)


@pytest.mark.parametrize("cpu_us", [10, 1_000, 100_000])
def test_for_a_reader_the_rest_is_a_millisecond_and_for_acks_all_there_is_none(cpu_us: int) -> None:
    assert rest_seconds(Urgency.READER, cpu_us / 1e6) == 0.001
    assert rest_seconds(Urgency.PRODUCER, cpu_us / 1e6) == 0


@pytest.fixture
def endless_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a client that waits ends a rest."""
    monkeypatch.setattr(flushing_module, "MIN_REST_SECONDS", 3600.0)
    monkeypatch.setattr(flushing_module, "MAX_REST_SECONDS", 3600.0)


async def rest_with(node: Node, client: Client) -> None:
    """One record is not flushed, and no client waits for it."""
    assert (await client.produce("orders", batch(b"1"), acks=1)).base_offset == 1
    await turns()
    assert node.partition("orders").high_watermark == 1


@pytest.mark.usefixtures("endless_rest")
@in_loop
async def test_acks_all_ends_the_rest() -> None:
    async with running() as node:
        client = await prepare(node, "orders")
        await rest_with(node, client)
        assert (await client.produce("orders", batch(b"2"))).base_offset == 2
        assert node.partition("orders").high_watermark == 3


@pytest.mark.usefixtures("endless_rest")
@in_loop
async def test_a_fetch_that_comes_to_wait_behind_unflushed_records_ends_the_rest() -> None:
    async with running() as node:
        client = await prepare(node, "orders")
        await rest_with(node, client)
        assert values_of(records_of(await client.fetch("orders", 1, max_wait_ms=3_600_000))) == [b"1"]


@pytest.mark.usefixtures("endless_rest")
@in_loop
async def test_records_that_a_waiting_fetch_was_there_for_are_flushed_without_a_rest() -> None:
    async with running() as node:
        client = await prepare(node, "orders")
        reader = await node.connect()
        reading = asyncio.create_task(reader.fetch("orders", 1, max_wait_ms=3_600_000))
        await until(lambda: node.partition("orders").fetch_waiters)
        await client.produce("orders", batch(b"1"), acks=1)
        assert values_of(records_of(await reading)) == [b"1"]


@pytest.mark.usefixtures("endless_rest")
@in_loop
async def test_an_empty_fetch_behind_unflushed_records_ends_the_rest() -> None:
    async with running() as node:
        client = await prepare(node, "orders")
        await rest_with(node, client)
        assert records_of(await client.fetch("orders", 1)) == []
        await until(lambda: node.partition("orders").high_watermark == 2)


@pytest.mark.usefixtures("endless_rest")
@in_loop
async def test_a_fetch_of_older_records_or_of_another_partition_leaves_the_rest_alone() -> None:
    async with running() as node:
        client = await prepare(node, "orders", "payments")
        await rest_with(node, client)
        assert values_of(records_of(await client.fetch("orders", 0))) == [b"0"]
        assert records_of(await client.fetch("payments", 1)) == []
        # A short rest would have been over by now.
        assert records_of(await client.fetch("payments", 1, max_wait_ms=20)) == []
        assert node.partition("orders").high_watermark == 1


@pytest.mark.usefixtures("endless_rest")
@in_loop
async def test_a_fetch_that_has_no_room_for_committed_records_leaves_the_rest_alone() -> None:
    async with running() as node:
        client = await prepare(node, "payments", "orders")
        await rest_with(node, client)
        request = fetch_request("payments", 0, max_bytes=1)
        request.topics = [*request.topics, *fetch_request("orders", 0).topics]
        first, second = (await client.ask(request, 12)).responses
        assert values_of(records_of(first.partitions[0])) == [b"0"]
        assert records_of(second.partitions[0]) == []
        assert records_of(await client.fetch("payments", 1, max_wait_ms=20)) == []
        assert node.partition("orders").high_watermark == 1


@pytest.mark.usefixtures("endless_rest")
@in_loop
async def test_of_what_is_written_together_the_most_urgent_decides() -> None:
    async with running() as node:
        client = await prepare(node, "orders", "payments", "metrics")
        reader = await node.connect()
        reading = asyncio.create_task(reader.fetch("payments", 1, max_wait_ms=3_600_000))
        await until(lambda: node.partition("payments").fetch_waiters)
        request = produce_request("orders", batch(b"1"), acks=1)
        for topic in ("payments", "metrics"):
            request.topic_data = [*request.topic_data, *produce_request(topic, batch(b"1"), acks=1).topic_data]
        await client.ask(request, 12)
        assert values_of(records_of(await reading)) == [b"1"]


@pytest.mark.usefixtures("endless_rest")
@in_loop
async def test_who_waits_at_the_end_of_a_flush_gets_the_next_one_at_once() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await prepare(node, "orders")
        other = await node.connect()
        files.gate.clear()
        first = ask_later(client, "orders", b"1")
        await until(lambda: files.waiting)
        second = ask_later(other, "orders", b"2")
        await until(lambda: node.partition("orders").log.end_offset == 3)
        files.gate.set()
        assert (await first).base_offset == 1
        assert (await second).base_offset == 2


@pytest.mark.usefixtures("endless_rest")
@in_loop
async def test_readers_of_topics_that_leave_the_flush_to_the_system_never_end_a_rest() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("metrics", configs={"penstock.flush": "os"})
        await client.produce("metrics", batch(b"0"))
        await until(lambda: not node.broker.upkeep.flushing.is_busy)
        rounds = node.broker.upkeep.flushing.rounds
        reader = await node.connect()
        reading = asyncio.create_task(reader.fetch("metrics", 1, max_wait_ms=3_600_000))
        await until(lambda: node.partition("metrics").fetch_waiters)
        await client.produce("metrics", batch(b"1"))
        assert values_of(records_of(await reading)) == [b"1"]
        assert records_of(await client.fetch("metrics", 2)) == []
        assert records_of(await client.fetch("metrics", 2, max_wait_ms=20)) == []
        assert node.broker.directory.flusher.has_work
        assert node.broker.upkeep.flushing.rounds == rounds


@in_loop
async def test_a_rest_ends_by_itself() -> None:
    async with running() as node:
        client = await prepare(node, "orders")
        for value in (b"1", b"2", b"3"):
            await client.produce("orders", batch(value), acks=1)
        await until(lambda: node.partition("orders").high_watermark == 4)


@in_loop
async def test_no_client_shortens_the_pause_of_a_flush_that_found_no_descriptor(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(flushing_module, "PUT_OFF_SECONDS", 3600.0)
    files = GatedFiles()
    async with running(files=files) as node:
        client = await prepare(node, "orders")
        await client.create_topic("payments")
        await until(lambda: not node.broker.upkeep.flushing.is_busy)
        with caplog.at_level(logging.WARNING):
            files.fail("sync_directory", 1, OSError(errno.EMFILE, "too many open files"))
            await client.produce("payments", batch(b"1"), acks=1)
            await client.fetch("payments", 0)
            await until(lambda: "a flush is put off" in caplog.text)
            for _ in range(5):
                await client.produce("orders", batch(b"2"), acks=1)
                await client.fetch("payments", 0)
            await turns()
        assert caplog.text.count("a flush is put off") == 1
        assert node.partition("payments").high_watermark == 0


@in_loop
async def test_one_thread_makes_all_rounds() -> None:
    before = set(threading.enumerate())
    async with running() as node:
        client = await prepare(node, "orders")
        for number in range(20):
            await client.produce("orders", batch(b"%d" % number))
        flushing = [thread for thread in threading.enumerate() if thread.name.startswith("penstock-flush")]
        assert len(set(flushing) - before) == 1
    assert not any(thread.is_alive() for thread in set(flushing) - before)


class SlowPoints(GatedFiles):
    """A disk on which recovery points do not get their name while the gate is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.naming = threading.Event()
        self.naming.set()
        self.is_saving = False

    def rename(self, old: str, new: str) -> None:
        if new.endswith("/recovery-points"):
            self.is_saving = True
            self.naming.wait(timeout=10)
            self.is_saving = False
        super().rename(old, new)


@pytest.fixture
def slow_points() -> Iterator[SlowPoints]:
    files = SlowPoints()
    yield files
    files.naming.set()


@in_loop
async def test_no_client_waits_for_recovery_points_but_a_stop_does(slow_points: SlowPoints) -> None:
    clock, files = FakeClock(), slow_points
    async with running(clock=clock, files=files) as node:
        client = await prepare(node, "orders")
        await until(lambda: not node.broker.upkeep.flushing.is_busy)
        files.naming.clear()
        clock.advance(1_000)
        await client.produce("orders", batch(b"1"))
        await until(lambda: files.is_saving)
        for value in (b"2", b"3"):
            assert (await client.produce("orders", batch(value))).error_code == ErrorCode.NONE
        closing = asyncio.create_task(node.broker.upkeep.flushing.close())
        await turns()
        assert files.is_saving
        assert not closing.done()
        files.naming.set()
        await closing
        log = node.partition("orders").log
        assert 2 <= log.recovery_point <= log.flushed_offset == 4
