"""Members of groups, of every client, while messages keep coming: each partition has one owner, and every message is
processed, once unless somebody was killed before the commit. SOAK_GROUPS=1 runs all scenarios with all clients."""

import signal
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final

import pytest

from tests.clients.group_stage import SESSION_MS, SHORT_SESSION_MS, GroupStage
from tests.clients.matrix import ALL, CLUSTER, GROUPS, MIXED, Cell, Scenario
from tools.clients.clients import GROUP_CLIENTS
from tools.clients.member_assignors import BY_WEIGHT

CLIENTS: Final = {client.name: client for client in GROUP_CLIENTS}
CONFLUENT_KAFKA, KAFKA_PYTHON, AIOKAFKA, KAFKAJS, JAVA = CLIENTS
STATIC: Final = tuple(client.name for client in GROUP_CLIENTS if client.has_static_members)
TELL = Callable[[str, object], None]


def cells(scenario: Scenario, *clients: str, usually: Collection[str] | None = None) -> list[Cell]:
    """One for each client; but `usually`, when time is short, only for some."""
    return [Cell(GROUPS, name, scenario.value) for name in clients if ALL or usually is None or name in usually]


def marked(scenario: Scenario, *clients: str, marks: Collection[str], usually: Collection[str] = ()) -> list[Cell]:
    """The same, with a cell for each mark."""
    found = [Cell(GROUPS, name, scenario.value, mark) for name in clients for mark in marks]
    return [cell for cell in found if ALL or f"{cell.client} {cell.mark}" in usually]


def on_both(found: list[Cell]) -> list[Cell]:
    """Cells that run against one broker and against a cluster."""
    return found + [cell._replace(where=CLUSTER) for cell in found]


@pytest.mark.parametrize("cell", on_both(cells(Scenario.SHARE, *CLIENTS, MIXED)), ids=str)
def test_members_share_a_topic_and_take_over_from_one_that_leaves(
    groups: GroupStage, cell: Cell, record_property: TELL
) -> None:
    clients = list(CLIENTS.values()) if cell.client == MIXED else [CLIENTS[cell.client]] * 3

    async def scenario() -> int:
        async with groups.group(partitions=2 * len(clients)) as group:
            first, *others = [member for client in clients for member in await group.join(client)]
            await group.balanced()
            assert [len(member.owns) for member in group.members] == [2] * len(clients)
            await group.progress()
            await group.leave(first)
            await group.balanced(others)
            await group.progress()
            await group.join(clients[0])
            await group.balanced()
            return await group.finish()

    assert account(groups, cell, scenario(), record_property) == 0


@pytest.mark.parametrize("cell", cells(Scenario.KILL, *CLIENTS), ids=str)
def test_what_a_killed_member_did_not_commit_is_processed_again_by_others(
    groups: GroupStage, cell: Cell, record_property: TELL
) -> None:
    client = CLIENTS[cell.client]

    async def scenario() -> int:
        async with groups.group(partitions=5) as group:
            others = await group.join(client, 2)
            victim = await group.join_victim(client, session_ms=SHORT_SESSION_MS)
            await group.balanced()
            await group.progress()
            await victim.hold()
            await group.until(lambda: victim.is_held, "it has something to commit")
            await victim.host.kill()
            await group.balanced(others)
            duplicates = await group.finish()
            assert duplicates == len(victim.uncommitted) > 0
            return duplicates

    account(groups, cell, scenario(), record_property)


@pytest.mark.parametrize("cell", cells(Scenario.MANY, *CLIENTS, MIXED, usually={CONFLUENT_KAFKA, MIXED}), ids=str)
def test_ten_members_share_thirty_partitions(groups: GroupStage, cell: Cell, record_property: TELL) -> None:
    shares = dict.fromkeys(CLIENTS, 2) if cell.client == MIXED else {cell.client: 10}

    async def scenario() -> int:
        async with groups.group(partitions=30) as group:
            for name, count in shares.items():
                await group.join(CLIENTS[name], count, apart=name == CONFLUENT_KAFKA)
            await group.balanced()
            assert [len(member.owns) for member in group.members] == [3] * 10
            await group.progress(by=1000)
            return await group.finish()

    assert account(groups, cell, scenario(), record_property) == 0


@pytest.mark.parametrize("cell", cells(Scenario.IDLE, *CLIENTS, usually={AIOKAFKA}), ids=str)
def test_of_twelve_members_on_eight_partitions_four_wait_until_others_leave(
    groups: GroupStage, cell: Cell, record_property: TELL
) -> None:
    async def scenario() -> int:
        async with groups.group(partitions=8) as group:
            await group.join(CLIENTS[cell.client], 12, apart=cell.client == CONFLUENT_KAFKA)
            await group.balanced()
            idle = [member for member in group.members if not member.owns]
            owners = [member for member in group.members if member.owns]
            assert (len(idle), len(owners)) == (4, 8)
            await group.progress()
            await group.leave(*owners[:4])
            await group.balanced()
            assert [len(member.owns) for member in [*idle, *owners[4:]]] == [1] * 8
            await group.progress()
            return await group.finish()

    assert account(groups, cell, scenario(), record_property) == 0


@pytest.mark.parametrize(
    "cell", cells(Scenario.STATIC, *STATIC, usually={CONFLUENT_KAFKA, KAFKA_PYTHON, JAVA}), ids=str
)
def test_a_static_member_comes_back_without_a_rebalance_and_a_second_one_fences_the_first(
    groups: GroupStage, cell: Cell, record_property: TELL
) -> None:
    client = CLIENTS[cell.client]

    async def scenario() -> int:
        async with groups.group(partitions=4) as group:
            [other] = await group.join(client, instances=["other"])
            first = await group.join_victim(client, session_ms=SESSION_MS, instance="one")
            await group.balanced()
            generation, assignments, owned = await group.generation(), other.assignments, first.owns

            await first.host.kill()
            [second] = await group.join(client, instances=["one"])
            await group.balanced([other, second])
            assert second.owns == owned
            await group.leave(second)
            third = await group.join_victim(client, session_ms=SESSION_MS, instance="one")
            await group.balanced([other, third])
            await group.progress()
            assert third.owns == owned
            assert (await group.generation(), other.assignments) == (generation, assignments)

            if not client.gives_way:
                return await group.finish()
            [fourth] = await group.join(client, instances=["one"])
            await group.until(lambda: third.failure is not None, "it is fenced")
            assert "fence" in (third.failure or "").lower(), third.failure
            await group.balanced([other, fourth])
            assert fourth.owns == owned
            assert (await group.generation(), other.assignments) == (generation, assignments)
            return await group.finish()

    account(groups, cell, scenario(), record_property)


@pytest.mark.parametrize(
    "cell",
    marked(Scenario.STOPPED, *CLIENTS, marks=["long", "short"], usually=["confluent-kafka long", "kafka-python short"]),
    ids=str,
)
def test_a_member_that_was_stopped_goes_on_within_its_session_and_is_refused_after_it(
    groups: GroupStage, cell: Cell, record_property: TELL
) -> None:
    client, is_long = CLIENTS[cell.client], cell.mark == "long"

    async def scenario() -> int:
        async with groups.group(partitions=6) as group:
            others = await group.join(client, 2)
            victim = await group.join_victim(client, session_ms=SHORT_SESSION_MS if is_long else SESSION_MS)
            await group.balanced()
            generation = await group.generation()
            await victim.hold()
            await group.until(lambda: victim.is_held, "it has something to commit")
            victim.host.freeze()
            if is_long:
                await group.balanced(others)
                # What was not committed is now others' work.
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

    duplicates = account(groups, cell, scenario(), record_property)
    assert (duplicates > 0) == is_long


@pytest.mark.parametrize("cell", cells(Scenario.PARTITIONS, *CLIENTS, MIXED, usually={KAFKAJS, JAVA}), ids=str)
def test_partitions_that_are_added_find_owners(groups: GroupStage, cell: Cell, record_property: TELL) -> None:
    clients = list(CLIENTS.values()) if cell.client == MIXED else [CLIENTS[cell.client]] * 3

    async def scenario() -> int:
        async with groups.group(partitions=4) as group:
            for client in clients:
                await group.join(client)
            await group.balanced()
            await group.progress()
            await group.add_partitions(9)
            await group.balanced()
            await group.progress()
            return await group.finish()

    assert account(groups, cell, scenario(), record_property) == 0


@pytest.mark.parametrize(
    "cell",
    [
        cell
        for client in GROUP_CLIENTS
        for cell in marked(
            Scenario.ASSIGNORS,
            client.name,
            marks=client.assignors,
            usually=["java cooperative-sticky", "kafka-python sticky", "confluent-kafka roundrobin"],
        )
    ],
    ids=str,
)
def test_members_agree_on_every_assignor_that_their_client_has(
    groups: GroupStage, cell: Cell, record_property: TELL
) -> None:
    client = CLIENTS[cell.client]

    async def scenario() -> int:
        async with groups.group(partitions=7) as group:
            first, *others = await group.join(client, 3, assignor=cell.mark)
            assert (await group.balanced()).protocol == cell.mark
            assert sorted(len(member.owns) for member in group.members) == [2, 2, 3]
            await group.progress()
            await group.leave(first)
            await group.balanced(others)
            await group.progress()
            return await group.finish()

    assert account(groups, cell, scenario(), record_property) == 0


@pytest.mark.parametrize("cell", [Cell(GROUPS, MIXED, Scenario.ASSIGNORS.value, BY_WEIGHT)], ids=str)
def test_an_assignor_of_the_users_works_across_clients_with_its_own_data(
    groups: GroupStage, cell: Cell, record_property: TELL
) -> None:
    weights = {KAFKA_PYTHON: 1, AIOKAFKA: 2, KAFKAJS: 3, JAVA: 4}

    async def scenario() -> int:
        async with groups.group(partitions=20) as group:
            for name, weight in weights.items():
                await group.join(CLIENTS[name], assignor=BY_WEIGHT, weight=weight)
            # Each of them may be the leader, who decides.
            while len(group.members) < 2 * len(weights):
                described = await group.balanced()
                assert described.protocol == BY_WEIGHT
                present = [member for member in group.members if not member.has_left]
                shares = {member.host.client.name: len(member.owns) for member in present}
                assert shares == {name: 2 * weight for name, weight in weights.items()}
                await group.progress()
                oldest = present[0]
                await group.leave(oldest)
                name = oldest.host.client.name
                await group.join(CLIENTS[name], assignor=BY_WEIGHT, weight=weights[name])
            await group.balanced()
            return await group.finish()

    assert account(groups, cell, scenario(), record_property) == 0


@pytest.mark.parametrize(
    "cell",
    [
        *marked(
            Scenario.RESTART, *CLIENTS, MIXED, marks=["SIGKILL", "SIGTERM"], usually=["mixed SIGKILL", "mixed SIGTERM"]
        ),
        Cell(GROUPS, MIXED, Scenario.RESTART.value, "SIGKILL", CLUSTER),
    ],
    ids=str,
)
def test_members_go_on_when_the_broker_comes_back(groups: GroupStage, cell: Cell, record_property: TELL) -> None:
    clients = list(CLIENTS.values()) if cell.client == MIXED else [CLIENTS[cell.client]] * 3

    async def scenario() -> int:
        async with groups.group(partitions=6) as group:
            for client in clients:
                await group.join(client)
            await group.balanced()
            await group.progress()
            await groups.restart_coordinator(group.name, signal.Signals[cell.mark])
            await group.progress()
            await group.balanced()
            return await group.finish()

    assert account(groups, cell, scenario(), record_property) == 0


def account(groups: GroupStage, cell: Cell, scenario: Coroutine[Any, Any, int], record_property: TELL) -> int:
    """Run a scenario, and tell the matrix how many messages were processed twice."""
    duplicates = groups.run(scenario)
    record_property("duplicates", [*cell, duplicates])
    return duplicates
