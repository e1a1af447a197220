"""Open batches are due in their order, in time or together."""

import asyncio
from collections.abc import Iterable

from penstock.client.accumulator import Batch, Outbox
from penstock.client.lingering import Lingering
from tests.client.peer import in_loop


class Heard:
    def __init__(self) -> None:
        self.due: list[list[int]] = []
        self.event = asyncio.Event()

    def __call__(self, outboxes: Iterable[Outbox]) -> None:
        self.due.append([outbox.partition for outbox in outboxes])
        self.event.set()


def batch_of(outbox: Outbox) -> Batch:
    return Batch(outbox.topic, outbox.partition, asyncio.get_running_loop().time())


@in_loop
async def test_without_a_time_to_wait_what_comes_in_one_go_is_due_together() -> None:
    heard = Heard()
    lingering = Lingering(0, heard)
    outboxes = [Outbox("orders", partition) for partition in range(3)]
    batches = [batch_of(outbox) for outbox in outboxes]
    for outbox, batch in zip(outboxes, batches, strict=True):
        lingering.add(outbox, batch)
    lingering.remove(batches[1])
    assert heard.due == []
    await heard.event.wait()

    assert heard.due == [[0, 2]]
    assert [batch.is_due for batch in batches] == [True, False, True]


@in_loop
async def test_each_batch_waits_for_its_time() -> None:
    heard = Heard()
    lingering = Lingering(5, heard)
    early, late = Outbox("orders", 0), Outbox("orders", 1)
    lingering.add(early, batch_of(early))
    later = batch_of(late)
    later.created_at += 0.010
    lingering.add(late, later)
    await heard.event.wait()
    assert heard.due == [[0]]
    heard.event.clear()
    await heard.event.wait()

    assert heard.due == [[0], [1]]


@in_loop
async def test_nothing_is_due_after_the_end() -> None:
    heard = Heard()
    lingering = Lingering(1, heard)
    outbox = Outbox("orders", 0)
    lingering.add(outbox, batch_of(outbox))
    lingering.close()
    await asyncio.sleep(0.005)

    assert heard.due == []
