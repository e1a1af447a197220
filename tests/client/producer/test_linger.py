"""Open batches are due in their order, in time or together."""

import asyncio
from collections.abc import Iterable

import pytest

from penstock.client.producer.accumulator import Batch, PartitionQueue
from penstock.client.producer.linger import Lingering
from tests.client.virtual_time import in_virtual_time

LONG_AFTER_S = 60


class Heard:
    def __init__(self) -> None:
        self.due: list[list[int]] = []
        self.times: list[float] = []
        self._began = asyncio.get_running_loop().time()

    def __call__(self, queues: Iterable[PartitionQueue]) -> None:
        self.due.append([queue.partition for queue in queues])
        self.times.append(asyncio.get_running_loop().time() - self._began)


def batch_of(queue: PartitionQueue) -> Batch:
    return Batch(queue.topic, queue.partition, asyncio.get_running_loop().time())


@in_virtual_time
async def test_without_a_time_to_wait_what_comes_in_one_go_is_due_together() -> None:
    heard = Heard()
    lingering = Lingering(0, heard)
    queues = [PartitionQueue("orders", partition) for partition in range(3)]
    batches = [batch_of(queue) for queue in queues]
    for queue, batch in zip(queues, batches, strict=True):
        lingering.add(queue, batch)
    lingering.remove(batches[1])
    assert heard.due == []
    await asyncio.sleep(LONG_AFTER_S)

    assert heard.due == [[0, 2]]
    assert heard.times == [0]
    assert [batch.is_due for batch in batches] == [True, False, True]


@in_virtual_time
async def test_each_batch_waits_for_its_time() -> None:
    heard = Heard()
    lingering = Lingering(5, heard)
    early, late = PartitionQueue("orders", 0), PartitionQueue("orders", 1)
    lingering.add(early, batch_of(early))
    later = batch_of(late)
    later.created_at += 0.010
    lingering.add(late, later)
    await asyncio.sleep(LONG_AFTER_S)

    assert heard.due == [[0], [1]]
    assert heard.times == [pytest.approx(0.005, abs=1e-5), pytest.approx(0.015, abs=1e-5)]


@in_virtual_time
async def test_nothing_is_due_after_the_end() -> None:
    heard = Heard()
    lingering = Lingering(1, heard)
    queue = PartitionQueue("orders", 0)
    lingering.add(queue, batch_of(queue))
    lingering.close()
    await asyncio.sleep(LONG_AFTER_S)

    assert heard.due == []
