"""DeleteRecords where a topic has several replicas: it is answered when those that are in sync have deleted, too."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.broker.cluster import replicator
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.broker.copies import TOPIC, Copies, copying
from tests.broker.harness import Client, batch, in_loop, turns, until

LONG = 60_000
"""A wait that a test does not sit out."""

SESSION = 0.5
SMALL_SEGMENTS = {"internal.segment.bytes": "200"}


@asynccontextmanager
async def filled(count: int = 3, **options: Any) -> AsyncIterator[tuple[Copies, Client]]:
    """Ten records, each in a segment of its own, which all replicas know to be committed."""
    async with copying(count, **options) as copies:
        await copies.create(configs=SMALL_SEGMENTS, copies=count)
        client = await copies.client()
        for _ in range(10):
            assert (await client.produce(TOPIC, batch(bytes(60)))).error_code == ErrorCode.NONE
        await until(lambda: {replica.high_watermark for replica in copies.replicas()} == {10})
        yield copies, client


def trim_request(offset: int, *, timeout_ms: int = LONG, partitions: int = 1) -> DeleteRecordsRequest:
    asked = [DeleteRecordsPartition(partition_index=index, offset=offset) for index in range(partitions)]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=asked)], timeout_ms=timeout_ms)


def trimmed(response: Any) -> tuple[int, int]:
    [result] = response.topics[0].partitions
    return result.error_code, result.low_watermark


async def trim(client: Client, offset: int, *, timeout_ms: int = LONG) -> tuple[int, int]:
    return trimmed(await client.ask(trim_request(offset, timeout_ms=timeout_ms), 2))


@in_loop
async def test_it_is_answered_when_all_in_sync_replicas_have_deleted() -> None:
    async with filled() as (copies, client):
        assert await trim(client, 4) == (ErrorCode.NONE, 4)
        assert {replica.log.start_offset for replica in copies.replicas()} == {4}
        assert {replica.log.segments[0].base_offset for replica in copies.replicas()} == {4}
        assert await trim(client, -1) == (ErrorCode.NONE, 10)
        assert {replica.log.size for replica in copies.replicas()} == {0}
        # The start never goes back.
        assert await trim(client, 2) == (ErrorCode.NONE, 10)


@in_loop
async def test_no_replica_waits_for_its_next_record_or_the_end_of_a_fetch_to_hear_and_to_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with filled() as (_, client):
        # Fetches wait for a minute: only one that is ended answers the request.
        monkeypatch.setattr(replicator, "WAIT_MS", LONG)
        for offset in range(1, 11):
            assert await trim(client, offset) == (ErrorCode.NONE, offset)


@in_loop
async def test_what_retention_has_deleted_is_told_to_the_leader_and_waited_for_by_no_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with filled() as (copies, client):
        copies.led().delete_before(5)
        await until(lambda: copies.led().leader.low_watermark == 5)
        monkeypatch.setattr(replicator, "WAIT_MS", LONG)
        assert await trim(client, 3, timeout_ms=0) == (ErrorCode.NONE, 5)


@in_loop
async def test_a_replica_that_does_not_follow_in_time_costs_a_timeout_and_nothing_is_undone() -> None:
    async with filled() as (copies, client):
        copies.cut(copies.leader(), copies.followers()[:1])
        assert await trim(client, 4, timeout_ms=50) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        assert copies.led().log.start_offset == 4
        assert not copies.led()._deletion_waiters
        copies.mend()
        assert await trim(client, 4) == (ErrorCode.NONE, 4)


@in_loop
async def test_a_replica_that_leaves_the_in_sync_ones_is_waited_for_no_longer() -> None:
    async with filled(configs={"replica.lag.time.max.ms": "600"}) as (copies, client):
        lost = copies.followers()[0]
        copies.cut(copies.leader(), [lost])
        asked = asyncio.create_task(trim(client, 4))
        await until(lambda: copies.led()._deletion_waiters)
        # Only for a record that it lacks does it leave.
        other = await copies.client()
        assert (await other.produce(TOPIC, batch(b"more"))).error_code == ErrorCode.NONE
        assert await asked == (ErrorCode.NONE, 4)
        assert lost not in copies.image().isr
        assert copies.replica(lost).log.start_offset == 0
        copies.mend()
        await until(lambda: copies.replica(lost).log.start_offset == 4)


@in_loop
async def test_while_too_few_are_in_sync_it_is_not_answered_since_one_that_has_left_may_lead() -> None:
    async with filled(configs={"replica.lag.time.max.ms": "600"}) as (copies, client):
        copies.cut(copies.leader(), copies.followers())
        asked = asyncio.create_task(trim(client, 4))
        await until(lambda: copies.led()._deletion_waiters)
        other = await copies.client()
        assert (await other.produce(TOPIC, batch(b"more"))).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert copies.image().isr == (copies.leader(),)
        assert copies.led().leader.low_watermark == 4
        assert await trim(other, 4, timeout_ms=50) == (ErrorCode.REQUEST_TIMED_OUT, 4)
        assert not asked.done()
        copies.mend()
        assert await asked == (ErrorCode.NONE, 4)
        assert 4 in {copies.replica(broker_id).log.start_offset for broker_id in copies.followers()}


@in_loop
async def test_a_leader_that_is_replaced_meanwhile_sends_the_client_to_its_successor() -> None:
    async with filled(session_seconds=SESSION) as (copies, client):
        old = copies.leader()
        copies.cut(old, copies.followers())
        asked = asyncio.create_task(trim(client, 4))
        await until(lambda: copies.led()._deletion_waiters)
        copies.nodes[old].store.cut()
        await copies.elect_another()
        assert not asked.done()
        copies.nodes[old].store.mend()
        copies.mend()
        assert await asked == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        # The successor knows nothing of it, and is asked again.
        await copies.until_led()
        assert await trim(await copies.client(), 4) == (ErrorCode.NONE, 4)


@in_loop
async def test_a_topic_that_is_deleted_meanwhile_ends_the_wait() -> None:
    async with filled() as (copies, client):
        copies.cut(copies.leader(), copies.followers())
        asked = asyncio.create_task(trim(client, 4))
        await until(lambda: copies.led()._deletion_waiters)
        controlling = copies.nodes[0].broker.services.controlling
        await controlling.change(lambda controller: controller.delete_topic(TOPIC))
        assert await asked == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


@in_loop
async def test_a_client_that_goes_away_leaves_nothing_behind() -> None:
    async with filled() as (copies, client):
        copies.cut(copies.leader(), copies.followers())
        client.send(trim_request(4), 2)
        await until(lambda: copies.led()._deletion_waiters)
        client.abort()
        await until(lambda: not copies.led()._deletion_waiters)


@in_loop
async def test_a_stop_does_not_wait_for_what_clients_wait_for() -> None:
    async with filled(configs={"controlled.shutdown.enable": "false"}) as (copies, client):
        copies.cut(copies.leader(), copies.followers())
        client.send(trim_request(4), 2)
        await until(lambda: copies.led()._deletion_waiters)
        answer = asyncio.create_task(client.reply())
        copies.nodes[copies.leader()].clients.remove(client)
        await copies.nodes[copies.leader()].stop()
        assert trimmed(await answer) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        client.close()


@in_loop
async def test_with_one_replica_it_is_answered_at_once() -> None:
    async with filled(1) as (_, client):
        assert await trim(client, 4, timeout_ms=0) == (ErrorCode.NONE, 4)


@in_loop
async def test_partitions_of_one_request_are_waited_for_together() -> None:
    async with copying(2) as copies:
        await copies.create(4, copies=2)
        here = [index for index in range(4) if copies.leader(index) == 0]
        client = await copies.client(0)
        for index in here:
            assert (await client.produce(TOPIC, batch(b"a", b"b"), partition=index)).error_code == ErrorCode.NONE
        asked = asyncio.create_task(client.ask(trim_request(1, partitions=4), 2))
        found = {each.partition_index: each for each in (await asked).topics[0].partitions}
        assert {index: found[index].low_watermark for index in here} == dict.fromkeys(here, 1)
        assert {found[index].error_code for index in found if index not in here} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        await turns()
        assert {copies.replica(1, index).log.start_offset for index in here} == {1}
