"""The watch on disk space looks now and then how much is free: below a reserve records are refused, while there is
still room for everything else."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from penstock.protocol.error_codes import ErrorCode
from penstock.storage.files import Files

log = logging.getLogger(__name__)

MIB: Final = 1024 * 1024
# The default reserve, which is enough for internal topics to go on for hours.
DEFAULT_RESERVE_BYTES: Final = 256 * MIB
# No disk fills faster than this: a look comes before the reserve is used up, and not more often than that takes.
FASTEST_BYTES_PER_SECOND: Final = 4096 * MIB
SHORTEST_SECONDS: Final = 0.05
LONGEST_SECONDS: Final = 1.0
WHILE_LOW_SECONDS: Final = 0.25

REFUSED_AS: Final = ErrorCode.KAFKA_STORAGE_ERROR
"""The error that a producer gets. Java's client and librdkafka both take it as "not written": they ask for the leader
and send again, until their own delivery timeout ends that. Kafka, too, answers so once a full disk has taken its
folder offline. NOT_ENOUGH_REPLICAS would be sent again as well, but would have operators look in the wrong place."""


class DiskSpace:
    """`changed` is called when `is_low` changes; `became_low` when it turns true, and again with every look until it
    is false."""

    def __init__(
        self,
        files: Files,
        path: str,
        *,
        reserve_bytes: Callable[[], int],
        became_low: Callable[[], None],
    ) -> None:
        self._files = files
        self._path = path
        self._configured_bytes = reserve_bytes
        self._became_low = became_low
        self.changed: Callable[[], None] = lambda: None
        self._timer: asyncio.TimerHandle | None = None
        self._ran_out = False
        self.is_low = False
        self.free_bytes = self.total_bytes = 0

    @property
    def reserve_bytes(self) -> int:
        """The bytes that stay free: as configured, or the default, which is a tenth of the disk at most."""
        return reserved(self._configured_bytes(), self.total_bytes)

    @property
    def refusal(self) -> tuple[ErrorCode, str]:
        return REFUSED_AS, (
            f"No space left for records: the disk of {self._path} has {self.free_bytes} bytes free, and "
            f"{self.reserve_bytes} of them are kept for internal use (penstock.disk.reserve.bytes). Delete records or "
            "topics, keep them for a shorter time (retention.ms, retention.bytes), or enlarge the disk; what is sent "
            "again after that is taken"
        )

    def start(self) -> None:
        self.check()
        self._timer = asyncio.get_running_loop().call_later(self._pause(), self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def measure(self) -> tuple[int, int]:
        """Free and total bytes of the disk at this moment."""
        return self._files.free_bytes(self._path), self._files.total_bytes(self._path)

    def check(self) -> None:
        """Look now."""
        try:
            self.free_bytes, self.total_bytes = self.measure()
        except OSError as error:
            # If the disk does not answer, its writes and syncs will report what is wrong with it.
            log.warning("the free space of the disk is not known", extra={"path": self._path, "error": str(error)})
            return
        reserve = self.reserve_bytes
        # Refusing ends somewhat above the reserve, or it would begin and end with every segment that goes.
        enough = reserve + reserve // 10 if self.is_low else reserve
        self._set(self.free_bytes < enough)
        self._ran_out = False

    def ran_out(self) -> None:
        """A write has found no room, whatever the file system says of itself: nothing more until the next look, which
        is soon."""
        if not self._ran_out:
            self.check()
            self._ran_out = True
            self._set(True)
            if self._timer is not None:
                self.close()
                self._timer = asyncio.get_running_loop().call_later(self._pause(), self._look)

    def _set(self, is_low: bool) -> None:
        facts = {"path": self._path, "free_bytes": self.free_bytes, "reserve_bytes": self.reserve_bytes}
        if is_low and not self.is_low:
            log.error("the disk is full: records are refused until there is room again", extra=facts)
        elif self.is_low and not is_low:
            log.info("the disk has room again: records are taken", extra=facts)
        if is_low != self.is_low:
            self.is_low = is_low
            self.changed()
        if is_low:
            self._became_low()

    def _look(self) -> None:
        self.check()
        self._timer = asyncio.get_running_loop().call_later(self._pause(), self._look)

    def _pause(self) -> float:
        if self.is_low:
            return WHILE_LOW_SECONDS
        headroom = self.free_bytes - self.reserve_bytes
        return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, headroom / FASTEST_BYTES_PER_SECOND))


def reserved(configured_bytes: int, total_bytes: int) -> int:
    """What stays free of a disk of this size: as configured, or if that is below 0 the default."""
    return min(DEFAULT_RESERVE_BYTES, total_bytes // 10) if configured_bytes < 0 else configured_bytes
