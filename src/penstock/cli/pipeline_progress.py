"""The progress of a pipeline on a terminal: rows, their rate, and how many are left."""

import sys
from types import TracebackType
from typing import Any, Self


class PipelineProgress:
    """Shows nothing unless standard error is a terminal."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._is_wanted = sys.stderr.isatty()
        self._bar: Any = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, stage: str, done: int, total: int) -> None:
        """Each stage has a line of its own."""
        if not self._is_wanted:
            return
        if self._bar is None:
            self._start()
        if stage not in self._tasks:
            self._tasks[stage] = self._bar.add_task(stage, total=total, left="")
        left = f"{max(0, total - done):,} left"
        self._bar.update(self._tasks[stage], completed=done, total=max(total, done), left=left)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
        from rich.text import Text

        noun = self._noun

        class Rate(ProgressColumn):
            def render(self, task: Any) -> Text:
                speed = task.finished_speed or task.speed
                return Text("" if speed is None else f"{speed:,.0f} {noun}/s")

        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn(f"{{task.completed:,.0f}} {noun}"),
            Rate(),
            TextColumn("{task.fields[left]}"),
            TimeElapsedColumn(),
        ]
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()
