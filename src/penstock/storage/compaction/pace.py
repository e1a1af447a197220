"""Limits how fast a long piece of work goes: the work reports how much it did, and is slowed down or stopped."""

import time
from collections.abc import Callable
from typing import Final

# The longest sleep, which bounds how long a stop has to wait.
_LONGEST_SLEEP_SECONDS: Final = 0.1


class StoppedError(Exception):
    """The work is to end where it is."""


class Pace:
    """Spreads bytes over time: never more than a second's worth above the limit."""

    def __init__(
        self,
        should_stop: Callable[[], bool],
        max_bytes_per_second: int | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._should_stop = should_stop
        self._limit = max_bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def spent(self, count: int) -> None:
        """Report bytes that were read or written. Sleeps as long as that was too fast; StoppedError if the work is to
        stop."""
        if self._limit is not None:
            self._free_at = max(self._free_at, self._clock() - 1) + count / self._limit
            while (ahead := self._free_at - self._clock()) > 0 and not self._should_stop():
                self._sleep(min(ahead, _LONGEST_SLEEP_SECONDS))
        if self._should_stop():
            raise StoppedError
