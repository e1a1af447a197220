"""The request meter counts requests by API as they are answered: how many, how large, how long, with which errors.

It is on the path of every request, so it adds to plain numbers and makes no objects that the collector would follow.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING

from penstock.broker.metrics.histogram import SECONDS, Histogram
from penstock.broker.metrics.reply_errors import error_counter
from penstock.broker.metrics.slow_requests import SlowRequests
from penstock.protocol.apis import Api
from penstock.protocol.schema import Message

if TYPE_CHECKING:
    from penstock.broker.network.call import Call


class ApiMeter:
    """The numbers of one API."""

    __slots__ = ("api", "bytes_in", "bytes_out", "errors", "seconds", "waits")

    def __init__(self, api: Api) -> None:
        self.api = api
        self.bytes_in = 0
        self.bytes_out = 0
        self.errors: dict[int, int] = {}
        self.seconds = Histogram(SECONDS)
        self.waits = Histogram(SECONDS)


class RequestMeter:
    """Meters all APIs. `clock` is the one that `Call.received_at` is from."""

    __slots__ = ("_by_key", "_clock", "slow")

    def __init__(self, apis: Iterable[Api], clock: Callable[[], float] = monotonic) -> None:
        self._by_key = {api.key: ApiMeter(api) for api in apis}
        self._clock = clock
        self.slow = SlowRequests()

    def all(self) -> Iterable[ApiMeter]:
        return self._by_key.values()

    def answered(self, call: "Call") -> None:
        """A call has its reply, if it wanted one."""
        meter = self._by_key[call.api.key]
        seconds = self._clock() - call.received_at
        times = meter.seconds
        times.counts[bisect_left(SECONDS, seconds)] += 1
        times.sum += seconds
        meter.bytes_in += len(call.body)
        written = call.written
        if written is not None:
            meter.bytes_out += len(written[0]) if len(written) == 1 else sum(map(len, written))
        if seconds > self.slow.threshold_seconds:
            self.slow.add(call, seconds)

    def took(self, call: "Call", size: int) -> None:
        """Count bytes of a call that will be gone when it is answered."""
        self._by_key[call.api.key].bytes_in += size

    def replied(self, call: "Call", response: Message) -> None:
        """A call gets this reply, which may hold errors."""
        error_counter(type(response))(response, self._by_key[call.api.key].errors)

    def waited(self, call: "Call", seconds: float) -> None:
        """A call has waited as long as its client asked for, or until what it waits for was there."""
        self._by_key[call.api.key].waits.observe(seconds)
