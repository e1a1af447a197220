"""Rounds of the flusher, counted."""

import errno

from penstock.broker.metrics.flushes import FlushMeter
from penstock.protocol.error_codes import ErrorCode
from tests.broker.harness import GatedFiles, batch, in_loop, running, until


def test_a_round_has_a_time_and_a_number_of_logs() -> None:
    meter = FlushMeter()
    meter.flushed(1, 0.001)
    meter.flushed(40, 0.5)
    meter.failed()
    assert (meter.seconds.count, meter.seconds.sum) == (2, 0.501)
    assert (meter.logs.count, meter.logs.sum) == (2, 41)
    assert meter.failures == 1


@in_loop
async def test_rounds_of_a_broker_are_counted() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        meter = node.broker.services.meters.flushes
        before = meter.logs.sum
        await client.produce("orders", batch(b"a"))
        await client.produce("orders", batch(b"b"))
        assert meter.seconds.count == meter.logs.count == node.broker.upkeep.flushing.rounds
        assert meter.logs.sum >= before + 2
        assert meter.failures == 0


@in_loop
async def test_a_round_that_failed_is_counted_apart() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await node.connect()
        await client.create_topic("orders")
        await until(lambda: not node.broker.directory.flusher.has_work)
        meter = node.broker.services.meters.flushes
        rounds = meter.seconds.count
        files.failing = OSError(errno.EIO, "input/output error")
        answer = await client.produce("orders", batch(b"a"))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (meter.failures, meter.seconds.count) == (1, rounds)
        files.failing = None
