"""The flush meter counts rounds of the flusher: how long each took, and how many logs it made durable."""

from penstock.broker.metrics.histogram import POWERS, SECONDS, Histogram


class FlushMeter:
    __slots__ = ("failures", "logs", "seconds")

    def __init__(self) -> None:
        self.seconds = Histogram(SECONDS)
        self.logs = Histogram(POWERS)
        self.failures = 0

    def flushed(self, logs: int, seconds: float) -> None:
        self.seconds.observe(seconds)
        self.logs.observe(logs)

    def failed(self) -> None:
        self.failures += 1
