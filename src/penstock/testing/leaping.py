"""Lets the clock leap, and waits until everything is done that became due by it."""

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.broker.broker import Broker
from penstock.machines.flush_urgency import Urgency
from penstock.testing.clock import Clock

# Turns of the loop in which timers are called, and what these lead to is done.
_TURNS: Final = 10
_WAIT_SECONDS: Final = 0.001
# The most rounds, since a client that produces all the time always leaves something to flush.
_WAITS: Final = 100
_LOOKS: Final = 2
# Deadlines at which nothing happens, as there are thousands in a month, before others get a turn.
_STEPS_AT_ONCE: Final = 100


async def leap(brokers: Sequence[Broker], clock: Clock, by_ms: int) -> None:
    """Groups see each of their deadlines at its time, since what happens at one sets the next. All else sees the whole
    leap at once. Without a broker only the clock moves."""
    end_ms = clock.lead_ms + by_ms
    await _step_through_deadlines(brokers, clock, end_ms)
    clock.set_lead(end_ms)
    for broker in brokers:
        broker.services.groups.clock_moved()
    for broker in brokers:
        await _settle(broker)
        await broker.upkeep.housekeeping.sweep()
        await _compact(broker)
        await _settle(broker)


async def _step_through_deadlines(brokers: Sequence[Broker], clock: Clock, end_ms: int) -> None:
    last_ms, steps = -1, 0
    # One that stays could not be met, and will not be by looking at it again.
    while (due_ms := _next_deadline(brokers)) is not None and due_ms > last_ms:
        lead_ms = clock.lead_ms + max(0, due_ms - clock.monotonic_ms())
        if lead_ms > end_ms:
            break
        last_ms, steps = due_ms, steps + 1
        clock.set_lead(lead_ms)
        for broker in brokers:
            broker.services.groups.clock_moved()
        for broker in brokers:
            if _is_busy(broker) or steps % _STEPS_AT_ONCE == 0:
                await _settle(broker)


def _next_deadline(brokers: Sequence[Broker]) -> int | None:
    deadlines = [broker.services.groups.next_deadline() for broker in brokers]
    return min((deadline for deadline in deadlines if deadline is not None), default=None)


async def _settle(broker: Broker) -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    while broker.failure is None and _is_busy(broker):
        await asyncio.sleep(_WAIT_SECONDS)


def _is_busy(broker: Broker) -> bool:
    return any(shard.uncommitted for shard in broker.services.groups.shards())


async def _compact(broker: Broker) -> None:
    """Each look closes segments that are old enough. What they hold can be compacted once the broker knows for good
    that it was flushed, which takes a moment."""
    for _ in range(_LOOKS):
        while broker.config.boolean("log.cleaner.enable") and await broker.upkeep.compacting.compact_next():
            pass
        await _flush(broker)


async def _flush(broker: Broker) -> None:
    flusher, flushing = broker.directory.flusher, broker.upkeep.flushing
    for _ in range(_WAITS):
        flushing.save_points_if_due()
        flushing.wake(Urgency.PRODUCER)
        if broker.failure is not None or not (flusher.has_work or flushing.is_busy):
            break
        await asyncio.sleep(_WAIT_SECONDS)
