"""A walk through the states of a cluster fills the error table: three brokers are up, then two, then one, and in each
state all clients send once to all topics."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack

from penstock.client.admin.topics import NewTopic, create_topics
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import unwrap
from penstock.protocol.error_codes import ErrorCode
from tools.clients.processes import OutsideError
from tools.error_table import wire
from tools.error_table.answers import ask, list_latest
from tools.error_table.cells import (
    BROKERS,
    CLIENTS,
    MIN_ISR,
    PARTITIONS,
    UP,
    WIRE,
    Row,
    Table,
    modes_of,
    target,
    topic_of,
)
from tools.error_table.control import Control
from tools.error_table.group_answers import OFFSETS, Member, ask_coordinator, join, prepare_offsets
from tools.error_table.java_sender import java_sender
from tools.error_table.senders import (
    Sender,
    send_with_aiokafka,
    send_with_confluent_kafka,
    send_with_kafka_python,
    versions,
)
from tools.error_table.silence import ask_in_silence

# Preferred is the broker that is stopped first, so that each stop is followed by an election.
REPLICAS = tuple(reversed(range(BROKERS)))
SETTLE_SECONDS = 60
LOOK_SECONDS = 0.05
NOT_LEADING = {ErrorCode.NOT_LEADER_OR_FOLLOWER.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name}


async def walk(bootstrap: str, control: Control, server: str) -> Table:
    """The table of a cluster of brokers 0, 1 and 2 that has none of the topics yet. `bootstrap` is the address of
    broker 0, which is never stopped."""
    async with AsyncExitStack() as stack:
        # Java takes longest to start.
        java, member = await asyncio.gather(stack.enter_async_context(java_sender()), _prepare(bootstrap))
        senders: dict[str, Sender] = {
            WIRE: wire.send,
            "confluent-kafka": send_with_confluent_kafka,
            "kafka-python": send_with_kafka_python,
            "aiokafka": send_with_aiokafka,
            "java": java,
        }
        assert tuple(senders) == CLIENTS
        table = Table(server, {**versions(), "java": java.version})
        for up in UP:
            if up < BROKERS:
                await control.stop(up)
                await _settle(bootstrap, up)
            sends = await asyncio.gather(*(_send(bootstrap, up, name, sender) for name, sender in senders.items()))
            for row in sorted({row for each in sends for row in each}, key=_order):
                told = zip(senders, sends, strict=True)
                table.sends[row] = {name: outcomes[row] for name, outcomes in told if row in outcomes}
            table.answers[up] = {**await ask(bootstrap, up), **await ask_coordinator(bootstrap, up, member)}
            if up == BROKERS:
                table.answers[up] |= await ask_in_silence(bootstrap, control)
        return table


def _order(row: Row) -> tuple[int, int, str]:
    return -row.up, row.min_isr, row.mode


async def _prepare(bootstrap: str) -> Member:
    """Create the topics, and a group."""
    topics = [
        NewTopic(
            name=topic_of(min_isr),
            assignment=[REPLICAS] * PARTITIONS,
            configs={"min.insync.replicas": str(min_isr)},
        )
        for min_isr in MIN_ISR
    ]
    async with Cluster(bootstrap) as cluster:
        unwrap(await create_topics(cluster, topics))
    await prepare_offsets(bootstrap)
    await _settle(bootstrap, BROKERS)
    return await join(bootstrap)


async def _settle(bootstrap: str, up: int) -> None:
    """Wait until the brokers that are up, and no others, are in sync in all partitions, and the last of them leads."""
    topics = [*map(topic_of, MIN_ISR), OFFSETS]
    missing = ""
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            while missing := await _missing(await wire.look(bootstrap, topics), up):
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise OutsideError(f"with {up} brokers up the replicas have not settled: {missing}") from None


async def _missing(view: wire.View, up: int) -> str:
    leader = up - 1
    for to, in_sync in view.in_sync.items():
        if in_sync != set(range(up)):
            return f"{to} has {sorted(in_sync)} in sync"
        if to.topic != OFFSETS and view.leaders[to] != leader:
            return f"{to} is led by {view.leaders[to]}"
    # The leader may be the last to hear of it. A new one that has committed nothing yet says OFFSET_NOT_AVAILABLE.
    async with wire.connected(*view.addresses[leader]) as connection:
        for to in view.in_sync:
            if to.topic != OFFSETS and await list_latest(connection, to) in NOT_LEADING:
                return f"{to} is not led yet"
    return ""


async def _send(bootstrap: str, up: int, client: str, sender: Sender) -> Mapping[Row, str]:
    outcomes: dict[Row, str] = {}
    for mode in modes_of(client):
        told = await sender(bootstrap, mode, [target(client, min_isr, mode) for min_isr in MIN_ISR])
        for min_isr, outcome in zip(MIN_ISR, told, strict=True):
            outcomes[Row(up, min_isr, mode)] = outcome
    return outcomes
