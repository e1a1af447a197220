"""Deadlines are kept by a coarse clock: one timer serves all waiters, not one for each."""

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

TICK_SECONDS: Final = 0.01


class Waiter(Protocol):
    def timed_out(self) -> None: ...


class Deadlines:
    """Waiters in buckets of a tick. Each is called up to a tick late and never early."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, dict[Waiter, None]] = {}
        self._swept = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, waiter: Waiter, seconds: float) -> int:
        """Add a waiter; returns its bucket, which `cancel` needs."""
        number = int((self._loop.time() + seconds) / TICK_SECONDS) + 1
        self._buckets.setdefault(number, {})[waiter] = None
        if self._timer is None:
            self._swept = int(self._loop.time() / TICK_SECONDS)
            self._timer = self._loop.call_later(TICK_SECONDS, self._tick)
        return number

    def cancel(self, waiter: Waiter, bucket: int) -> None:
        waiters = self._buckets.get(bucket)
        if waiters is not None:
            waiters.pop(waiter, None)
            if not waiters:
                del self._buckets[bucket]

    def expire_all(self) -> None:
        """End all waits now."""
        buckets, self._buckets = self._buckets, {}
        for waiters in buckets.values():
            for waiter in waiters:
                waiter.timed_out()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._buckets.clear()

    def _tick(self) -> None:
        now = int(self._loop.time() / TICK_SECONDS)
        passed: Iterable[int] = range(self._swept + 1, now + 1)
        if now - self._swept > len(self._buckets):
            # After a clock has leapt there are more ticks than buckets by far.
            passed = sorted(number for number in self._buckets if number <= now)
        for number in passed:
            for waiter in self._buckets.pop(number, ()):
                waiter.timed_out()
        self._swept = now
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick) if self._buckets else None
