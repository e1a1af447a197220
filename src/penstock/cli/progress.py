"""`Progress` shows the progress of long work on a terminal's standard error, once the work has taken a moment."""

import sys
from time import monotonic
from types import TracebackType
from typing import Any, Self

from penstock.cli.output import obeys_escapes

# Work that is over sooner shows no progress.
QUIET_SECONDS = 1.0
BETWEEN_SECONDS = 0.2


class Progress:
    """A line of progress, with a total also of how much is left. What is counted beside it are messages, or another
    unit. It shows nothing unless `wanted`, and standard error is a terminal to which escapes may be sent."""

    def __init__(self, label: str, *, total: int | None = None, wanted: bool = True, unit: str = "messages") -> None:
        self._label = label
        self._unit = unit
        self._total = total
        self._is_wanted = wanted and obeys_escapes(sys.stderr)
        self._show_at = monotonic() + QUIET_SECONDS
        self._done = 0
        self._messages = 0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, done: int, messages: int) -> None:
        """Count `done` more of the total, and as many more messages, or whatever is counted."""
        self._done += done
        self._messages += messages
        if self._is_wanted and (now := monotonic()) >= self._show_at:
            self._show_at = now + BETWEEN_SECONDS
            self._show()

    def _show(self) -> None:
        if self._bar is None:
            self._start()
        self._bar.update(self._task, completed=self._done, messages=f"{self._messages:,}", refresh=True)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn(f"{{task.fields[messages]}} {self._unit}"),
            TimeElapsedColumn(),
            *([TimeRemainingColumn()] if self._total else []),
        ]
        self._bar = Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True)
        self._task = self._bar.add_task(self._label, total=self._total, messages="0")
        self._bar.start()
