"""Penstock's own consumer in groups, alone and among other people's clients, while messages keep coming: every message
is processed, once unless somebody was killed before the commit."""

import signal
from collections.abc import Coroutine
from typing import Any, Final

import pytest

from tests.clients.group_stage import SESSION_MS, SHORT_SESSION_MS, GroupStage
from tests.clients.matrix import ALONE, CLUSTER
from tools.clients.clients import GROUP_CLIENTS, OWN_GROUP_CLIENT
from tools.clients.member_assignors import BY_WEIGHT

OTHERS: Final = {client.name: client for client in GROUP_CLIENTS}


def run(groups: GroupStage, scenario: Coroutine[Any, Any, int]) -> int:
    return groups.run(scenario)


@pytest.mark.parametrize(
    ("assignor", "where"), [*((name, ALONE) for name in OWN_GROUP_CLIENT.assignors), ("cooperative-sticky", CLUSTER)]
)
def test_members_share_a_topic_and_take_over_from_one_that_leaves(
    groups: GroupStage, assignor: str, where: str
) -> None:
    async def scenario() -> int:
        async with groups.group(partitions=7) as group:
            first, *others = await group.join(OWN_GROUP_CLIENT, 3, assignor=assignor)
            assert (await group.balanced()).protocol == assignor
            assert sorted(len(member.owns) for member in group.members) == [2, 2, 3]
            await group.progress()
            await group.leave(first)
            await group.balanced(others)
            await group.progress()
            await group.join(OWN_GROUP_CLIENT, assignor=assignor)
            await group.balanced()
            return await group.finish()

    assert run(groups, scenario()) == 0


@pytest.mark.parametrize(
    ("assignor", "names"),
    [
        ("range", ["confluent-kafka", "kafka-python", "aiokafka"]),
        ("cooperative-sticky", ["confluent-kafka", "kafka-python", "java"]),
        (BY_WEIGHT, ["kafka-python", "aiokafka"]),
    ],
)
def test_members_of_other_clients_agree_with_ours_whoever_leads(
    groups: GroupStage, assignor: str, names: list[str]
) -> None:
    clients = [OWN_GROUP_CLIENT, *(OTHERS[name] for name in names)]

    async def scenario() -> int:
        async with groups.group(partitions=3 * len(clients)) as group:
            for client in clients:
                await group.join(client, assignor=assignor)
            # Each of them is the oldest once, and that is the leader, who decides.
            for client in clients:
                assert (await group.balanced()).protocol == assignor
                present = [member for member in group.members if not member.has_left]
                assert [len(member.owns) for member in present] == [3] * len(clients)
                await group.progress()
                await group.leave(present[0])
                await group.join(client, assignor=assignor)
            await group.balanced()
            return await group.finish()

    assert run(groups, scenario()) == 0


def test_what_a_killed_member_did_not_commit_is_processed_again_by_others(groups: GroupStage) -> None:
    async def scenario() -> int:
        async with groups.group(partitions=5) as group:
            others = await group.join(OWN_GROUP_CLIENT, 2)
            victim = await group.join_victim(OWN_GROUP_CLIENT, session_ms=SHORT_SESSION_MS)
            await group.balanced()
            await group.progress()
            await victim.hold()
            await group.until(lambda: victim.is_held, "it has something to commit")
            await victim.host.kill()
            await group.balanced(others)
            duplicates = await group.finish()
            assert duplicates == len(victim.uncommitted) > 0
            return duplicates

    run(groups, scenario())


@pytest.mark.parametrize("is_long", [False, True], ids=["within its session", "longer"])
def test_a_member_that_was_stopped_goes_on_within_its_session_and_is_refused_after_it(
    groups: GroupStage, is_long: bool
) -> None:
    async def scenario() -> int:
        async with groups.group(partitions=6) as group:
            others = await group.join(OWN_GROUP_CLIENT, 2)
            victim = await group.join_victim(OWN_GROUP_CLIENT, session_ms=SHORT_SESSION_MS if is_long else SESSION_MS)
            await group.balanced()
            generation = await group.generation()
            await victim.hold()
            await group.until(lambda: victim.is_held, "it has something to commit")
            victim.host.freeze()
            if is_long:
                await group.balanced(others)
                await group.until(
                    lambda: {*victim.uncommitted} <= {place for other in others for place in other.processed},
                    "others have processed what it had",
                )
            else:
                await group.progress()
            victim.host.thaw()
            await victim.release()
            await group.until(lambda: not victim.uncommitted, "its commit is answered")
            assert bool(victim.refusals) == is_long
            await group.balanced()
            assert (await group.generation() > generation) == is_long
            await group.progress()
            duplicates = await group.finish()
            assert duplicates == len(victim.given_up)
            return duplicates

    assert (run(groups, scenario()) > 0) == is_long


def test_a_static_member_comes_back_without_a_rebalance_and_a_second_one_fences_the_first(groups: GroupStage) -> None:
    async def scenario() -> int:
        async with groups.group(partitions=4) as group:
            [other] = await group.join(OWN_GROUP_CLIENT, instances=["other"])
            first = await group.join_victim(OWN_GROUP_CLIENT, session_ms=SESSION_MS, instance="one")
            await group.balanced()
            generation, assignments, owned = await group.generation(), other.assignments, first.owns
            await first.host.kill()
            [second] = await group.join(OWN_GROUP_CLIENT, instances=["one"])
            await group.balanced([other, second])
            assert second.owns == owned
            await group.leave(second)
            third = await group.join_victim(OWN_GROUP_CLIENT, session_ms=SESSION_MS, instance="one")
            await group.balanced([other, third])
            await group.progress()
            assert third.owns == owned
            [fourth] = await group.join(OWN_GROUP_CLIENT, instances=["one"])
            await group.until(lambda: third.failure is not None, "it is fenced")
            assert "fence" in (third.failure or "").lower(), third.failure
            await group.balanced([other, fourth])
            assert fourth.owns == owned
            assert (await group.generation(), other.assignments) == (generation, assignments)
            return await group.finish()

    run(groups, scenario())


def test_partitions_that_are_added_find_owners(groups: GroupStage) -> None:
    async def scenario() -> int:
        async with groups.group(partitions=4) as group:
            await group.join(OWN_GROUP_CLIENT, 3)
            await group.balanced()
            await group.progress()
            await group.add_partitions(9)
            await group.balanced()
            await group.progress()
            return await group.finish()

    assert run(groups, scenario()) == 0


@pytest.mark.parametrize(
    ("how", "assignor", "where"),
    [
        ("SIGKILL", "range", ALONE),
        ("SIGTERM", "range", ALONE),
        ("SIGKILL", "cooperative-sticky", ALONE),
        ("SIGTERM", "cooperative-sticky", ALONE),
        ("SIGKILL", "cooperative-sticky", CLUSTER),
    ],
)
def test_members_go_on_when_the_broker_comes_back(groups: GroupStage, how: str, assignor: str, where: str) -> None:
    async def scenario() -> int:
        async with groups.group(partitions=6) as group:
            await group.join(OWN_GROUP_CLIENT, 3, assignor=assignor)
            await group.balanced()
            await group.progress()
            await groups.restart_coordinator(group.name, signal.Signals[how])
            await group.progress()
            await group.balanced()
            return await group.finish()

    assert run(groups, scenario()) == 0
