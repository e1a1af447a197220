"""Partitions that get more replicas over the wire, while they are written and after their first leader has died."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.broker.copies import TOPIC, contents, copying
from tests.broker.harness import Client, GatedFiles, batch, create_topics, in_loop, running, until

SESSION = 0.5
"""Long enough for a loop that is busy, short enough to wait for."""


def targets(
    replicas: Sequence[int] | None, index: int = 0, topic: str = TOPIC, **named: Any
) -> AlterPartitionReassignmentsRequest:
    partition = ReassignablePartition(partition_index=index, replicas=replicas)
    return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[partition])], **named)


async def outcome(client: Client, request: AlterPartitionReassignmentsRequest, version: int = 1) -> tuple[str, str]:
    response = await client.ask(request, version)
    assert response.error_code == ErrorCode.NONE, response
    [[partition]] = [topic.partitions for topic in response.responses]
    return ErrorCode(partition.error_code).name, partition.error_message or ""


async def ongoing(client: Client, topics: dict[str, list[int]] | None = None) -> dict[tuple[str, int], Any]:
    named = (
        None
        if topics is None
        else [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes) for name, indexes in topics.items()
        ]
    )
    response = await client.ask(ListPartitionReassignmentsRequest(topics=named))
    return {
        (topic.name, each.partition_index): (
            list(each.replicas),
            list(each.adding_replicas),
            list(each.removing_replicas),
        )
        for topic in response.topics
        for each in topic.partitions
    }


@in_loop
async def test_one_replica_becomes_three_while_acks_all_goes_on_and_outlives_its_first_leader() -> None:
    async with copying(session_seconds=SESSION) as copies:
        await copies.create(copies=1)
        first = copies.leader()
        others = [number for number in range(3) if number != first]
        client, sent = await copies.client(), 0

        async def send() -> None:
            nonlocal sent
            answer = await client.produce(TOPIC, batch(b"%d" % sent))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, sent), answer
            sent += 1

        for _ in range(30):
            await send()
        # Any broker takes it, and the controller decides.
        anyone = await copies.nodes[others[1]].connect()
        assert await outcome(anyone, targets([first, *others])) == ("NONE", "")
        while copies.image().adding or len(copies.image().isr) < 3:
            await send()
        assert copies.image().replicas == (first, *others)
        for _ in range(10):
            await send()
        assert copies.led().leader.needed == 2
        await copies.until_equal()
        await copies.nodes[first].kill()
        assert await copies.elect_another() == first
        survivor = await copies.client()
        assert (await survivor.produce(TOPIC, batch(b"%d" % sent))).error_code == ErrorCode.NONE
        assert await survivor.values(TOPIC) == [b"%d" % number for number in range(sent + 1)]


@in_loop
async def test_acks_all_is_taken_while_new_replicas_have_nothing_yet() -> None:
    async with copying() as copies:
        await copies.create(copies=1, configs={"min.insync.replicas": "3"})
        client, first = await copies.client(), copies.leader()
        new = (first + 1) % 3
        files = copies.nodes[new].files
        assert isinstance(files, GatedFiles)
        await client.produce(TOPIC, batch(b"before"))
        files.gate.clear()
        assert await outcome(client, targets([0, 1, 2])) == ("NONE", "")
        await until(lambda: files.waiting)
        for number in range(5):
            assert (await client.produce(TOPIC, batch(b"%d" % number))).error_code == ErrorCode.NONE
        adding = [number for number in range(3) if number != first]
        assert await ongoing(client) == {(TOPIC, 0): ([0, 1, 2], adding, [])}
        assert await ongoing(client, {TOPIC: [0, 7], "none": [0]}) == {(TOPIC, 0): ([0, 1, 2], adding, [])}
        assert await ongoing(client, {TOPIC: [1]}) == {}
        files.gate.set()
        await until(lambda: not copies.image().adding)
        assert await ongoing(client) == {}
        # Now that there are three, all of them are needed.
        files.gate.clear()
        waiting = asyncio.create_task(client.produce(TOPIC, batch(b"all")))
        await until(lambda: files.waiting)
        assert not waiting.done()
        files.gate.set()
        assert (await waiting).error_code == ErrorCode.NONE


@in_loop
async def test_a_log_whose_beginning_is_gone_and_that_is_not_flushed_is_copied_too() -> None:
    async with copying() as copies:
        await copies.create(copies=1, configs={"penstock.flush": "os"})
        client = await copies.client()
        files = copies.nodes[copies.leader()].files
        assert isinstance(files, GatedFiles)
        files.gate.clear()
        for number in range(20):
            assert (await client.produce(TOPIC, batch(b"%d" % number))).base_offset == number
        copies.led().delete_before(7)
        assert copies.led().commits_on_write
        assert await outcome(client, targets([0, 1, 2])) == ("NONE", "")
        await until(lambda: len(copies.led().leader.replicas) == 3)
        assert not copies.led().commits_on_write
        # What was committed unflushed every new replica must have before it counts.
        assert copies.led().leader.high_watermark == 20
        files.gate.set()
        await until(lambda: len(copies.image().isr) == 3)
        assert (await client.produce(TOPIC, batch(b"20"))).error_code == ErrorCode.NONE
        await until(lambda: {replica.log.start_offset for replica in copies.replicas()} == {7})
        await until(lambda: len({contents(replica) for replica in copies.replicas()}) == 1)


@in_loop
async def test_a_broker_that_is_away_is_followed_up_when_it_is_back() -> None:
    async with copying(session_seconds=SESSION) as copies:
        await copies.create(copies=1)
        client, first = await copies.client(), copies.leader()
        new = (first + 1) % 3
        assert await outcome(client, targets([first, new])) == ("NONE", "")
        await copies.nodes[new].kill()
        await until(lambda: new not in copies.image().isr)
        assert (await client.produce(TOPIC, batch(b"a"))).error_code == ErrorCode.NONE
        await copies.start(new)
        await until(lambda: copies.image().isr == (first, new))
        assert copies.image().adding == ()


@pytest.mark.parametrize("version", range(2))
def test_every_version_says_of_each_partition_why_its_replicas_stay(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            await client.ask(create_topics(TOPIC, 1), 7)
            for request, code, reason in (
                (targets([0, 3]), "INVALID_REPLICA_ASSIGNMENT", "broker 3, which does not exist"),
                (targets([]), "INVALID_REPLICA_ASSIGNMENT", "not removed yet"),
                (targets([3]), "INVALID_REPLICA_ASSIGNMENT", "not removed yet"),
                (targets([0], index=5), "UNKNOWN_TOPIC_OR_PARTITION", "no partition 5"),
                (targets([0], topic="none"), "UNKNOWN_TOPIC_OR_PARTITION", "no topic"),
                (targets(None), "NO_REASSIGNMENT_IN_PROGRESS", "not being copied"),
                (targets(None, index=5), "UNKNOWN_TOPIC_OR_PARTITION", "no partition 5"),
            ):
                found, message = await outcome(client, request, version)
                assert found == code
                assert reason in message
            assert await outcome(client, targets([0]), version) == ("NONE", "")

    run()


@in_loop
async def test_a_request_may_insist_on_the_number_of_replicas() -> None:
    async with copying() as copies:
        await copies.create(copies=1)
        client, first = await copies.client(), copies.leader()
        request = targets([first, (first + 1) % 3], allow_replication_factor_change=False)
        code, message = await outcome(client, request)
        assert code == "INVALID_REPLICATION_FACTOR"
        assert "another number" in message
        assert copies.image().replicas == (first,)


@in_loop
async def test_an_addition_that_is_cancelled_leaves_nothing_and_can_be_made_again() -> None:
    async with copying() as copies:
        await copies.create(copies=1)
        client, first = await copies.client(), copies.leader()
        new = (first + 1) % 3
        files = copies.nodes[new].files
        assert isinstance(files, GatedFiles)
        for number in range(10):
            await client.produce(TOPIC, batch(b"%d" % number))
        files.gate.clear()
        await outcome(client, targets([first, new]))
        await until(lambda: files.waiting)
        partitions = copies.nodes[new].broker.services.partitions
        assert await outcome(client, targets(None)) == ("NONE", "")
        assert (copies.image().replicas, copies.image().adding) == ((first,), ())
        files.gate.set()
        await until(lambda: partitions.replica(TOPIC, 0) is None)
        assert copies.nodes[new].broker.directory.partitions() == []
        await until(copies.is_led)
        assert (await client.produce(TOPIC, batch(b"10"))).error_code == ErrorCode.NONE
        assert await outcome(client, targets([first, new])) == ("NONE", "")
        await until(lambda: copies.image().isr == (first, new))
        assert contents(copies.replica(new)) == contents(copies.replica(first))
