"""Open batches that wait for more messages, each for so long, and the one timer that ends their waits."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from penstock.client.accumulator import Batch, Outbox

# A timer may be early by so many seconds.
CLOCK_RESOLUTION: Final = 1e-6


class Lingering:
    """`due` is called with the outboxes of the batches that have waited long enough. Without a time to wait that is
    once the event loop comes round: what is sent in one go travels together."""

    def __init__(self, linger_ms: float, due: Callable[[Iterable[Outbox]], None]) -> None:
        self._seconds = linger_ms / 1000
        self._due = due
        self._loop = asyncio.get_running_loop()
        # The oldest first, as all wait for the same time.
        self._waiting: OrderedDict[Batch, tuple[float, Outbox]] = OrderedDict()
        self._timer: asyncio.Handle | None = None

    def add(self, outbox: Outbox, batch: Batch) -> None:
        self._waiting[batch] = batch.created_at + self._seconds, outbox
        if self._timer is None:
            self._set_timer()

    def remove(self, batch: Batch) -> None:
        """It goes before its time, or need not go."""
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
        due: dict[Outbox, None] = {}
        while waiting:
            batch, (due_at, outbox) = next(iter(waiting.items()))
            if due_at > now:
                break
            del waiting[batch]
            batch.is_due = True
            due[outbox] = None
        self._timer = None
        if waiting:
            self._set_timer()
        self._due(due)
