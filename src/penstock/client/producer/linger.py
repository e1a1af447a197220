"""`Lingering` keeps open batches waiting for more messages, each for `linger.ms`, with one timer for all."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from penstock.client.producer.accumulator import Batch, PartitionQueue

# A timer may be early by this many seconds.
CLOCK_RESOLUTION: Final = 1e-6


class Lingering:
    """`due` is called with the queues of the batches that have waited long enough. Without a time to wait that is
    once the event loop comes round: what is sent in one go travels together."""

    def __init__(self, linger_ms: float, due: Callable[[Iterable[PartitionQueue]], None]) -> None:
        self._seconds = linger_ms / 1000
        self._due = due
        self._loop = asyncio.get_running_loop()
        # The oldest first, as all wait equally long.
        self._waiting: OrderedDict[Batch, tuple[float, PartitionQueue]] = OrderedDict()
        self._timer: asyncio.Handle | None = None

    def add(self, queue: PartitionQueue, batch: Batch) -> None:
        self._waiting[batch] = batch.created_at + self._seconds, queue
        if self._timer is None:
            self._set_timer()

    def remove(self, batch: Batch) -> None:
        """Forget a batch that is sent before its time, or not sent at all."""
        self._waiting.pop(batch, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        if self._seconds == 0:
            self._timer = self._loop.call_soon(self._end)
        else:
            due_at, _ = next(iter(self._waiting.values()))
            self._timer = self._loop.call_at(due_at, self._end)

    def _end(self) -> None:
        now = self._loop.time() + CLOCK_RESOLUTION
        waiting = self._waiting
        due: dict[PartitionQueue, None] = {}
        while waiting:
            batch, (due_at, queue) = next(iter(waiting.items()))
            if due_at > now:
                break
            del waiting[batch]
            batch.is_due = True
            due[queue] = None
        self._timer = None
        if waiting:
            self._set_timer()
        self._due(due)
