"""What brokers answer to requests other than a producer's ordinary ones: readers', those of a client that is wrong, and
those of groups, whose offsets are kept in a topic that needs two replicas in sync."""

import asyncio

from penstock.client.cluster.connection import Connection
from penstock.protocol.batch import split
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.schemas.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from tools.error_table.cells import BROKERS, MIN_ISR, WIRE, Target, target, topic_of
from tools.error_table.wire import View, connected, look, new_batch, produce, produce_batch

LATEST = -1
MAX_BYTES = 1 << 20
LOOK_SECONDS = 0.02
LOOKS = 500
"""How often to look for what is to be committed."""
NO_PARTITION = 1_000_000
NO_TOPIC_ID = b"no such topic id"


async def ask(bootstrap: str, up: int) -> dict[str, str]:
    view = await look(bootstrap, [topic_of(min_isr) for min_isr in MIN_ISR])
    answers: dict[str, str] = {}
    for min_isr in MIN_ISR:
        to = target(WIRE, min_isr, "1")
        async with connected(*view.addresses[view.leaders[to]]) as leader:
            read = await _read(leader, view, to, end=BROKERS - up + 1, is_committed=up >= min_isr)
        answers |= {f"{what}, min.insync.replicas={min_isr}": answer for what, answer in read.items()}
    to = target(WIRE, 1, "1")
    async with connected(*view.addresses[view.leaders[to]]) as leader:
        answers |= await _mistake(leader, view, to)
    if others := view.in_sync[to] - {view.leaders[to]}:
        async with connected(*view.addresses[min(others)]) as follower:
            answers |= await _miss_the_leader(follower, view, to)
    return answers


async def _read(leader: Connection, view: View, to: Target, *, end: int, is_committed: bool) -> dict[str, str]:
    """Of a partition whose records were acknowledged with acks=1, as many as `end`."""
    latest = await list_latest(leader, to)
    for _ in range(LOOKS if is_committed else 0):
        if latest == f"offset {end}":
            break
        await asyncio.sleep(LOOK_SECONDS)
        latest = await list_latest(leader, to)
    return {
        "ListOffsets of the latest": latest,
        "Fetch from the start": await fetch(leader, view, to, 0),
        "Fetch from the end of the log": await fetch(leader, view, to, end),
        "Fetch from beyond the end of the log": await fetch(leader, view, to, end + 1),
    }


async def _mistake(leader: Connection, view: View, to: Target) -> dict[str, str]:
    batch = new_batch()
    stranger = View(view.addresses, {to.topic: NO_TOPIC_ID}, view.leaders, view.in_sync)
    wanted = CreatableTopic(name="wanted", num_partitions=1, replication_factor=BROKERS)
    created = await leader.request(CreateTopicsRequest(topics=[wanted], timeout_ms=1000, validate_only=True))
    return {
        "Produce with acks=2": await produce_batch(leader, view, to, 2, batch),
        "Produce to no partition": await produce_batch(leader, view, Target(to.topic, NO_PARTITION), 1, batch),
        "Produce to no topic": await produce_batch(leader, stranger, to, 1, batch),
        "CreateTopics with three replicas": ErrorCode(created.topics[0].error_code).name,
    }


async def _miss_the_leader(follower: Connection, view: View, to: Target) -> dict[str, str]:
    return {
        "Produce with acks=all to a follower": await produce(follower, view, to, "all"),
        "Produce with acks=1 to a follower": await produce(follower, view, to, "1"),
        "ListOffsets of a follower": await list_latest(follower, to),
        "Fetch from a follower": await fetch(follower, view, to, 0),
        # The last, since it costs the connection.
        "Produce with acks=0 to a follower": await produce(follower, view, to, "0"),
    }


async def list_latest(connection: Connection, to: Target) -> str:
    asked = ListOffsetsPartition(partition_index=to.partition, timestamp=LATEST)
    topic = ListOffsetsTopic(name=to.topic, partitions=[asked])
    answer = await connection.request(ListOffsetsRequest(replica_id=-1, topics=[topic]))
    [told] = answer.topics[0].partitions
    return ErrorCode(told.error_code).name if told.error_code else f"offset {told.offset}"


async def fetch(connection: Connection, view: View, to: Target, offset: int) -> str:
    asked = FetchPartition(partition=to.partition, fetch_offset=offset, partition_max_bytes=MAX_BYTES)
    topic = FetchTopic(topic=to.topic, topic_id=view.topic_ids[to.topic], partitions=[asked])
    answer = await connection.request(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=MAX_BYTES, topics=[topic]))
    [told] = answer.responses[0].partitions
    if told.error_code:
        return ErrorCode(told.error_code).name
    count = sum(header.record_count for header, _ in split(told.records)) if told.records else 0
    return f"records: {count}"
