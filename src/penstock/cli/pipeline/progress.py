"""`PipelineProgress` shows the progress of a pipeline on a terminal: rows, their rate, and how many are left."""

import sys
from types import TracebackType
from typing import Any, Self

from penstock.cli.output import obeys_escapes


class PipelineProgress:
    """The progress of a pipeline. It shows nothing unless standard error is a terminal."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._is_wanted = obeys_escapes(sys.stderr)
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
        """Show how much of a stage is done; each stage has a line of its own."""
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

        console = Console(stderr=True)
        chosen = parts_for(console.width)
        noun = self._noun if "noun" in chosen else ""

        class Rate(ProgressColumn):
            def render(self, task: Any) -> Text:
                speed = task.finished_speed or task.speed
                return Text("" if speed is None else f"{speed:,.0f} {noun}/s".replace(" /", "/"))

        known: dict[str, ProgressColumn] = {
            "stage": TextColumn("{task.description}"),
            "bar": BarColumn(None if "noun" in chosen else 10),
            "percent": TextColumn("{task.percentage:>3.0f} %"),
            "done": TextColumn(f"{{task.completed:,.0f}} {noun}".rstrip()),
            "rate": Rate(),
            "left": TextColumn("{task.fields[left]}"),
            "elapsed": TimeElapsedColumn(),
        }
        columns = [column for name, column in known.items() if name in chosen]
        self._bar = Progress(*columns, console=console, transient=True)
        self._bar.start()


def parts_for(width: int) -> set[str]:
    """What of the progress is shown on a terminal of this width, for millions of messages, in one line."""
    parts = {"stage", "percent", "left"}
    if width >= 64:
        parts |= {"bar", "rate"}
    if width >= 100:
        parts |= {"done", "elapsed"}
    return parts | {"noun"} if width >= 120 else parts
