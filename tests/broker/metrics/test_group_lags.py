"""Lags of groups as the broker sees them."""

from collections.abc import Iterable

import pytest

from penstock.broker.metrics import group_lags
from penstock.broker.metrics.group_lags import GroupLag, first_timestamp
from penstock.broker.services import Services
from penstock.protocol.batch import LOG_APPEND_TIME_BIT, read_header
from penstock.storage.files.memory import MemoryFiles
from tests.broker.harness import NOW_MS, FakeClock, batch, create_topics, in_loop, running, running_cluster, until
from tests.broker.members import commit, with_groups
from tests.broker.metrics.scraping import ON, scrape


def all_lags(services: Services) -> list[GroupLag]:
    return [lag for lags in services.meters.group_lags.slices(services) for lag in lags]


def told(lags: Iterable[GroupLag]) -> dict[tuple[str, str, int], tuple[int | None, float | None]]:
    return {(lag.group, lag.topic, lag.partition): (lag.messages, lag.seconds) for lag in lags}


@in_loop
async def test_a_group_is_behind_by_what_it_has_not_committed() -> None:
    clock = FakeClock()
    async with running(ON, clock=clock) as node:
        client = await with_groups(node)
        await client.create_topic("orders", 2)
        for number in range(4):
            await client.produce("orders", batch(b"a", b"b", timestamp=NOW_MS + 1000 * number))
        await commit(client, "g", {("orders", 0): 4, ("orders", 1): 0})
        await commit(client, "done", {("orders", 0): 8})
        clock.advance(10_000)
        found = await scrape(node)
        assert found["penstock_group_lag_messages", ("g", "orders", "0")] == 4
        assert found["penstock_group_lag_seconds", ("g", "orders", "0")] == 8
        assert found["penstock_group_lag_messages", ("g", "orders", "1")] == 0
        assert found["penstock_group_lag_seconds", ("g", "orders", "1")] == 0
        assert found["penstock_group_lag_messages", ("done", "orders", "0")] == 0


@in_loop
async def test_of_a_partition_that_another_broker_leads_only_the_commit_is_known() -> None:
    async with running_cluster(2, ON) as nodes:
        client = await with_groups(nodes[0])
        await client.ask(create_topics("orders", 2, replication_factor=1), 7)
        image = nodes[0].broker.services.image
        await until(lambda: {each.leader for each in image.topics["orders"].partitions} == {0, 1})
        coordinator = nodes[nodes[0].broker.services.groups.leader_of("g") or 0]
        member = client if coordinator is nodes[0] else await coordinator.connect()
        await commit(member, "g", {("orders", 0): 4, ("orders", 1): 7})
        found = await scrape(coordinator)
        assert found["penstock_group_committed_offset", ("g", "orders", "0")] == 4
        assert found["penstock_group_committed_offset", ("g", "orders", "1")] == 7
        lags = [labels for name, labels in found if name == "penstock_group_lag_messages"]
        assert len(lags) == 1


@in_loop
async def test_a_message_that_is_gone_has_no_age() -> None:
    async with running() as node:
        client = await with_groups(node)
        await client.create_topic("orders")
        for _ in range(3):
            await client.produce("orders", batch(b"a"))
        await commit(client, "g", {("orders", 0): 0})
        node.partition("orders").delete_before(2)
        assert told(all_lags(node.broker.services)) == {("g", "orders", 0): (3, None)}


@in_loop
async def test_an_age_that_would_have_to_be_read_from_the_disk_is_left_out() -> None:
    class ColdFiles(MemoryFiles):
        cold = False

        def is_cached(self, fd: int, position: int, size: int) -> bool:
            return not self.cold

    files, clock = ColdFiles(), FakeClock()
    async with running(files=files, clock=clock) as node:
        client = await with_groups(node)
        await client.create_topic("orders", 2)
        await client.produce("orders", batch(b"a", b"b"))
        await client.produce("orders", batch(b"c"), partition=1)
        await commit(client, "g", {("orders", 0): 1})
        clock.advance(3000)
        assert told(all_lags(node.broker.services)) == {("g", "orders", 0): (1, 3.0)}
        files.cold = True
        await commit(client, "g", {("orders", 1): 0})
        clock.advance(1000)
        lags = told(all_lags(node.broker.services))
        assert lags["g", "orders", 0] == (1, 4.0), "it was looked at before, and has not moved"
        assert lags["g", "orders", 1] == (1, None)
        files.cold = False
        assert told(all_lags(node.broker.services))["g", "orders", 1] == (1, 4.0)


@in_loop
async def test_lags_come_a_few_at_a_time_and_not_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_lags, "SLICE_OFFSETS", 3)
    monkeypatch.setattr(group_lags, "MAX_OFFSETS", 10)
    async with running() as node:
        client = await with_groups(node)
        await client.create_topic("orders", 4)
        for group in ("a", "b", "c"):
            await commit(client, group, {("orders", index): 0 for index in range(4)})
        sizes = [len(lags) for lags in node.broker.services.meters.group_lags.slices(node.broker.services)]
        assert sizes == [3, 3, 3, 1]


@in_loop
async def test_groups_that_vanish_meanwhile_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_lags, "SLICE_OFFSETS", 1)
    async with running() as node:
        client = await with_groups(node)
        await client.create_topic("orders", 3)
        await commit(client, "g", {("orders", index): 0 for index in range(3)})
        lags = node.broker.services.meters.group_lags.slices(node.broker.services)
        assert len(next(lags)) == 1
        await node.broker.services.controlling.change(lambda controller: controller.delete_topic("orders"))
        assert [lag for rest in lags for lag in rest] == []


def test_the_time_of_a_batch_is_that_of_its_first_record_unless_the_broker_gave_it() -> None:
    header = read_header(batch(b"a", b"b", timestamps=[5, 9]))
    assert first_timestamp(header) == 5
    assert first_timestamp(header._replace(attributes=LOG_APPEND_TIME_BIT)) == 9
    assert first_timestamp(header._replace(base_timestamp=-1)) is None
