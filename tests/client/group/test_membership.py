"""Members of a group: sharing, assignors, names that last, signs of life."""

import asyncio
from typing import Any

import pytest

from penstock.client.consumer.consumer import Consumer
from penstock.client.errors import (
    BrokerError,
    ClientError,
    CommitFailedError,
)
from penstock.client.group.membership import State
from penstock.client.settings import SettingsError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from penstock.testing import Broker
from tests.client.consuming import Stage, balanced, places, polling_until, read
from tests.client.peer import SILENCE, Peer, peer
from tests.client.virtual_time import in_virtual_time
from tests.waiting import in_loop, until


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
@in_loop
async def test_members_share_and_nothing_is_read_twice(broker: Broker, assignor: str) -> None:
    stage = Stage(broker, partitions=6)
    await stage.fill(100)
    async with stage.consumer(assignors=[assignor]) as one, stage.consumer(assignors=[assignor]) as two:
        messages = await balanced(stage, one, two)
        async with stage.consumer(assignors=[assignor]) as three:
            messages += await balanced(stage, one, two, three)
            await stage.fill(100)
            messages += await three.poll()
        messages += await balanced(stage, one, two)
        while len(messages) < 1200:
            messages += await one.poll(timeout_ms=20) + await two.poll(timeout_ms=20)
    assert sorted(places(messages)) == [(number, offset) for number in range(6) for offset in range(200)]
    assert (await stage.describe()).state == "Empty"


@in_loop
async def test_partitions_change_hands_only_while_the_application_polls(broker: Broker) -> None:
    """What it has in its hands then is done with, so that a planned rebalance makes no duplicates."""
    stage = Stage(broker, partitions=2)
    await stage.fill(10)
    async with stage.consumer() as one:
        taken = await read(one, 20)
        async with stage.consumer() as two:
            waiting = asyncio.create_task(two.poll(timeout_ms=None))
            with broker.faults.delay_replies(0, "Heartbeat") as beats:
                await until(lambda: beats.struck >= 3)
            assert len(one.assignment) == 2
            await polling_until(lambda: len(one.assignment) == 1 and two.assignment, one)
            await stage.fill(1)
            taken += await read(one, 1)
            taken += await waiting
    assert sorted(places(taken)) == [(number, offset) for number in range(2) for offset in range(11)]


@in_loop
async def test_heartbeats_that_tell_of_a_rebalance_again_and_again_lead_to_one_join(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    async with stage.consumer() as one:
        await balanced(stage, one)
        async with stage.consumer() as two:
            waiting = asyncio.create_task(two.poll(timeout_ms=None))
            with broker.faults.delay_replies(0, "Heartbeat") as beats:
                # The application is busy.
                await until(lambda: beats.struck >= 5)
                await polling_until(lambda: len(one.assignment) == 1 and two.assignment, one)
                told = beats.struck
                await polling_until(lambda: beats.struck >= told + 5, one)
            assert [one.stats().rebalances, two.stats().rebalances] == [2, 1]
            await stage.fill(1)
            await waiting


class Backwards:
    """Gives everything to the member that joined with the last id."""

    name = "backwards"

    def assign(self, members: Any, partitions: Any) -> dict[str, list[tuple[str, int]]]:
        return {max(members): [(topic, number) for topic, count in partitions.items() for number in range(count)]}


@in_loop
async def test_an_assignor_may_be_the_users_own(broker: Broker) -> None:
    stage = Stage(broker, partitions=3)
    async with stage.consumer(assignors=[Backwards()]) as one, stage.consumer(assignors=[Backwards()]) as two:

        def is_settled() -> bool:
            return sorted([len(one.assignment), len(two.assignment)]) == [0, 3]

        await polling_until(is_settled, one, two)
        # With one of them it looks settled too, and then the other one joins.
        while (described := await stage.describe()).state != "Stable" or len(described.members) < 2:
            await asyncio.gather(one.poll(timeout_ms=50), two.poll(timeout_ms=50))
        assert described.protocol == "backwards"
        await polling_until(is_settled, one, two)
    with pytest.raises(SettingsError, match="there is no assignor 'sideways': use range"):
        stage.consumer(assignors=["sideways"])


class Wrong:
    name = "wrong"

    def assign(self, members: Any, partitions: Any) -> dict[str, list[tuple[str, int]]]:
        return {member: [(topic, 99) for topic in partitions] for member in members}


@in_loop
async def test_an_assignor_that_is_wrong_is_an_error_of_the_poll(broker: Broker) -> None:
    stage = Stage(broker)
    async with stage.consumer(assignors=[Wrong()]) as consumer:
        with pytest.raises(ClientError, match=r"assignor 'wrong' gives away topic-\d+-99, which does not exist"):
            await polling_until(lambda: False, consumer)


@in_loop
async def test_members_without_a_common_assignor_are_told(broker: Broker) -> None:
    stage = Stage(broker)
    async with stage.consumer(assignors=["range"]) as one:
        await balanced(stage, one)
        # Not before: it could be the first to join.
        async with stage.consumer(assignors=["roundrobin"]) as two:
            with pytest.raises(BrokerError, match="have no assignor in common") as caught:
                await polling_until(lambda: False, two)
        assert caught.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@in_loop
async def test_a_static_member_keeps_its_partitions_over_a_restart(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    events: list[object] = []
    async with stage.consumer(group_instance_id="other") as other:
        async with stage.consumer(group_instance_id="one") as one:
            await balanced(stage, one, other)
            owned = one.assignment
            other.subscribe(stage.topic, on_assigned=events.append)
            await polling_until(lambda: events, other, one)
            events.clear()
        async with stage.consumer(group_instance_id="one") as again:
            await polling_until(lambda: again.assignment == owned, again, other)
    assert events == []


@in_loop
async def test_of_two_with_one_instance_id_the_first_is_fenced_for_good(broker: Broker) -> None:
    stage = Stage(broker)
    async with stage.consumer(group_instance_id="one") as first:
        await balanced(stage, first)
        async with stage.consumer(group_instance_id="one") as second:
            await polling_until(lambda: second.assignment, second)
            for _ in range(2):
                with pytest.raises(BrokerError, match=r"another member has joined with the same group\.instance\.id"):
                    await polling_until(lambda: False, first)
            assert first.assignment == set()


@in_loop
async def test_heartbeats_go_on_while_the_application_works(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(1)
    async with stage.consumer(session_timeout_ms=1_500, heartbeat_interval_ms=20) as consumer:
        await consumer.poll()
        with broker.faults.delay_replies(0, "Heartbeat") as beats:
            await until(lambda: beats.struck >= 100)
        await consumer.commit()


@in_loop
async def test_who_does_not_poll_for_too_long_gives_its_partitions_back_and_gets_some_again(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await stage.fill(5)
    lost: list[object] = []
    async with stage.consumer(max_poll_interval_ms=600) as slow, stage.consumer() as quick:
        slow.subscribe(stage.topic, on_lost=lost.append)
        messages = await balanced(stage, slow, quick)
        while len(messages) < 10:
            messages += await slow.poll(timeout_ms=20) + await quick.poll(timeout_ms=20)
        await polling_until(lambda: len(quick.assignment) == 2, quick)
        with pytest.raises(CommitFailedError):
            await slow.commit()
        await balanced(stage, slow, quick)
    assert len(lost) == 1


@in_loop
async def test_an_iteration_counts_as_polling_with_every_message(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(30)
    async with stage.consumer(max_poll_interval_ms=400, heartbeat_interval_ms=30) as consumer:
        with (
            broker.faults.delay_replies(0, "LeaveGroup") as leaves,
            broker.faults.delay_replies(0, "Heartbeat") as beats,
        ):
            async for message in consumer:
                beaten = beats.struck + 1
                while beats.struck < beaten:
                    await asyncio.sleep(0.001)
                if message.offset == 20:
                    break
            assert leaves.struck == 0


@in_loop
async def test_who_is_closed_in_the_middle_of_a_join_still_commits(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    strategy = {"partition_assignment_strategy": ["cooperative-sticky"], "auto_commit_interval_ms": 60_000}
    async with stage.consumer(**strategy) as consumer:
        parts = consumer._start()
        with broker.faults.delay_replies("200 ms", api="JoinGroup"):
            async with stage.consumer(**strategy) as other:
                await balanced(stage, consumer, other)
                await stage.fill(10)
                await read(consumer, 10)
                [mine] = consumer.assignment
            await until(lambda: parts._reader._state is State.JOINING)  # type: ignore[union-attr]
            await consumer.close()
    assert (await stage.committed())[mine.partition] == 10


# A coordinator that never comes to an end, against a clock that only waiting moves

MOST_JOINS = 1_000
"""From so many on it is silent: a member that does not pause would never let the clock go on."""


def coordinate(broker: Peer, *, join: ErrorCode = ErrorCode.NONE, sync: ErrorCode = ErrorCode.NONE) -> None:
    def joined(request: JoinGroupRequest) -> object:
        if len(broker.requests(JoinGroupRequest)) > MOST_JOINS:
            return SILENCE
        member = request.member_id or "me"
        return JoinGroupResponse(
            error_code=join, generation_id=1, protocol_name="range", leader="other", member_id=member
        )

    def found(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        keys = request.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[Coordinator(key=key, node_id=0, host="127.0.0.1", port=broker.port) for key in keys]
        )

    broker.answers |= {
        FindCoordinatorRequest: found,
        JoinGroupRequest: joined,
        SyncGroupRequest: lambda _: SyncGroupResponse(error_code=sync),
        HeartbeatRequest: lambda _: HeartbeatResponse(),
        LeaveGroupRequest: lambda _: LeaveGroupResponse(),
    }


@pytest.mark.parametrize(
    ("join", "sync"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NONE),
        (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE),
        (ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION),
        (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NONE),
    ],
)
@in_virtual_time
async def test_between_joins_of_a_group_that_rebalances_for_ever_there_are_pauses(
    join: ErrorCode, sync: ErrorCode
) -> None:
    async with peer(orders=[0]) as broker:
        coordinate(broker, join=join, sync=sync)
        async with Consumer("orders", bootstrap_servers=broker.address, group_id="billing") as consumer:
            assert await consumer.poll(timeout_ms=20_000) == []
            assert 10 < len(broker.requests(JoinGroupRequest)) < 40
