"""The meter of in-sync replicas counts what a broker does to keep them: partitions that it looked at, and what it asked
the controller for."""


class InSyncMeter:
    __slots__ = ("looks", "proposals", "requests")

    def __init__(self) -> None:
        self.looks = 0
        self.proposals = 0
        self.requests = 0

    def looked_at(self, partitions: int) -> None:
        self.looks += partitions

    def proposed(self, partitions: int) -> None:
        """In one request."""
        self.requests += 1
        self.proposals += partitions
