"""Reports results as tables for the reader, and as files to compare runs by: the numbers as JSON, the tables as
Markdown."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
        """Named by their columns, unless that is called measured already."""
        return ", ".join(f"{target.column} {target}".removeprefix("measured ") for target in self.targets)


@dataclass(slots=True, frozen=True)
class Table:
    """The rows of one question; `how` says in a sentence or two what was measured. `raw` is every single measurement,
    for the file of numbers alone."""

    title: str
    how: str
    rows: list[Row]
    raw: dict[str, Any] = field(default_factory=dict)


def show(table: Table, console: Console) -> None:
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in _columns(table):
        drawn.add_column(column, justify="right" if _is_numeric(table, column) else "left")
    for row in table.rows:
        cells = _cells(table, row)
        if row.is_met is not None:
            cells[-1] = "[green]yes" if row.is_met else "[red]no"
        drawn.add_row(*cells)
    console.print(f"\n[bold]{table.title}[/bold]\n{table.how}", drawn)


def markdown(table: Table) -> str:
    columns = _columns(table)
    rule = ["---:" if _is_numeric(table, column) else "---" for column in columns]
    lines = [columns, rule, *(_cells(table, row) for row in table.rows)]
    drawn = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"## {table.title}\n\n{table.how}\n\n{drawn}\n"


def format_number(value: float) -> str:
    """Three digits, or all of those before the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def judge(tables: Sequence[Table]) -> Table | None:
    """All targets on one page, with what was measured."""
    rows = []
    for table in tables:
        for row in table.rows:
            what = next((value for value in row.values.values() if isinstance(value, str)), "")
            by = row.values.get("by", what)
            what = what if by == what else f"{what}: {by}"
            for target in row.targets:
                measured = {"of": table.title, "what": what, "figure": target.column}
                held = Target("measured", target.limit, target.at_most)
                rows.append(Row({**measured, "measured": row.values[target.column]}, (held,)))
    if not rows:
        return None
    return Table("Targets", f"{sum(bool(row.is_met) for row in rows)} of {len(rows)} are met.", rows)


def save(name: str, tables: Sequence[Table], folder: Path, *, conditions: str = "") -> list[Path]:
    """Write the results of a run, in place of those of the last one; returns where."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}
    run = {
        "date": now.isoformat(timespec="seconds"),
        "machine": machine,
        "conditions": conditions,
        "tables": [_as_json(table) for table in tables],
    }
    numbers, text = folder / f"{name}.json", folder / f"{name}.md"
    numbers.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")
    plot = f"![Plot of {name}]({name}.png)\n\n" if (folder / f"{name}.png").exists() else ""
    where = f"{now:%Y-%m-%d}, Python {machine['python']}, {machine['system']}, {machine['cores']} cores"
    head = f"# {name}\n\n{where}{f'; {conditions}' if conditions else ''}.\n\n"
    text.write_text(head + plot + "\n".join(map(markdown, tables)))
    return [numbers, text]


def _columns(table: Table) -> list[str]:
    columns = list(table.rows[0].values)
    return [*columns, "target", "met"] if any(row.targets for row in table.rows) else columns


def _is_numeric(table: Table, column: str) -> bool:
    return any(isinstance(row.values.get(column), float | int) for row in table.rows)


def _cells(table: Table, row: Row) -> list[str]:
    cells = [value if isinstance(value, str) else format_number(value) for value in row.values.values()]
    if not any(each.targets for each in table.rows):
        return cells
    met = {True: "yes", False: "**no**", None: ""}[row.is_met]
    return [*cells, row.target, met]


def _as_json(table: Table) -> Any:
    rows = [{**row.values, "target": row.target, "met": row.is_met} for row in table.rows]
    told: dict[str, Any] = {"title": table.title, "how": table.how, "rows": rows}
    return _rounded({**told, "raw": table.raw} if table.raw else told)


def _rounded(value: Any) -> Any:
    """Six digits are more than any measurement has."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value
