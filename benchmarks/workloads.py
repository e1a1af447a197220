"""What the load generator is asked to do: batches of several sizes, single messages, fetches, and their targets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.batches import GB, KB, MB
from benchmarks.report import Target

# A slow system is measured with less.
MAX_SECONDS: Final = 1.0
FILL_BYTES: Final = 400 * MB
FILL_BATCH_BYTES: Final = 16 * KB


@dataclass(slots=True, frozen=True, eq=False)
class Workload:
    """What the load generator does; options are its own."""

    name: str
    mode: str
    options: Mapping[str, Any]
    # At most so many bytes are sent or read.
    volume: int
    # The workload that differs only in not waiting for the disk.
    unflushed: str = ""

    @property
    def limits(self) -> dict[str, object]:
        """Ends it after its volume, or after the time for those who are slow."""
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


WORKLOADS: Final = (
    *_batches("1 MB", MB, 600 * MB),
    *_batches("100 KB", 100 * KB, 600 * MB),
    *_batches("16 KB", 16 * KB, 300 * MB),
    _singles(10, 16, 1, 50 * MB),
    _singles(10, 1, 1, 30 * MB),
    _singles(100, 1, 1, 30 * MB),
    _singles(10, 16, -1, 30 * MB),
    _singles(100, 1, -1, 20 * MB),
    _fetch("1 MB", MB, 2 * GB),
    _fetch("128 KB", 128 * KB, 1200 * MB),
    _fetch("16 KB", 16 * KB, 400 * MB),
)
_LIKE_THE_FLOOR = Target("CPU × floor", 1.3, at_most=True)
_HALF = Target("of acks=1", 0.5, at_most=False)
TARGETS: Final[Mapping[str, tuple[Target, ...]]] = {
    **{f"produce {size}, acks=1": (_LIKE_THE_FLOOR,) for size in ("1 MB", "100 KB", "16 KB")},
    **{f"produce {size}, acks=all": (_HALF,) for size in ("1 MB", "100 KB", "16 KB")},
    "one message a request, c10 d16, acks=1": (Target("CPU µs/request", 12, at_most=True),),
    "one message a request, c100 d1, acks=1": (Target("CPU µs/request", 20, at_most=True),),
    "fetch 1 MB": (Target("CPU-s/GB", 0.28, at_most=True),),
}
