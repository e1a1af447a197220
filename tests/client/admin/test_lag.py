"""Lag: the arithmetic, and a group on a real broker that falls behind and catches up."""

import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.client.admin import lag
from penstock.client.admin.group_offsets import CommittedOffset, commit_offsets
from penstock.client.admin.groups import GroupDescription
from penstock.client.admin.lag import (
    GroupLag,
    LagMeter,
    PartitionLag,
    Rates,
    Sample,
    catch_up_in_seconds,
    lag_in_messages,
    lag_in_seconds,
    measure_rates,
)
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import UnknownGroupError
from penstock.client.metadata import TopicPartition
from tests.broker.harness import Client, Node, batch, running
from tests.broker.members import AT_ONCE, Member, with_groups
from tests.client.test_assignments import assignment
from tests.waiting import in_loop

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
GROUP = GroupDescription("g", "Empty", "consumer", "", ())


@pytest.mark.parametrize(
    ("committed", "end", "messages"), [(3, 10, 7), (10, 10, 0), (12, 10, 0), (None, 10, None), (3, None, None)]
)
def test_lag_in_messages_is_what_lies_behind_the_committed_offset(
    committed: int | None, end: int | None, messages: int | None
) -> None:
    assert lag_in_messages(committed, end) == messages


@pytest.mark.parametrize(
    ("messages", "timestamp", "seconds"),
    [(5, 7_000, 3.0), (5, 12_000, 0.0), (0, None, 0.0), (5, None, None), (5, -1, None), (None, 7_000, None)],
)
def test_lag_in_seconds_is_the_age_of_the_oldest_message(
    messages: int | None, timestamp: int | None, seconds: float | None
) -> None:
    assert lag_in_seconds(messages, timestamp, now_ms=10_000) == seconds


def test_rates_are_progress_over_time() -> None:
    assert measure_rates(Sample(10, 100, 200), Sample(12, 150, 260), is_active=True) == Rates(25.0, 30.0)
    assert measure_rates(Sample(10, 100, 200), Sample(10, 150, 260), is_active=True) is None


def test_no_commit_in_a_short_time_says_nothing_unless_nobody_is_there_or_nothing_to_do() -> None:
    first = Sample(10, 100, 200)
    assert measure_rates(first, Sample(11, 100, 210), is_active=True) == Rates(None, 10.0)
    assert measure_rates(first, Sample(11, 100, 210), is_active=False) == Rates(0.0, 10.0)
    assert measure_rates(first, Sample(15, 100, 200), is_active=True) == Rates(0.0, 0.0)
    assert measure_rates(Sample(10, 200, 200), Sample(11, 200, 200), is_active=True) == Rates(0.0, 0.0)


@pytest.mark.parametrize(
    ("messages", "rates", "seconds"),
    [
        (100, Rates(30.0, 10.0), 5.0),
        (100, Rates(10.0, 10.0), math.inf),
        (100, Rates(0.0, 0.0), math.inf),
        (0, None, 0.0),
        (0, Rates(0.0, 9.0), 0.0),
        (100, None, None),
        (100, Rates(None, 1.0), None),
        (None, Rates(30.0, 10.0), None),
    ],
)
def test_a_group_catches_up_by_what_it_gains_on_the_producers(
    messages: int | None, rates: Rates | None, seconds: float | None
) -> None:
    assert catch_up_in_seconds(messages, rates) == seconds


def of(*parts: tuple[int | None, float | None, Rates | None]) -> GroupLag:
    """A group with a partition for each: its lag, its age, its rates."""
    return GroupLag(
        GROUP,
        tuple(
            PartitionLag(TopicPartition("t", number), None if lag is None else 100 - lag, 100, seconds, rates, None)
            for number, (lag, seconds, rates) in enumerate(parts)
        ),
    )


def test_the_total_is_the_sum_of_messages_and_the_age_of_the_oldest() -> None:
    group = of((10, 5.0, Rates(4.0, 2.0)), (20, 9.0, Rates(8.0, 4.0)), (None, None, None))
    assert (group.messages, group.seconds) == (30, 9.0)
    assert group.rates == Rates(12.0, 6.0)
    assert group.catch_up_seconds == 5.0


def test_of_unknown_parts_no_total_is_made_up() -> None:
    assert (of().messages, of().seconds, of().rates, of().catch_up_seconds) == (None, None, None, None)
    group = of((10, 5.0, Rates(4.0, 2.0)), (20, 9.0, Rates(None, 4.0)))
    assert group.rates == Rates(None, 6.0)
    assert group.catch_up_seconds is None
    assert of((10, 5.0, Rates(4.0, 2.0)), (20, 9.0, None)).rates is None


def test_a_group_never_catches_up_if_it_does_not_in_one_partition() -> None:
    assert of((10, 5.0, Rates(4.0, 2.0)), (20, 9.0, Rates(1.0, 4.0))).catch_up_seconds == math.inf


@asynccontextmanager
async def broker_with_orders() -> AsyncIterator[tuple[Node, Client, Cluster]]:
    async with running(AT_ONCE) as node:
        client = await with_groups(node)
        await client.create_topic("orders", 2)
        host, port = node.broker.address
        async with Cluster(f"{host}:{port}") as cluster:
            yield node, client, cluster


@in_loop
async def test_a_group_is_measured_in_all_that_it_has_committed() -> None:
    async with broker_with_orders() as (_, client, cluster):
        now_ms = time.time_ns() // 1_000_000
        for age_ms in (30_000, 20_000, 10_000):
            await client.produce("orders", batch(b"a", b"b", timestamps=[now_ms - age_ms, now_ms - age_ms + 5_000]))
        await commit_offsets(cluster, "g", {FIRST: CommittedOffset(3), SECOND: CommittedOffset(0)})
        found = await LagMeter(cluster, "g").measure()
        first, second = found.partitions
        assert (first.partition, first.committed, first.end, first.messages) == (FIRST, 3, 6, 3)
        assert first.seconds is not None
        assert 15 <= first.seconds < 60, "the second record of its batch, not the first"
        assert (second.messages, second.seconds) == (0, 0.0)
        assert first.rates is None
        assert found.messages == 3


@in_loop
async def test_without_ages_no_message_is_fetched() -> None:
    async with broker_with_orders() as (node, client, cluster):
        await client.produce("orders", batch(b"a"))
        await commit_offsets(cluster, "g", {FIRST: CommittedOffset(0)})
        (found,) = (await LagMeter(cluster, "g").measure(ages=False)).partitions
        assert (found.messages, found.seconds) == (1, None)
        assert node.partition("orders").fetched_bytes == 0


@in_loop
async def test_a_group_that_stands_still_is_fetched_for_once() -> None:
    async with broker_with_orders() as (node, client, cluster):
        await client.produce("orders", batch(b"a"))
        await commit_offsets(cluster, "g", {FIRST: CommittedOffset(0)})
        meter = LagMeter(cluster, "g")
        await meter.measure()
        fetched = node.partition("orders").fetched_bytes
        assert fetched > 0
        (found,) = (await meter.measure()).partitions
        assert found.seconds is not None
        assert node.partition("orders").fetched_bytes == fetched


@in_loop
async def test_a_message_that_is_gone_has_no_age() -> None:
    async with broker_with_orders() as (node, client, cluster):
        for _ in range(3):
            await client.produce("orders", batch(b"a"))
        await commit_offsets(cluster, "g", {FIRST: CommittedOffset(0)})
        node.partition("orders").delete_before(2)
        (found,) = (await LagMeter(cluster, "g").measure()).partitions
        assert (found.messages, found.seconds) == (3, None)


@in_loop
async def test_a_second_look_tells_rates_and_a_group_that_was_moved_begins_anew() -> None:
    async with broker_with_orders() as (_, client, cluster):
        await client.produce("orders", batch(*[b"a"] * 100))
        await commit_offsets(cluster, "g", {FIRST: CommittedOffset(10)})
        meter = LagMeter(cluster, "g")
        await meter.measure()
        await commit_offsets(cluster, "g", {FIRST: CommittedOffset(60)})
        (found,) = (await meter.measure()).partitions
        assert found.rates is not None
        assert found.rates.consumed is not None
        assert found.rates.consumed > 0
        assert found.rates.produced == 0
        assert found.catch_up_seconds == pytest.approx(40 / found.rates.consumed)
        await commit_offsets(cluster, "g", {FIRST: CommittedOffset(20)})
        (found,) = (await meter.measure()).partitions
        assert found.rates is None


@in_loop
async def test_rates_are_those_of_the_last_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "WINDOW_SECONDS", 0.0)
    async with broker_with_orders() as (_, client, cluster):
        await client.produce("orders", batch(*[b"a"] * 100))
        await commit_offsets(cluster, "g", {FIRST: CommittedOffset(10)})
        meter = LagMeter(cluster, "g")
        for _ in range(5):
            await meter.measure()
        assert [len(samples) for samples in meter._samples.values()] == [2]


@in_loop
async def test_partitions_of_members_count_though_nothing_is_committed() -> None:
    async with broker_with_orders() as (_, client, cluster):
        member = Member(client)
        await member.join()
        await member.sync({member.member_id: assignment(0, orders=[0, 1])})
        await member.commit("orders", 0, partition=1)
        found = await LagMeter(cluster, "g").measure()
        assert [(each.partition, each.committed, each.messages) for each in found.partitions] == [
            (FIRST, None, None),
            (SECOND, 0, 0),
        ]
        assert {each.member.member_id for each in found.partitions if each.member} == {member.member_id}


@in_loop
async def test_a_topic_that_is_gone_leaves_its_lag_unknown() -> None:
    async with broker_with_orders() as (_, client, cluster):
        member = Member(client)
        await member.join()
        await member.sync({member.member_id: assignment(0, nowhere=[0])})
        (found,) = (await LagMeter(cluster, "g").measure()).partitions
        assert (found.committed, found.end, found.messages, found.seconds) == (None, None, None, None)


@in_loop
async def test_an_unknown_group_is_an_error() -> None:
    async with broker_with_orders() as (_, _, cluster):
        with pytest.raises(UnknownGroupError):
            await LagMeter(cluster, "nobody").measure()
