"""What a client is asked to do, and when it is to end: SIGTERM asks it to."""

import signal
import threading
import time
from dataclasses import dataclass
from typing import Final

from tools.chaos.history import Place

RATE: Final = 100
"""Messages a second of one producer."""
MAX_WAITING: Final = 200
"""Messages of one partition that a producer waits for: those to a partition that is stuck do not hold up the others."""
COMMIT_SECONDS: Final = 0.5
FLUSH_SECONDS: Final = 10
REQUEST_MS: Final = 10_000
ROUND_MS: Final = 100_000
"""No round lasts longer."""
POLL_SECONDS: Final = 0.1
SESSION_MS: Final = 6_000
HEARTBEAT_MS: Final = 1_000
HASTY_MS: Final = 5_000
"""A hasty producer gives a message up after this time, and goes on with the next."""


@dataclass(frozen=True, slots=True)
class Work:
    client: str
    bootstrap: str
    topic: str
    partitions: int
    group: str

    def places(self) -> list[Place]:
        return [(self.topic, number) for number in range(self.partitions)]


BESIDE: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "acks1": ("1", {}),
    "os": ("all", {"penstock.flush": "os"}),
}
"""Topics beside that of a round, by the end of their names: the acks of their producer, and what else they are created
with. Less is promised of them."""
BESIDE_RATE: Final = 50


def beside(topic: str, end: str) -> Place:
    """It has one partition."""
    return f"{topic}-{end}", 0


class Pace:
    """How many messages are due, of a steady number a second."""

    def __init__(self, rate: int = RATE) -> None:
        self._began = time.monotonic()
        self._rate = rate
        self._done = 0

    def due(self) -> int:
        """What was not sent in time while the client was held up is left out."""
        total = int((time.monotonic() - self._began) * self._rate)
        due, self._done = total - self._done, total
        return min(due, self._rate)


def ending() -> threading.Event:
    """Set when this process is asked to end."""
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    # Ctrl-C is for the process that runs the round, which ends its clients.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return asked
