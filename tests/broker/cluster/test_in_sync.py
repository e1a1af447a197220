"""Who is in sync: followers that lag leave, those that catch up join, and acks=all goes by it."""

import asyncio
from typing import Any

import pytest

from penstock.broker.cluster import in_sync
from penstock.broker.partitions import registry
from penstock.machines.cluster_records import PartitionImage
from penstock.protocol.error_codes import ErrorCode
from tests.broker.copies import TOPIC, Copies, copying
from tests.broker.harness import FOLDER, batch, in_loop, produce_request, produced, until

LAG = {"replica.lag.time.max.ms": "600"}
SESSION = 0.5


@in_loop
async def test_a_follower_that_stops_fetching_leaves_after_the_lag_time_and_acks_all_goes_on() -> None:
    async with copying(configs=LAG) as copies:
        await copies.create()
        client = await copies.client()
        lost = copies.followers()[0]
        copies.cut(copies.leader(), [lost])
        assert (await client.produce(TOPIC, batch(b"a"))).error_code == ErrorCode.NONE
        assert lost not in copies.image().isr
        assert copies.led().high_watermark == 1
        copies.mend()
        await copies.until_equal()


@in_loop
async def test_a_follower_that_has_everything_stays_in_sync_however_long_nothing_happens() -> None:
    async with copying(configs=LAG) as copies:
        await copies.create()
        await (await copies.client()).produce(TOPIC, batch(b"a"))
        await copies.until_equal()
        in_sync_here = copies.nodes[copies.leader()].broker._in_sync
        await until(lambda: not in_sync_here._behind)
        leader = copies.led().leader
        copies.cut(copies.leader(), copies.followers())
        later = max(progress.caught_up_ms for progress in leader.followers.values()) + 3_600_000
        assert leader.lagging(later, copies.led().log.end_offset) == []


@in_loop
async def test_below_the_minimum_nothing_is_committed_and_acks_all_is_refused_until_enough_are_back() -> None:
    async with copying(configs=LAG) as copies:
        await copies.create(configs={"min.insync.replicas": "3"})
        client = await copies.client()
        assert (await client.produce(TOPIC, batch(b"seen"))).error_code == ErrorCode.NONE
        lost = copies.followers()[0]
        copies.cut(copies.leader(), [lost])
        waiting = await copies.client()
        # It waits when the follower leaves.
        sent = await waiting.produce(TOPIC, batch(b"written"))
        assert sent.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert (await client.produce(TOPIC, batch(b"x"))).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await client.produce(TOPIC, batch(b"by one"), acks=1)).error_code == ErrorCode.NONE
        assert copies.image().elr == (lost,)
        other = copies.followers()[1]
        await until(lambda: copies.led().leader.followers[other].end_offset == 3)
        assert copies.led().high_watermark == 1
        assert await client.values(TOPIC) == [b"seen"]
        copies.mend()
        await copies.until_equal()
        assert await client.values(TOPIC) == [b"seen", b"written", b"by one"]
        assert copies.image().elr == ()
        assert (await client.produce(TOPIC, batch(b"y"))).error_code == ErrorCode.NONE


@in_loop
async def test_with_fewer_needed_what_was_held_back_is_committed() -> None:
    async with copying(configs=LAG) as copies:
        await copies.create(configs={"min.insync.replicas": "3"})
        client = await copies.client()
        copies.cut(copies.leader(), [copies.followers()[0]])
        sent = await client.produce(TOPIC, batch(b"held"))
        assert sent.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert await client.values(TOPIC) == []
        controlling = copies.nodes[0].broker.services.controlling
        await controlling.change(
            lambda controller: controller.replace_configs("topic", TOPIC, [("min.insync.replicas", "2")])
        )
        await until(lambda: copies.led().high_watermark == 1)
        assert await client.values(TOPIC) == [b"held"]
        assert (await client.produce(TOPIC, batch(b"more"))).error_code == ErrorCode.NONE


@in_loop
async def test_a_follower_that_the_controller_takes_for_dead_does_not_fill_the_metadata_log() -> None:
    async with copying(session_seconds=SESSION) as copies:
        await copies.create()
        client = await copies.client()
        fenced = copies.followers()[0] or copies.followers()[1]
        copies.nodes[fenced].store.cut()
        await until(lambda: fenced not in copies.image().isr)
        # It goes on fetching, and would be in sync if it were alive.
        assert (await client.produce(TOPIC, batch(b"a"))).error_code == ErrorCode.NONE
        await until(lambda: copies.replica(fenced).log.end_offset == 1)
        cluster = copies.nodes[0].broker.services.cluster
        before = cluster.index
        end = asyncio.get_running_loop().time() + 3 * in_sync.LOOK_SECONDS
        await until(lambda: asyncio.get_running_loop().time() > end)
        assert cluster.index - before <= 8
        copies.nodes[fenced].store.mend()
        await copies.until_equal()


@in_loop
async def test_a_follower_that_had_everything_does_not_lag_after_a_silence_while_another_one_is_away() -> None:
    async with copying(configs=LAG) as copies:
        await copies.create()
        client = await copies.client()
        away, other = copies.followers()
        copies.cut(copies.leader(), [away])
        assert (await client.produce(TOPIC, batch(b"a"))).error_code == ErrorCode.NONE
        assert away not in copies.image().isr
        here, led = copies.nodes[copies.leader()].broker._in_sync, copies.led()
        await here.close()
        assert led in here._behind
        # Nothing is written for longer than a follower may lag.
        await until(lambda: here._now_ms() > led.leader.followers[other].caught_up_ms + 600)
        copies.cut(copies.leader(), [other])
        assert (await client.produce(TOPIC, batch(b"b"), acks=1)).error_code == ErrorCode.NONE
        assert led.leader.followers[other].end_offset < led.log.end_offset
        assert led.leader.lagging(here._now_ms(), led.log.end_offset) == []
        # It lags once it lacks that for so long.
        await until(lambda: led.leader.lagging(here._now_ms(), led.log.end_offset) == [other])


@in_loop
async def test_a_look_at_many_partitions_leaves_turns_of_the_loop_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async with copying(configs=LAG) as copies:
        await copies.create(partitions=6, copies=2)
        here = copies.nodes[copies.leader()].broker._in_sync
        await here.close()
        for index in range(6):
            if copies.leader(index) == copies.leader():
                here._due[copies.led(index)] = None
        count = len(here._due)
        assert count > 1
        monkeypatch.setattr(in_sync, "LOOKS_AT_ONCE", 1)
        looking, turns = asyncio.ensure_future(here._proposals()), 0
        while not looking.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > count


@in_loop
async def test_between_two_looks_at_all_only_partitions_with_something_to_propose_are_looked_at() -> None:
    async with copying(configs=LAG) as copies:
        await copies.create(partitions=9)
        client = await copies.client()
        back = copies.followers()[0]
        led = [index for index in range(9) if copies.leader(index) == copies.leader()]
        copies.cut(copies.leader(), [back])
        assert (await client.produce(TOPIC, batch(b"a"))).error_code == ErrorCode.NONE
        assert back not in copies.image().isr
        here = copies.nodes[copies.leader()].broker._in_sync
        await here.close()
        for index in led:
            here.look_at(copies.led(index))
        here._due.clear()
        copies.mend()
        await until(lambda: bool(here._due))
        before = here._meter.looks
        [(partition, _, proposal)] = await here._proposals()
        assert (partition, proposal.brokers) == (copies.led(), frozenset({0, 1, 2}))
        assert here._meter.looks == before + 1 < before + len(here._behind)
        await here._propose([(partition, partition.leader, proposal)])
        here.start()
        await copies.until_equal()


SMALL_SEGMENTS = {"internal.segment.bytes": "200"}
NO_SCRUBBING = {"penstock.scrub.bytes.per.second": "0"}


def flip_a_bit(copies: Copies, number: int) -> None:
    """In a closed segment of a broker's copy, on its disk."""
    segment = copies.replica(number).log.segments[1]
    copies.nodes[number].memory.flip_bit(segment.path, segment.size - 1, 0)


async def scrub(copies: Copies, number: int) -> None:
    while await copies.nodes[number].broker.upkeep.scrubbing.scrub() is not None:
        pass


@in_loop
@pytest.mark.parametrize("leads", [False, True])
async def test_a_copy_that_is_found_damaged_is_given_up_and_made_again(leads: bool) -> None:
    async with copying(configs=NO_SCRUBBING) as copies:
        await copies.create(configs=SMALL_SEGMENTS)
        client = await copies.client()
        for number in range(6):
            await client.produce(TOPIC, batch(b"%d" % number * 60))
        await copies.until_equal()
        damaged = copies.leader() if leads else copies.followers()[0]
        epoch, replica = copies.image().leader_epoch, copies.replica(damaged)
        flip_a_bit(copies, damaged)
        await scrub(copies, damaged)
        await until(lambda: copies.image().leader_epoch == epoch + 1 and copies.leader() != damaged)
        await copies.until_equal()
        assert copies.replica(damaged) is not replica
        assert copies.replica(damaged).log.end_offset == 6
        folders = copies.nodes[damaged].files.list(f"{FOLDER}/logs")
        assert any(name.startswith(f"{TOPIC}-0") and name.endswith("stray") for name in folders)
        reader = await copies.client()
        assert await reader.values(TOPIC) == [b"%d" % number * 60 for number in range(6)]
        assert (await reader.produce(TOPIC, batch(b"more"))).error_code == ErrorCode.NONE


@in_loop
async def test_a_disk_that_changes_whatever_it_is_given_is_not_filled_with_logs_that_were_set_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "MOST_COPIES_AGAIN", 1)
    async with copying(configs=NO_SCRUBBING) as copies:
        await copies.create(configs=SMALL_SEGMENTS)
        client = await copies.client()
        for number in range(6):
            await client.produce(TOPIC, batch(b"%d" % number * 60))
        await copies.until_equal()
        damaged = copies.followers()[0]
        before = copies.replica(damaged)
        flip_a_bit(copies, damaged)
        await scrub(copies, damaged)
        await until(lambda: copies.replica(damaged) is not before)
        await copies.until_equal()
        partitions = copies.nodes[damaged].broker.services.partitions
        asked: list[bytes] = []
        partitions.give_up = lambda topic_id, _: asked.append(topic_id)
        partitions._asked_to_give_up.clear()
        flip_a_bit(copies, damaged)
        await scrub(copies, damaged)
        assert asked == []


@in_loop
async def test_a_damaged_copy_that_is_needed_stays_until_others_are_in_sync() -> None:
    async with copying(configs={**LAG, **NO_SCRUBBING}) as copies:
        await copies.create(configs=SMALL_SEGMENTS)
        client = await copies.client()
        away, damaged = copies.followers()
        copies.cut(copies.leader(), [away])
        copies.cut(damaged, [away])
        for number in range(6):
            await client.produce(TOPIC, batch(b"%d" % number * 60))
        assert away not in copies.image().isr
        replica, partitions = copies.replica(damaged), copies.nodes[damaged].broker.services.partitions
        asked: list[int] = []
        give_up = partitions.give_up
        assert give_up is not None

        def ask(topic_id: bytes, state: PartitionImage) -> None:
            asked.append(len(state.isr))
            give_up(topic_id, state)

        partitions.give_up = ask
        flip_a_bit(copies, damaged)
        await scrub(copies, damaged)
        copies.mend()
        await until(lambda: len(copies.image().isr) == 3)
        assert copies.replica(damaged) is replica
        partitions._asked_to_give_up.clear()
        await scrub(copies, damaged)
        await until(lambda: copies.replica(damaged) is not replica)
        await copies.until_equal()
        assert asked == [2, 3]


@in_loop
async def test_a_proposal_whose_outcome_is_unknown_is_made_again_until_there_is_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with copying(configs=LAG) as copies:
        await copies.create()
        client = await copies.client()
        here = copies.nodes[copies.leader()].broker._in_sync
        ask, asked = here._ask, []

        async def lose(request: Any, *, timeout: float) -> Any:
            asked.append(request)
            if len(asked) <= 2:
                raise OSError("an error that nothing expects")
            return await ask(request, timeout=timeout)

        monkeypatch.setattr(here, "_ask", lose)
        copies.cut(copies.leader(), [copies.followers()[0]])
        client.send(produce_request(TOPIC, batch(b"a")), 12)
        assert produced(await client.reply()).error_code == ErrorCode.NONE
        assert len(copies.image().isr) == 2
        assert len(asked) == 3
        assert asked[0] == asked[1] == asked[2]


@in_loop
async def test_a_controller_that_takes_proposals_and_says_nothing_is_asked_again_on_another_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_sync, "TIMEOUT_SECONDS", 0.3)
    async with copying(configs=LAG) as copies:
        await copies.create(partitions=2)
        index = next(index for index in range(2) if copies.leader(index) != 0)
        listener = copies.nodes[0].broker.listener
        dispatch, unanswered = listener.dispatch, set()

        def swallow(call: Any) -> None:
            if call.api.name == "Envelope":
                unanswered.add(call.connection)
            else:
                dispatch(call)

        listener.dispatch = swallow
        copies.cut(copies.leader(index), [number for number in copies.followers(index) if number != 0])
        client = await copies.client(copies.leader(index))
        client.send(produce_request(TOPIC, batch(b"a"), partition=index), 12)
        await until(lambda: len(unanswered) == 3)
        listener.dispatch = dispatch
        assert produced(await client.reply()).error_code == ErrorCode.NONE
        assert len(copies.image(index).isr) == 2
