"""Brokers that copy partitions from each other: what followers fetch, keep, and cut off."""

import asyncio
import inspect
import sys
from collections import Counter
from typing import Any

import pytest

from penstock.broker.cluster import replicator
from penstock.broker.partitions.partition import Partition
from penstock.protocol import compression, records
from penstock.protocol.compression import Codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.fetch import FetchRequest
from tests.broker.copies import TOPIC, Copies, batches, contents, copying
from tests.broker.harness import GatedFiles, batch, in_loop, produce_request, produced, until

SESSION = 0.5
"""Long enough for a loop that is busy, short enough to wait for."""


@in_loop
async def test_acks_all_is_answered_when_all_replicas_have_the_records_and_their_logs_are_equal() -> None:
    async with copying() as copies:
        await copies.create(configs={"min.insync.replicas": "3"})
        client = await copies.client()
        for number in range(20):
            assert (await client.produce(TOPIC, batch(b"%d" % number))).base_offset == number
            assert {replica.log.flushed_offset for replica in copies.replicas()} == {number + 1}
        await copies.until_equal()
        await until(lambda: {replica.high_watermark for replica in copies.replicas()} == {20})


@in_loop
async def test_a_follower_fetches_on_only_after_its_flush() -> None:
    async with copying() as copies:
        await copies.create()
        slow = copies.followers()[0]
        files = copies.nodes[slow].files
        assert isinstance(files, GatedFiles)
        files.gate.clear()
        client = await copies.client()
        client.send(produce_request(TOPIC, batch(b"a")), 12)
        answer = asyncio.create_task(client.reply())
        await until(lambda: files.waiting and copies.replica(slow).log.end_offset == 1)
        other = copies.followers()[1]
        await until(lambda: copies.led().leader.followers[other].end_offset == 1)
        assert copies.led().leader.followers[slow].end_offset == 0
        assert copies.led().high_watermark == 0
        assert not answer.done()
        files.gate.set()
        assert produced(await answer).error_code == ErrorCode.NONE
        assert copies.led().leader.followers[slow].end_offset == 1


@in_loop
async def test_a_follower_that_was_away_catches_up_and_joins_the_in_sync_replicas() -> None:
    async with copying() as copies:
        await copies.create()
        away = copies.followers()[0]
        client = await copies.client()
        await client.produce(TOPIC, batch(b"before"))
        await copies.nodes[away].stop()
        await until(lambda: away not in copies.image().isr)
        for number in range(50):
            assert (await client.produce(TOPIC, batch(b"%d" % number))).error_code == ErrorCode.NONE
        await copies.start(away)
        await copies.until_equal()
        assert away in copies.image().isr
        assert copies.replica(away).log.flushed_offset == 51


@in_loop
async def test_what_a_leader_took_while_it_was_cut_off_is_cut_from_its_log_when_it_follows() -> None:
    async with copying(session_seconds=SESSION) as copies:
        await copies.create()
        old = copies.leader()
        client = await copies.client()
        await client.produce(TOPIC, batch(b"kept"))
        copies.cut(old, copies.followers())
        for _ in range(3):
            assert (await client.produce(TOPIC, batch(b"lost"), acks=1)).error_code == ErrorCode.NONE
        assert copies.replica(old).log.end_offset == 4
        copies.nodes[old].store.cut()
        assert await copies.elect_another() == old
        new = await copies.client()
        assert (await new.produce(TOPIC, batch(b"new"))).base_offset == 1
        copies.nodes[old].store.mend()
        copies.mend()
        await copies.until_equal()
        assert await new.values(TOPIC) == [b"kept", b"new"]
        assert len({epoch for _, epoch in batches(copies.replica(old))}) == 2
        # It may lead again, and no number has been given twice.
        assert (await new.produce(TOPIC, batch(b"newer"))).base_offset == 2


@in_loop
async def test_what_was_acknowledged_by_all_outlives_its_leader_and_a_retry_gets_the_first_offset() -> None:
    async with copying(session_seconds=SESSION) as copies:
        await copies.create()
        client = await copies.client()
        for sequence in range(3):
            sent = await client.produce(TOPIC, batch(b"%d" % sequence, producer=(5, 0, sequence)))
            assert sent.base_offset == sequence
        killed = copies.leader()
        await copies.nodes[killed].kill()
        assert await copies.elect_another() == killed
        client = await copies.client()
        for sequence in range(3):
            again = await client.produce(TOPIC, batch(b"%d" % sequence, producer=(5, 0, sequence)))
            assert (again.error_code, again.base_offset) == (ErrorCode.NONE, sequence)
        gap = await client.produce(TOPIC, batch(b"?", producer=(5, 0, 7)))
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (await client.produce(TOPIC, batch(b"3", producer=(5, 0, 3)))).base_offset == 3
        assert await client.values(TOPIC) == [b"0", b"1", b"2", b"3"]


@in_loop
async def test_a_killed_follower_comes_back_with_what_it_had_and_fetches_the_rest() -> None:
    async with copying() as copies:
        await copies.create()
        client = await copies.client()
        await client.produce(TOPIC, batch(b"before"))
        away = copies.followers()[1]
        await copies.nodes[away].kill()
        await copies.start(away)
        await client.produce(TOPIC, batch(b"after"))
        await copies.until_equal()
        assert batches(copies.replica(away))[0] == batches(copies.led())[0]


@in_loop
async def test_no_record_is_decoded_to_copy_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with copying() as copies:
        await copies.create()
        leader, followers = copies.leader(), copies.followers()
        copies.cut(leader, followers)
        client = await copies.client()
        for number, codec in enumerate(Codec):
            values = [b"%d" % number * 100] * 50
            sent = await client.produce(TOPIC, batch(*values, codec=codec, producer=(5, 0, 50 * number)), acks=1)
            assert sent.error_code == ErrorCode.NONE
        decoded = count_calls(monkeypatch, records.iterate, compression.decompress)
        copies.mend()
        await until(lambda: [copies.replica(number).log.end_offset for number in followers] == [50 * len(Codec)] * 2)
        await copies.until_equal()
        assert decoded == []


@in_loop
async def test_requests_name_only_partitions_whose_offset_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    async with copying() as copies:
        await copies.create(partitions=30)
        for index in range(30):
            await copies.until_equal(index)
        named = named_in_fetches(monkeypatch, copies)
        client = await copies.client()
        for number in range(5):
            assert (await client.produce(TOPIC, batch(b"%d" % number))).error_code == ErrorCode.NONE
        assert 0 < len(named) <= 2 * 5
        assert set(named) == {0}


@in_loop
async def test_a_request_names_a_bounded_number_of_partitions_and_those_that_follow_name_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with copying() as copies:
        await copies.create(partitions=30)
        for index in range(30):
            await copies.until_equal(index)
        follower = copies.nodes[copies.followers()[0]].broker
        fetching = follower._replicator._loops[copies.leader()]
        monkeypatch.setattr(replicator, "MOST_NAMED", 4)
        # After an error all partitions are named again.
        fetching._start_over()
        sizes, left = list[int](), len(fetching._followed)
        while fetching._changed:
            sizes.append(sum(len(topic.partitions) for topic in fetching._named()))
        assert max(sizes) == 4
        assert sum(sizes) == left


@in_loop
async def test_a_reply_about_many_partitions_leaves_turns_of_the_loop_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn, appends = 0, Counter[tuple[int, int]]()
    append = Partition.append_copied

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def counted(partition: Partition, data: memoryview, now_ms: int) -> None:
        # Each follower has a task of its own.
        appends[turn, id(asyncio.current_task())] += 1
        append(partition, data, now_ms)

    async with copying() as copies:
        await copies.create(partitions=30)
        monkeypatch.setattr(replicator, "ANSWERS_AT_ONCE", 1)
        monkeypatch.setattr(Partition, "append_copied", counted)
        client = await copies.client()
        async with asyncio.TaskGroup() as group:
            counting = group.create_task(count_turns())
            led = [index for index in range(30) if copies.leader(index) == copies.leader()]
            for index in led:
                client.send(produce_request(TOPIC, batch(b"a"), partition=index), 12)
            for _ in led:
                assert produced(await client.reply()).error_code == ErrorCode.NONE
            counting.cancel()
        assert appends.total() == 2 * len(led)
        assert max(appends.values()) == 1


@in_loop
async def test_a_damaged_copy_is_not_written_and_is_fetched_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with copying() as copies:
        await copies.create()
        follower = copies.followers()[0]
        partition = copies.replica(follower)
        append = partition.append_copied
        damaged: list[bytearray] = []

        def append_damaged(data: memoryview, now_ms: int) -> None:
            if not damaged:
                damaged.append(bytearray(data))
                damaged[0][-1] ^= 1
                data = memoryview(damaged[0])
            append(data, now_ms)

        monkeypatch.setattr(partition, "append_copied", append_damaged)
        client = await copies.client()
        assert (await client.produce(TOPIC, batch(b"a"))).error_code == ErrorCode.NONE
        assert damaged
        assert contents(partition) == contents(copies.led())
        assert "a copy could not be written" in caplog.text


@in_loop
async def test_after_a_fault_of_ours_the_other_partitions_are_copied_on_and_the_loop_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with copying() as copies:
        await copies.create()
        partition = copies.replica(copies.followers()[0])
        append = partition.append_copied
        failures: list[RuntimeError] = []

        def fail_once(data: memoryview, now_ms: int) -> None:
            if not failures:
                failures.append(RuntimeError("a fault"))
                raise failures[0]
            append(data, now_ms)

        monkeypatch.setattr(partition, "append_copied", fail_once)
        client = await copies.client()
        assert (await client.produce(TOPIC, batch(b"a"))).error_code == ErrorCode.NONE
        assert failures
        assert "replication has failed" in caplog.text


@in_loop
async def test_records_deleted_by_the_leader_are_deleted_by_followers() -> None:
    async with copying() as copies:
        await copies.create()
        client = await copies.client()
        for number in range(10):
            await client.produce(TOPIC, batch(b"%d" % number))
        copies.led().delete_before(5)
        await client.produce(TOPIC, batch(b"10"))
        await until(lambda: {replica.log.start_offset for replica in copies.replicas()} == {5})


@in_loop
async def test_a_follower_whose_records_were_all_deleted_meanwhile_begins_where_the_leaders_log_does() -> None:
    async with copying(configs={"replica.lag.time.max.ms": "600"}) as copies:
        await copies.create()
        client = await copies.client()
        await client.produce(TOPIC, batch(b"old"))
        away = copies.followers()[0]
        await copies.nodes[away].stop()
        for number in range(10):
            await client.produce(TOPIC, batch(b"%d" % number))
        copies.led().delete_before(8)
        await copies.start(away)
        await copies.until_equal()
        assert copies.replica(away).log.start_offset == 8


@in_loop
async def test_a_topic_that_is_deleted_is_gone_from_all_and_its_name_can_be_copied_again() -> None:
    async with copying() as copies:
        await copies.create()
        client = await copies.client()
        await client.produce(TOPIC, batch(b"a"))
        controlling = copies.nodes[0].broker.services.controlling
        await controlling.change(lambda controller: controller.delete_topic(TOPIC))
        await until(lambda: all(not node.broker.services.partitions.replicas() for node in copies.nodes))
        await copies.create()
        client = await copies.client()
        assert (await client.produce(TOPIC, batch(b"b"))).base_offset == 0
        await copies.until_equal()


def named_in_fetches(monkeypatch: pytest.MonkeyPatch, copies: Copies) -> list[int]:
    """The partitions that fetches to the leader of partition 0 name from now on."""
    named: list[int] = []
    for node in copies.nodes:
        peers = node.broker.services.peers
        request = peers.request

        async def noted(broker_id: int, message: Any, *, request: Any = request, **options: Any) -> Any:
            if isinstance(message, FetchRequest) and broker_id == copies.leader():
                named.extend(each.partition for topic in message.topics for each in topic.partitions)
            return await request(broker_id, message, **options)

        monkeypatch.setattr(peers, "request", noted)
    return named


def count_calls(monkeypatch: pytest.MonkeyPatch, *functions: Any) -> list[str]:
    """The names of functions that are called from now on, by whichever module of ours."""
    called: list[str] = []
    for function in functions:

        def counted(*args: Any, function: Any = function, **named: Any) -> Any:
            called.append(function.__name__)
            return function(*args, **named)

        for module in [module for name, module in sys.modules.items() if name.startswith("penstock.")]:
            for name, value in inspect.getmembers(module):
                if value is function:
                    monkeypatch.setattr(module, name, counted)
    return called


@in_loop
async def test_a_leader_that_takes_fetches_and_says_nothing_is_given_up_and_asked_again_on_another_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replicator, "PATIENCE_SECONDS", 0.1)
    async with copying() as copies:
        await copies.create()
        follower = copies.followers()[0]
        listener = copies.nodes[copies.leader()].broker.listener
        dispatch, unanswered = listener.dispatch, set()

        def swallow(call: Any) -> None:
            if call.api.name == "Fetch" and call.connection.broker.node_id == follower:
                unanswered.add(call.connection)
            else:
                dispatch(call)

        listener.dispatch = swallow
        await until(lambda: len(unanswered) == 3)
        listener.dispatch = dispatch
        await (await copies.client()).produce(TOPIC, batch(b"a"))
        await copies.until_equal()
