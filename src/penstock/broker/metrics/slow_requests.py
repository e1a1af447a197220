"""The log of slow requests: a line for each that took too long, and never more than a few lines in a second."""

import logging
import math
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.broker.call import Call

log = logging.getLogger(__name__)

LINES: Final = 5
WINDOW_SECONDS: Final = 1.0


class SlowRequests:
    """`threshold_seconds` is what a request may take; infinite if nobody wants to know."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.threshold_seconds = math.inf
        self.total = 0
        self._clock = clock
        self._window_ends = 0.0
        self._lines = 0
        self._left_out = 0

    def set_threshold_ms(self, threshold_ms: int) -> None:
        """0 turns the log off."""
        self.threshold_seconds = threshold_ms / 1000 if threshold_ms else math.inf

    def add(self, call: "Call", seconds: float) -> None:
        self.total += 1
        now = self._clock()
        if now >= self._window_ends:
            self._window_ends = now + WINDOW_SECONDS
            self._lines = 0
        if self._lines >= LINES:
            self._left_out += 1
            return
        self._lines += 1
        facts = {
            "api": call.api.name,
            "version": call.version,
            "client_id": call.client_id,
            "peer": call.connection.peer,
            "bytes": call.size,
            "ms": round(seconds * 1000, 1),
        }
        if self._left_out:
            facts["left_out"] = self._left_out
            self._left_out = 0
        # What is slow may be what the client asked for, so this is no warning.
        log.info("slow request", extra=facts)
