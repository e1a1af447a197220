"""Lists what the load generator is asked to do: batches of several sizes, single messages, fetches, in current and in
old versions of the protocol, and their targets."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from benchmarks.batches import GB, KB, MB
from benchmarks.report import Target

# A slow system is measured with less.
MAX_SECONDS: Final = 1.0
FILL_BYTES: Final = 400 * MB
FILL_BATCH_BYTES: Final = 16 * KB


@dataclass(slots=True, frozen=True)
class Generation:
    """The versions of Produce and Fetch that clients of one time send."""

    produce: int
    fetch: int

    @property
    def options(self) -> dict[str, int]:
        """Of the load generator."""
        return {"produce_version": self.produce, "fetch_version": self.fetch}

    def __str__(self) -> str:
        return f"Produce {self.produce}, Fetch {self.fetch}"


# Topics go by their ids in the current ones (KIP-516). The old ones are the last before lengths became short and
# fields tagged (KIP-482); many clients still send them.
CURRENT: Final = Generation(produce=13, fetch=18)
OLD: Final = Generation(produce=7, fetch=11)


@dataclass(slots=True, frozen=True, eq=False)
class Workload:
    """What the load generator does; options are its own."""

    name: str
    mode: str
    options: Mapping[str, Any]
    # The most bytes that are sent or read.
    volume: int
    # The workload that differs only in not waiting for the disk.
    unflushed: str = ""
    generation: Generation = CURRENT

    def spoken(self, generation: Generation) -> Self:
        """In other versions, which its name tells."""
        version = f"Fetch {generation.fetch}" if self.mode == "fetch" else f"Produce {generation.produce}"
        return replace(self, name=f"{self.name}, {version}", unflushed="", generation=generation)

    @property
    def with_versions(self) -> dict[str, Any]:
        """Its options, and the versions that it speaks."""
        return {**self.options, **self.generation.options}

    @property
    def limits(self) -> dict[str, object]:
        """Ends it after its volume, or after a time where a system is slow."""
        if self.mode == "fetch":
            return {"seconds": MAX_SECONDS, "loops": max(1, self.volume // FILL_BYTES)}
        size = self.options.get("batch_bytes", KB)
        return {"seconds": MAX_SECONDS, "requests": max(1, self.volume // size)}


def _batches(size_name: str, size: int, volume: int) -> list[Workload]:
    options = {"batch_bytes": size, "connections": 4, "in_flight": 4}
    name = f"produce {size_name}"
    return [
        Workload(f"{name}, acks=1", "produce", {**options, "acks": 1}, volume),
        Workload(f"{name}, acks=all", "produce", {**options, "acks": -1}, volume // 2, f"{name}, acks=1"),
    ]


def _singles(connections: int, in_flight: int, acks: int, volume: int) -> Workload:
    told = "all" if acks == -1 else str(acks)
    options = {"connections": connections, "in_flight": in_flight, "acks": acks}
    return Workload(f"one message a request, c{connections} d{in_flight}, acks={told}", "produce", options, volume)


def _fetch(size_name: str, size: int, volume: int) -> Workload:
    return Workload(f"fetch {size_name}", "fetch", {"max_bytes": size, "connections": 2, "in_flight": 2}, volume)


_CURRENT_WORKLOADS: Final = (
    *_batches("1 MB", MB, 600 * MB),
    *_batches("100 KB", 100 * KB, 600 * MB),
    *_batches("16 KB", 16 * KB, 300 * MB),
    _singles(1, 1, 1, 10 * MB),
    _singles(10, 16, 1, 50 * MB),
    _singles(10, 1, 1, 30 * MB),
    _singles(100, 1, 1, 30 * MB),
    _singles(1, 1, -1, 10 * MB),
    _singles(10, 1, -1, 10 * MB),
    _singles(10, 16, -1, 30 * MB),
    _singles(100, 1, -1, 20 * MB),
    _fetch("1 MB", MB, 2 * GB),
    _fetch("128 KB", 128 * KB, 1200 * MB),
    _fetch("16 KB", 16 * KB, 400 * MB),
)
# What waits for the disk is measured in current versions alone: what a version costs shows where the disk does not.
WORKLOADS: Final = tuple(
    spoken
    for workload in _CURRENT_WORKLOADS
    for spoken in ((workload, workload.spoken(OLD)) if workload.options.get("acks", 1) == 1 else (workload,))
)
_LIKE_THE_FLOOR = Target("CPU × floor", 1.3, at_most=True)
_BOTH: Final = ("", f", Produce {OLD.produce}")
_HALF = Target("of acks=1", 0.5, at_most=False)
TARGETS: Final[Mapping[str, tuple[Target, ...]]] = {
    **{f"produce {size}, acks=1{old}": (_LIKE_THE_FLOOR,) for size in ("1 MB", "100 KB", "16 KB") for old in _BOTH},
    **{f"produce {size}, acks=all": (_HALF,) for size in ("1 MB", "100 KB", "16 KB")},
    **{
        f"one message a request, {kind}, acks=1{old}": (Target("CPU µs/request", limit, at_most=True),)
        for kind, limit in (("c10 d16", 12), ("c100 d1", 20))
        for old in _BOTH
    },
    "fetch 1 MB": (Target("CPU-s/GB", 0.28, at_most=True),),
}
