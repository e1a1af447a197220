"""A rated log bounds the lines that clients can cause at will: a few at once, then one a second.

The next line that is written says how many were left out; metrics count all of them.
"""

import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final
from weakref import WeakKeyDictionary

BURST: Final = 10
LINES_PER_SECOND: Final = 1.0


class LogRate:
    """Decides of each line of one kind whether it is written."""

    __slots__ = ("_left_out", "_room", "_seen_at")

    def __init__(self) -> None:
        self._room = float(BURST)
        self._seen_at: float | None = None
        self._left_out = 0

    def admit(self, now: float) -> int | None:
        """The number of lines that were left out since the last one that was written; None to leave this one out."""
        if self._seen_at is not None:
            # A clock that goes back takes nothing away.
            self._room = min(BURST, self._room + max(0.0, now - self._seen_at) * LINES_PER_SECOND)
        self._seen_at = now
        if self._room < 1:
            self._left_out += 1
            return None
        self._room -= 1
        left_out, self._left_out = self._left_out, 0
        return left_out


class RatedLog:
    """A logger whose lines have a rate: each kind of each owner its own. The rates of an owner end with the owner."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = monotonic) -> None:
        self._log = log
        self._clock = clock
        self._rates: WeakKeyDictionary[object, dict[str, LogRate]] = WeakKeyDictionary()

    def info(self, message: str, *, owner: object, kind: str = "", extra: Mapping[str, object]) -> None:
        self._write(logging.INFO, message, owner=owner, kind=kind, extra=extra)

    def warning(self, message: str, *, owner: object, kind: str = "", extra: Mapping[str, object]) -> None:
        self._write(logging.WARNING, message, owner=owner, kind=kind, extra=extra)

    def error(
        self,
        message: str,
        *,
        owner: object,
        kind: str = "",
        extra: Mapping[str, object],
        exc_info: BaseException | None = None,
    ) -> None:
        self._write(logging.ERROR, message, owner=owner, kind=kind, extra=extra, exc_info=exc_info)

    def _write(
        self,
        level: int,
        message: str,
        *,
        owner: object,
        kind: str,
        extra: Mapping[str, object],
        exc_info: BaseException | None = None,
    ) -> None:
        """Kinds, like messages, are those that the code names: there is a bounded number of them."""
        if not self._log.isEnabledFor(level):
            return
        rates = self._rates.get(owner)
        if rates is None:
            rates = self._rates[owner] = {}
        rate = rates.setdefault(f"{message} {kind}", LogRate())
        left_out = rate.admit(self._clock())
        if left_out is not None:
            facts = {**extra, "left_out": left_out} if left_out else extra
            self._log.log(level, message, extra=facts, exc_info=exc_info, stacklevel=3)
