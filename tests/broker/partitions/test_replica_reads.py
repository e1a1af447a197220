"""How a leader serves a follower: a test asks in the name of a broker whose own fetches are kept away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.broker.partitions import replica_reads
from penstock.machines.broker_proof import Identity
from penstock.protocol.batch import split
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from tests.broker.copies import TOPIC, Copies, copying
from tests.broker.harness import Client, batch, fetch_request, fetched, in_loop, turns, until
from tests.broker.peering import prove, secret_of

LONG = 20_000
"""A wait that a test does not sit out."""


class Follower:
    """Fetches by hand, in the name of a broker."""

    def __init__(self, client: Client, copies: Copies, number: int) -> None:
        self.client = client
        self._number = number
        self._broker_epoch = copies.nodes[number].broker.broker_epoch
        self._topic_id = copies.led().topic_id
        self._epoch = 0

    def request(
        self,
        *positions: tuple[int, int],
        max_wait_ms: int = 0,
        leader_epoch: int = 0,
        last_epoch: int = -1,
        max_bytes: int = 1 << 20,
        forget: tuple[int, ...] = (),
    ) -> FetchRequest:
        """Positions are partitions with the offset to fetch from."""
        partitions = [
            FetchPartition(
                partition=index,
                fetch_offset=offset,
                current_leader_epoch=leader_epoch,
                last_fetched_epoch=last_epoch,
                log_start_offset=0,
                partition_max_bytes=1 << 20,
            )
            for index, offset in positions
        ]
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self._number, replica_epoch=self._broker_epoch),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_epoch=self._epoch,
            topics=[FetchTopic(topic_id=self._topic_id, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=self._topic_id, partitions=list(forget))] if forget else [],
        )
        self._epoch += 1
        return request

    async def fetch(self, *positions: tuple[int, int], **options: Any) -> dict[int, PartitionData]:
        return answers(await self.client.ask(self.request(*positions, **options), 17))

    def send(self, *positions: tuple[int, int], **options: Any) -> None:
        self.client.send(self.request(*positions, **options), 17)

    async def reply(self) -> dict[int, PartitionData]:
        return answers(await self.client.reply())


@dataclass(eq=False)
class Deletion:
    """Waits until the logs of all replicas begin at an offset."""

    offset: int
    code: ErrorCode | None = None

    def ended(self, code: ErrorCode) -> None:
        self.code = code


def answers(response: FetchResponse) -> dict[int, PartitionData]:
    assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code).name
    return {data.partition_index: data for topic in response.responses for data in topic.partitions}


def offsets(data: PartitionData) -> list[int]:
    records = data.records
    assert isinstance(records, memoryview), "a client gets bytes"
    return [header.base_offset for header, _ in split(records)]


@asynccontextmanager
async def leading(partitions: int = 1) -> AsyncIterator[tuple[Copies, Client, Follower]]:
    """A leader of all partitions, a client of it, and a follower that the test speaks for."""
    async with copying(2) as copies:
        client = await copies.nodes[0].connect()
        await copies.create(partitions, copies=2)
        others = [index for index in range(partitions) if copies.leader(index) != 0]
        # Partitions that the other broker leads take no part.
        assert copies.leader(0) == 0 or others
        copies.cut(0, [1])
        yield copies, client, await follower_of(copies)


async def follower_of(copies: Copies) -> Follower:
    client = await copies.nodes[0].connect()
    own = Identity(1, copies.nodes[1].broker.broker_epoch)
    assert await prove(client, await secret_of(copies.nodes[0]), own=own) == ErrorCode.NONE
    return Follower(client, copies, 1)


def with_records(found: dict[int, PartitionData]) -> dict[int, PartitionData]:
    """The partitions of which there is more than a high watermark that has moved."""
    return {index: data for index, data in found.items() if data.records}


def led(copies: Copies) -> list[int]:
    count = len(copies.nodes[0].broker.services.image.topics[TOPIC].partitions)
    return [index for index in range(count) if copies.leader(index) == 0]


@in_loop
async def test_a_follower_reads_what_is_not_committed_and_its_next_fetch_commits_it() -> None:
    async with leading() as (copies, client, follower):
        assert with_records(await follower.fetch((0, 0))) == {}
        for value in (b"a", b"b"):
            assert (await client.produce(TOPIC, batch(value), acks=1)).error_code == ErrorCode.NONE
        await until(lambda: copies.led().log.flushed_offset == 2)
        assert (await client.fetch(TOPIC)).high_watermark == 0
        found = await follower.fetch((0, 0))
        assert offsets(found[0]) == [0, 1]
        assert copies.led().high_watermark == 0
        told = await follower.fetch((0, 2), last_epoch=0)
        assert copies.led().high_watermark == 2
        assert told[0].high_watermark == 2
        assert not told[0].records
        assert await client.values(TOPIC) == [b"a", b"b"]


@in_loop
async def test_a_stranger_with_a_replica_id_is_an_ordinary_consumer() -> None:
    async with leading() as (copies, client, _):
        assert (await client.produce(TOPIC, batch(b"a"), acks=1)).error_code == ErrorCode.NONE
        before = copies.led().leader.followers[1].end_offset
        for offset in (0, 1):
            request = fetch_request(TOPIC, offset, topic_id=copies.led().topic_id)
            request.replica_state = ReplicaState(
                replica_id=1, replica_epoch=copies.nodes[1].broker.services.registration.broker_epoch
            )
            data = fetched(await client.ask(request, 17))
            assert not data.records, "it is not committed"
            assert copies.led().high_watermark == 0
        assert copies.led().leader.followers[1].end_offset == before


@in_loop
async def test_a_broker_that_fetches_in_the_name_of_another_is_an_ordinary_consumer() -> None:
    async with leading() as (copies, client, follower):
        await client.produce(TOPIC, batch(b"a"), acks=1)
        request = follower.request((0, 1))
        request.replica_state.replica_id = 5
        response = await follower.client.ask(request, 17)
        assert all(not data.records for topic in response.responses for data in topic.partitions)
        assert copies.led().high_watermark == 0


@in_loop
async def test_a_fetch_waits_for_an_append_and_gets_it_before_any_flush() -> None:
    async with leading() as (copies, client, follower):
        follower.send((0, 0), max_wait_ms=LONG)
        waiting = asyncio.create_task(follower.reply())
        await turns()
        assert not waiting.done()
        gate = copies.nodes[0].files.gate  # type: ignore[attr-defined]
        gate.clear()
        assert (await client.produce(TOPIC, batch(b"a"), acks=1)).error_code == ErrorCode.NONE
        assert offsets((await waiting)[0]) == [0]
        assert copies.led().log.flushed_offset == 0
        gate.set()


@in_loop
async def test_a_waiting_fetch_ends_when_the_follower_sends_the_next() -> None:
    async with leading() as (_, _, follower):
        follower.send((0, 0), max_wait_ms=LONG)
        follower.send(max_wait_ms=LONG)
        assert with_records(await follower.reply()) == {}
        second = asyncio.create_task(follower.reply())
        await turns()
        assert not second.done()
        follower.send()
        assert await second == {}
        assert await follower.reply() == {}


@in_loop
async def test_a_wait_ends_when_its_time_is_up() -> None:
    async with leading() as (_, _, follower):
        assert with_records(await follower.fetch((0, 0), max_wait_ms=30)) == {}


@in_loop
async def test_only_partitions_with_something_to_read_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async with leading(40) as (copies, client, follower):
        mine = led(copies)
        assert len(mine) == 20
        await follower.fetch(*((index, 0) for index in mine))
        looked: list[int] = []
        look = replica_reads.look

        def noted(partition: Any, *args: Any, **named: Any) -> Any:
            looked.append(partition.index)
            return look(partition, *args, **named)

        monkeypatch.setattr(replica_reads, "look", noted)
        for _ in range(10):
            assert await follower.fetch() == {}
        assert looked == []
        await client.produce(TOPIC, batch(b"a"), partition=mine[3], acks=1)
        assert offsets((await follower.fetch())[mine[3]]) == [0]
        assert looked == [mine[3]]
        # Until the follower says from where it goes on, there is nothing to look at.
        await client.produce(TOPIC, batch(b"b"), partition=mine[3], acks=1)
        assert await follower.fetch() == {}
        assert looked == [mine[3]]
        assert offsets((await follower.fetch((mine[3], 1), last_epoch=0))[mine[3]]) == [1]


@in_loop
async def test_what_does_not_fit_comes_with_the_next_reply_and_every_partition_has_its_turn() -> None:
    async with leading(6) as (copies, client, follower):
        mine = led(copies)
        for index in mine:
            for _ in range(2):
                await client.produce(TOPIC, batch(b"a" * 500), partition=index, acks=1)
        seen = []
        found = with_records(await follower.fetch(*((index, 0) for index in mine), max_bytes=600))
        while found:
            [index] = found
            seen.append(index)
            end = offsets(found[index])[-1] + 1
            found = with_records(await follower.fetch((index, end), last_epoch=0, max_bytes=600))
        assert seen == mine + mine


@pytest.mark.parametrize(
    ("leader_epoch", "error"),
    [(-1, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (0, ErrorCode.NONE)],
)
def test_a_fetch_for_another_epoch_of_the_leader_is_refused_and_moves_nothing(
    leader_epoch: int, error: ErrorCode
) -> None:
    @in_loop
    async def run() -> None:
        async with leading() as (copies, client, follower):
            await client.produce(TOPIC, batch(b"a"), acks=1)
            found = await follower.fetch((0, 1), leader_epoch=leader_epoch, last_epoch=0)
            assert not found or found[0].error_code == error
            assert copies.led().leader.followers[1].end_offset == (0 if error else 1)

    run()


@in_loop
async def test_a_follower_is_told_where_its_log_parts_and_that_is_no_progress() -> None:
    async with leading() as (copies, client, follower):
        for _ in range(3):
            await client.produce(TOPIC, batch(b"a"), acks=1)
        await until(lambda: copies.led().log.flushed_offset == 3)
        # Its last record is of an epoch that this log has not.
        found = await follower.fetch((0, 2), last_epoch=7)
        assert (found[0].diverging_epoch.epoch, found[0].diverging_epoch.end_offset) == (0, 3)
        assert not found[0].records
        # It has more of the epoch than there is.
        found = await follower.fetch((0, 5), last_epoch=0)
        assert (found[0].diverging_epoch.epoch, found[0].diverging_epoch.end_offset) == (0, 3)
        assert copies.led().leader.followers[1].end_offset == 0
        assert copies.led().high_watermark == 0


@in_loop
async def test_outside_the_log_a_follower_is_told_where_it_begins() -> None:
    async with leading() as (copies, client, follower):
        for _ in range(3):
            await client.produce(TOPIC, batch(b"a"), acks=1)
        copies.led().delete_before(2)
        found = await follower.fetch((0, 0))
        assert (found[0].error_code, found[0].log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2)
        found = await follower.fetch((0, 9))
        assert found[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@in_loop
async def test_a_follower_of_an_epoch_that_is_deleted_here_is_told_where_the_log_begins() -> None:
    async with leading() as (copies, client, follower):
        for _ in range(3):
            await client.produce(TOPIC, batch(b"a"), acks=1)
        led = copies.led()
        led.log.begin_epoch(5)
        await client.produce(TOPIC, batch(b"a"), acks=1)
        led.delete_before(3)
        for offset in (1, 3):
            # "No epoch" would be no divergence on the wire, and the follower would wait for ever.
            found = await follower.fetch((0, offset), last_epoch=0)
            assert (found[0].error_code, found[0].log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 3)


@in_loop
async def test_a_follower_that_the_leader_has_forgotten_counts_again_when_it_asks_again() -> None:
    """With nothing to fetch it names a partition only once."""
    async with leading() as (copies, _, follower):
        await follower.fetch((0, 0))
        led = copies.led()
        led.state_changed(replace(copies.image(), isr=(0,), partition_epoch=led.leader.partition_epoch + 1), 1)
        assert led.leader.followers[1].end_offset < 0
        await follower.fetch()
        assert led.leader.followers[1].end_offset == 0


@in_loop
async def test_a_session_belongs_to_its_connection_and_requests_have_an_order() -> None:
    async with leading() as (copies, _, follower):
        request = follower.request()
        request.session_epoch = 1
        response = await follower.client.ask(request, 17)
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        follower._epoch = 0
        await follower.fetch((0, 0))
        other = await follower_of(copies)
        other._epoch = 1
        response = await other.client.ask(other.request(), 17)
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        follower._epoch = 5
        response = await follower.client.ask(follower.request(), 17)
        assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@in_loop
async def test_a_new_session_takes_the_place_of_the_old_one_which_moves_nothing_any_more() -> None:
    async with leading() as (copies, client, follower):
        await client.produce(TOPIC, batch(b"a"), acks=1)
        await follower.fetch((0, 1), last_epoch=0)
        newer = await follower_of(copies)
        await newer.fetch((0, 0))
        assert len(copies.led().replica_readers) == 1
        response = await follower.client.ask(follower.request((0, 1)), 17)
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert copies.led().leader.followers[1].end_offset == 0


@in_loop
async def test_a_follower_whose_connection_is_gone_is_read_for_no_longer() -> None:
    async with leading() as (copies, _, follower):
        follower.send((0, 0), max_wait_ms=LONG)
        await until(lambda: copies.led().replica_readers)
        await turns()
        follower.client.abort()
        await until(lambda: not copies.led().replica_readers)


@in_loop
async def test_a_follower_that_waits_hears_at_once_that_the_leader_leads_no_longer() -> None:
    async with leading() as (copies, _, follower):
        follower.send((0, 0), max_wait_ms=LONG)
        waiting = asyncio.create_task(follower.reply())
        await turns()
        controlling = copies.nodes[0].broker.services.controlling
        await controlling.change(lambda controller: controller.delete_topic(TOPIC))
        assert (await waiting)[0].error_code in (
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )


@in_loop
async def test_partitions_that_a_follower_forgets_are_read_for_no_longer() -> None:
    async with leading() as (copies, client, follower):
        await follower.fetch((0, 0))
        assert await follower.fetch(forget=(0,)) == {}
        assert not copies.led().replica_readers
        await client.produce(TOPIC, batch(b"a"), acks=1)
        assert await follower.fetch() == {}


@in_loop
async def test_where_the_log_begins_is_told_at_once_if_a_client_waits_for_that_though_no_fetch_waits() -> None:
    async with leading() as (copies, client, follower):
        await client.produce(TOPIC, batch(b"a"), acks=1)
        await until(lambda: copies.led().log.flushed_offset == 1)
        await follower.fetch((0, 1), last_epoch=0)
        copies.led().delete_before(1)
        copies.led().await_deletion(Deletion(1))
        told = await follower.fetch(max_wait_ms=10 * LONG)
        assert told[0].log_start_offset == 1
        assert not told[0].records


@in_loop
async def test_a_consumer_that_asks_a_follower_is_sent_to_the_leader() -> None:
    async with copying(2) as copies:
        await copies.create(copies=2)
        client = await copies.client(copies.followers()[0])
        response = await client.ask(fetch_request("", topic_id=copies.led().topic_id), 17)
        found = fetched(response)
        assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert found.current_leader.leader_id == copies.leader()
        assert [node.node_id for node in response.node_endpoints] == [copies.leader()]
