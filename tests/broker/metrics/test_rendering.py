"""The page is written a little at a time."""

import asyncio

import pytest

from penstock.broker.metrics import rendering
from penstock.broker.metrics.catalogue import PARTITION_FAMILIES, Sources
from penstock.broker.metrics.rendering import SLICE_PARTITIONS, render, slices
from penstock.broker.partitions.partition import Partition
from tests.broker.harness import batch, in_loop, running
from tests.broker.metrics.scraping import series


async def text_of(sources: Sources) -> str:
    return b"".join(await render(sources)).decode()


@in_loop
async def test_four_thousand_partitions_are_written_in_many_turns() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("many", 4000)
        loop = asyncio.get_running_loop()
        turns, is_done = 0, False

        def turn() -> None:
            nonlocal turns
            turns += 1
            if not is_done:
                loop.call_soon(turn)

        loop.call_soon(turn)
        text = await text_of(node.sources)
        is_done = True
        assert turns > 4000 / SLICE_PARTITIONS
        found = series(text)
        for item in PARTITION_FAMILIES:
            assert sum(name == item.head.name for name, _ in found) == 4000
        await asyncio.sleep(0)


@in_loop
async def test_no_slice_looks_at_more_than_its_share_of_partitions() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("many", 3 * SLICE_PARTITIONS + 1)
        looked = 0
        counts = []

        class Watched(Partition):
            @property
            def high_watermark(self) -> int:  # type: ignore[override]
                nonlocal looked
                looked += 1
                return 0

        for partition in node.broker.services.partitions.all():
            partition.__class__ = Watched
        for _ in slices(node.sources):
            counts.append(looked)
            looked = 0
        assert [count for count in counts if count] == [SLICE_PARTITIONS] * 3 + [1]


@in_loop
async def test_partitions_that_vanish_meanwhile_do_no_harm() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("many", 2 * SLICE_PARTITIONS)
        rendering_now = asyncio.ensure_future(text_of(node.sources))
        await asyncio.sleep(0)
        await node.broker.services.controlling.change(lambda controller: controller.delete_topic("many"))
        series(await rendering_now)
        assert 'topic="many"' not in await text_of(node.sources)


@in_loop
async def test_a_page_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "MAX_PARTITIONS", 3)
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 5)
        found = series(await text_of(node.sources))
        assert sum(name == "penstock_partition_size_bytes" for name, _ in found) == 3
        assert found["penstock_partitions", ()] == 5


@in_loop
async def test_a_topic_has_the_sum_of_its_partitions() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 3)
        await client.create_topic("other")
        for index in range(3):
            await client.produce("orders", batch(*[b"x"] * (index + 1)), partition=index)
        found = series(await text_of(node.sources))
        assert found["penstock_topic_appended_records_total", ("orders",)] == 6
        assert found["penstock_topic_appended_records_total", ("other",)] == 0
