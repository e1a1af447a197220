"""Results: tables for the reader, and the same numbers as JSON for whoever compares runs."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as RichTable


@dataclass(slots=True, frozen=True)
class Target:
    """What one column of a row is held against."""

    column: str
    limit: float
    at_most: bool

    def is_met(self, values: Mapping[str, str | float]) -> bool:
        value = values[self.column]
        assert isinstance(value, float), "a target is held against a number"
        return value <= self.limit if self.at_most else value >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.limit:g}"


@dataclass(slots=True, frozen=True)
class Row:
    """Values by column; without targets they are for information."""

    values: dict[str, str | float]
    targets: tuple[Target, ...] = ()

    @property
    def is_met(self) -> bool | None:
        return all(target.is_met(self.values) for target in self.targets) if self.targets else None

    @property
    def target(self) -> str:
        return ", ".join(f"{target.column} {target}" for target in self.targets)


@dataclass(slots=True, frozen=True)
class Table:
    """The rows of one question; `how` says in a sentence or two what was measured."""

    title: str
    how: str
    rows: list[Row]


def show(table: Table, console: Console) -> None:
    has_targets = any(row.targets for row in table.rows)
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, value in table.rows[0].values.items():
        drawn.add_column(column, justify="left" if isinstance(value, str) else "right")
    if has_targets:
        drawn.add_column("target")
        drawn.add_column("met")
    for row in table.rows:
        cells = [value if isinstance(value, str) else format_number(value) for value in row.values.values()]
        if has_targets:
            targets = dict.fromkeys(map(str, row.targets))
            cells += [", ".join(targets), {True: "[green]yes", False: "[red]no", None: ""}[row.is_met]]
        drawn.add_row(*cells)
    console.print(f"\n[bold]{table.title}[/bold]\n{table.how}", drawn)


def format_number(value: float) -> str:
    """Three digits, or all of those before the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def save(tables: Sequence[Table], folder: Path) -> Path:
    """Write the results of a run under its time, and return where."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    path = folder / f"{now:%Y-%m-%dT%H-%M-%SZ}.json"
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}
    run = {
        "date": now.isoformat(timespec="seconds"),
        "machine": machine,
        "tables": [_as_json(table) for table in tables],
    }
    path.write_text(json.dumps(run, indent=2, ensure_ascii=False) + "\n")
    return path


def _as_json(table: Table) -> dict[str, Any]:
    rows = [{**row.values, "target": row.target, "met": row.is_met} for row in table.rows]
    return {"title": table.title, "how": table.how, "rows": rows}
