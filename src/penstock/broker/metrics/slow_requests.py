"""The log of slow requests writes a line for each request that took too long, at a bounded rate."""

import logging
import math
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from penstock.broker.log_rates import LogRate

if TYPE_CHECKING:
    from penstock.broker.network.call import Call

log = logging.getLogger(__name__)


class SlowRequests:
    """Logs requests that took longer than `threshold_seconds`, which is infinite while the log is off."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.threshold_seconds = math.inf
        self.total = 0
        self._clock = clock
        self._rate = LogRate()

    def set_threshold_ms(self, threshold_ms: int) -> None:
        """0 turns the log off."""
        self.threshold_seconds = threshold_ms / 1000 if threshold_ms else math.inf

    def add(self, call: "Call", seconds: float) -> None:
        self.total += 1
        left_out = self._rate.admit(self._clock())
        if left_out is None:
            return
        facts = {
            "api": call.api.name,
            "version": call.version,
            "client_id": call.client_id,
            "peer": call.connection.peer,
            "bytes": call.size,
            "ms": round(seconds * 1000, 1),
        }
        if left_out:
            facts["left_out"] = left_out
        # What is slow may be what the client asked for, so this is no warning.
        log.info("slow request", extra=facts)
