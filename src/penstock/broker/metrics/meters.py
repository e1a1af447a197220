"""The meters count what cannot be looked up later, whether or not the page is read."""

import asyncio
from collections.abc import Iterable
from time import monotonic

from penstock.broker.metrics.flushes import FlushMeter
from penstock.broker.metrics.gc_pauses import GcPauses
from penstock.broker.metrics.group_lags import GroupLags
from penstock.broker.metrics.in_sync import InSyncMeter
from penstock.broker.metrics.loop_lag import LoopLag
from penstock.broker.metrics.requests import RequestMeter
from penstock.protocol.apis import Api


class Meters:
    def __init__(self, apis: Iterable[Api], loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # `monotonic` is a shorter way to the loop's clock, where that is known to be its clock.
        is_monotonic = type(loop).time is asyncio.BaseEventLoop.time
        self.requests = RequestMeter(apis, monotonic if is_monotonic else loop.time)
        self.flushes = FlushMeter()
        self.in_sync = InSyncMeter()
        self.loop_lag = LoopLag(loop)
        self.gc_pauses = GcPauses()
        self.group_lags = GroupLags()
        self._started_at = loop.time()

    @property
    def uptime_seconds(self) -> float:
        return self._loop.time() - self._started_at

    def start(self) -> None:
        self.loop_lag.start()
        self.gc_pauses.start()

    def close(self) -> None:
        self.gc_pauses.close()
        self.loop_lag.close()
