"""All meters of a broker start and stop with it."""

import asyncio
import gc

from penstock.broker.metrics.meters import Meters
from penstock.protocol.apis import api
from tests.broker.harness import in_loop, running


@in_loop
async def test_meters_start_and_stop_together() -> None:
    before = list(gc.callbacks)
    meters = Meters([api(0), api(1)], asyncio.get_running_loop())
    assert [meter.api.name for meter in meters.requests.all()] == ["Produce", "Fetch"]
    meters.start()
    assert len(gc.callbacks) == len(before) + 1
    assert meters.uptime_seconds >= 0
    meters.close()
    assert gc.callbacks == before


@in_loop
async def test_a_stopped_broker_leaves_no_callback_and_no_timer_behind() -> None:
    before = list(gc.callbacks)
    async with running({"penstock.metrics.listen": "127.0.0.1:0"}) as node:
        lag = node.broker.services.meters.loop_lag
        assert len(gc.callbacks) == len(before) + 1
    assert gc.callbacks == before
    assert lag._timer is None


@in_loop
async def test_every_broker_of_a_process_counts_for_itself() -> None:
    async with running() as one, running() as other:
        await (await one.connect()).create_topic("orders")
        counts = [
            sum(meter.seconds.count for meter in node.broker.services.meters.requests.all()) for node in (one, other)
        ]
        assert counts == [1, 0]
