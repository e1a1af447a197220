"""A turn gathers what the requests of one turn of the loop bring: each partition is written once, those who wait for
more to read are looked at, and then every connection sends its replies with one call."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from penstock.machines.flush_urgency import Urgency
from penstock.storage.log.segment import CutBackError

log = logging.getLogger(__name__)


class Corked(Protocol):
    def send_outbox(self) -> None: ...


class Staging(Protocol):
    """A partition that has batches to be written in this turn."""

    @property
    def urgency(self) -> Urgency: ...

    @property
    def failure(self) -> BaseException | None: ...

    def write_staged(self, now_ms: int) -> None: ...

    def broke(self, error: Exception) -> None: ...


class Turn:
    """A broker has one, which begins with a `hold` and ends with `settle`. `wake_flusher` is called after writes, with
    how urgent it is to flush them; `disk_broke` when a disk neither takes a write nor undoes it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        *,
        disk_broke: Callable[[OSError], None] = lambda error: None,
    ) -> None:
        self._loop = loop
        self._now_ms = now_ms
        self._disk_broke = disk_broke
        self.wake_flusher: Callable[[Urgency], None] = lambda urgency: None
        self._staged: list[Staging] = []
        self._woken: list[Callable[[], None]] = []
        self._corked: dict[Corked, None] = {}
        self._is_due = False
        # Whether requests are being read, so that the turn will be settled after them.
        self.is_held = False
        # Whether what was received stays where it is until the turn is settled. If not, it has to be copied.
        self.views_stay = False

    def seconds(self) -> float:
        """The loop's time, which only runs forward."""
        return self._loop.time()

    def hold(self, *, views_stay: bool) -> None:
        """Requests are being read, and `settle` is called after them."""
        self.is_held = True
        self.views_stay = views_stay

    def stage(self, partition: Staging) -> None:
        """The partition has batches to write, and had none so far in this turn."""
        self._staged.append(partition)
        if not self.is_held:
            self.settle_soon()

    def look_later(self, look: Callable[[], None]) -> None:
        """A reader that waits has more to read: it looks once all of this turn's batches are written."""
        self._woken.append(look)
        if not self.is_held:
            self.settle_soon()

    def cork(self, connection: Corked) -> None:
        """The connection has a reply to send."""
        self._corked[connection] = None
        if not self.is_held:
            self.settle_soon()

    def settle_soon(self) -> None:
        """Settle after the other callbacks of this turn of the loop: what they bring goes the same way."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._settle_due)

    def _settle_due(self) -> None:
        self._is_due = False
        self.settle()

    def settle(self) -> None:
        """Write, look, send."""
        self.is_held = True
        while self._staged or self._woken:
            if self._staged:
                self._write()
            woken, self._woken = self._woken, []
            for look in woken:
                try:
                    look()
                except Exception:
                    log.exception("a waiting fetch could not be looked at")
        self.is_held = self.views_stay = False
        if self._corked:
            corked, self._corked = self._corked, {}
            for connection in corked:
                try:
                    connection.send_outbox()
                except Exception:
                    # The other connections have replies, too.
                    log.exception("replies could not be sent")

    def _write(self) -> None:
        """Write the staged batches, each partition's with one call."""
        partitions, self._staged = self._staged, []
        now_ms = self._now_ms()
        urgency = Urgency.NONE
        for partition in partitions:
            try:
                partition.write_staged(now_ms)
            except Exception as error:
                # The other partitions of this turn have clients that wait, too.
                partition.broke(error)
            urgency = max(urgency, partition.urgency)
            if isinstance(failure := partition.failure, CutBackError):
                # A disk that neither takes a write nor lets a file be cut has failed.
                self._disk_broke(failure)
        self.wake_flusher(urgency)
