"""The matrix of clients: every test of it is a cell, and what became of them is printed at the end of a test run."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from io import StringIO
from typing import Final, Literal, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tools.clients import clients
from tools.clients.client import At
from tools.clients.clients import AIOKAFKA, CONFLUENT_KAFKA, JAVA_TOOLS, KAFKA_PYTHON, KAFKAJS, KCAT
from tools.clients.records import TOPICS

CLIENTS = {client.name: client for client in (CONFLUENT_KAFKA, KAFKA_PYTHON, AIOKAFKA, KCAT, KAFKAJS, JAVA_TOOLS)}
CODECS = tuple(TOPICS)
ACKS = ("0", "1", "all")

RIGHT = "[green]✓[/]"
WRONG = "[bold red]✗[/]"
NOT_RUN = "[dim]·[/]"

WIDTH = 120


ALL: Final = bool(os.environ.get("SOAK_GROUPS"))
"""Whether there is time for all cells: also for those that are usually left out."""
ALONE: Final = ""
CLUSTER: Final = "cluster"
"""Where a test is run: against one broker, or against three by the address of one that is not the controller."""


class Cell(NamedTuple):
    """A test: its table, the client, and within the column its mark, one of several or the only one."""

    table: str
    client: str
    column: str
    mark: str = ""
    where: str = ALONE

    def __str__(self) -> str:
        parts = (self.client, self.column, self.mark, self.where)
        return "-".join(part.replace(" ", "_") for part in parts if part)


@dataclass(frozen=True, slots=True)
class Layout:
    title: str
    columns: Sequence[str]
    marks: Sequence[str] = ("",)
    initials: Sequence[str] = ("",)
    """What stands over the marks."""
    on_cluster: Callable[[str, str], bool] = lambda column, mark: True
    """Which columns and marks usually run against a cluster, too."""

    def cells(self) -> list[Cell]:
        alone = [
            Cell(self.title, client.name, column, mark)
            for client in CLIENTS.values()
            for column in self.columns
            for mark in self.marks
        ]
        cluster = [cell._replace(where=CLUSTER) for cell in alone if ALL or self.on_cluster(cell.column, cell.mark)]
        return alone + cluster


MIXED = "mixed"
"""Instead of a client: members of all of them in one group."""
GROUPS = "Groups"
GROUP_CLIENTS = (*(client.name for client in clients.GROUP_CLIENTS), MIXED)


class Scenario(StrEnum):
    """What members of groups go through."""

    SHARE = "share"
    KILL = "kill -9"
    MANY = "10 on 30"
    IDLE = "12 on 8"
    STATIC = "static"
    STOPPED = "stopped"
    PARTITIONS = "partitions"
    ASSIGNORS = "assignors"
    RESTART = "restart"


SIZES = {"1 B": 1, "1 KB": 1024, "100 KB": 100 * 1024, "1 MB": 1_048_500}
"""Of values; the last fits just into a batch of message.max.bytes."""
TOO_LARGE = "too large"
CONTENTS = ("key", "headers", "tombstone", "empty value")

ON_CLUSTER = ("1 B", "1 MB", TOO_LARGE, "headers")

PRODUCE = Layout(
    "Produce", CODECS, marks=ACKS, initials=ACKS, on_cluster=lambda codec, acks: acks == "all" or codec == "none"
)
FETCH = Layout(
    "Fetch",
    CODECS,
    marks=tuple(at.value for at in At),
    initials=("b", "e", "o", "t"),
    on_cluster=lambda codec, at: at == At.BEGINNING or codec == "none",
)
SEND = Layout("Messages sent", (*SIZES, TOO_LARGE, *CONTENTS), on_cluster=lambda column, _: column in ON_CLUSTER)
READ = Layout("Messages read", (*SIZES, *CONTENTS), on_cluster=lambda column, _: column in ON_CLUSTER)
COMPACTED = Layout(
    "Compacted",
    ("from beginning", "from a gap", "to the end", "at the end", "no key"),
    on_cluster=lambda column, _: column in {"from beginning", "to the end", "no key"},
)

CAPTIONS = {
    PRODUCE.title: "with acks 0, 1 and all: stored once, in order, by the codec, as our own reader finds it",
    FETCH.title: "from beginning, end, offset and timestamp: batches of five clients and our own",
    SEND.title: f"values of {', '.join(f'{size:,}' for size in SIZES.values())} bytes; too large: the client says so",
    READ.title: "what our own producer sent",
    COMPACTED.title: "latest values alone, over gaps in the offsets, and what comes when a reader stands behind them; "
    "no key: the client says that it was refused",
    GROUPS: "every message is processed; the number is of those that came twice, as a member was killed or stopped "
    "before it committed",
}


def render(
    outcomes: Iterable[tuple[Cell, bool]], versions: dict[str, str], duplicates: dict[Cell, int], *, colors: bool
) -> str:
    """The tables of which at least one cell was run."""
    results = dict(outcomes)
    system: Literal["standard"] | None = "standard" if colors else None
    console = Console(file=StringIO(), width=WIDTH, force_terminal=colors, color_system=system, highlight=False)
    for where in (ALONE, CLUSTER):
        run = {cell: passed for cell, passed in results.items() if cell.where == where}
        for layout in (PRODUCE, FETCH, SEND, READ, COMPACTED):
            if any(cell.table == layout.title for cell in run):
                console.print(_table(layout, where, run, versions))
        if any(cell.table == GROUPS for cell in run):
            console.print(_table_of_groups(where, run, duplicates))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def _table(layout: Layout, where: str, results: dict[Cell, bool], versions: dict[str, str]) -> Table:
    table = Table(
        title=_title(layout.title, where), caption=CAPTIONS[layout.title], box=SIMPLE_HEAD, title_style="bold"
    )
    table.add_column("client")
    if layout is PRODUCE:
        table.add_column("version")
    for column in layout.columns:
        table.add_column(f"{column}\n{' '.join(layout.initials)}".rstrip(), justify="center")
    for client in CLIENTS.values():
        row = [client.name, versions.get(client.name, "")] if layout is PRODUCE else [client.name]
        for column in layout.columns:
            marks = [
                _mark(results.get(Cell(layout.title, client.name, column, mark, where)), under=initial)
                for mark, initial in zip(layout.marks, layout.initials, strict=True)
            ]
            row.append(" ".join(marks))
        table.add_row(*row)
    return table


def _table_of_groups(where: str, results: dict[Cell, bool], duplicates: dict[Cell, int]) -> Table:
    table = Table(title=_title(GROUPS, where), caption=CAPTIONS[GROUPS], box=SIMPLE_HEAD, title_style="bold")
    table.add_column("client")
    for scenario in Scenario:
        table.add_column(scenario, justify="center")
    for client in GROUP_CLIENTS:
        row = [client]
        for scenario in Scenario:
            run = [cell for cell in results if cell[:3] == (GROUPS, client, scenario)]
            marks = [_mark(results[cell], under="x") for cell in run] or [NOT_RUN]
            twice = sum(duplicates.get(cell, 0) for cell in run)
            row.append(" ".join([*marks, str(twice)] if twice else marks))
        table.add_row(*row)
    return table


def _title(title: str, where: str) -> str:
    return f"{title}, by a broker of three that is not the controller" if where == CLUSTER else title


def _mark(result: bool | None, *, under: str) -> str:
    mark = NOT_RUN if result is None else RIGHT if result else WRONG
    return mark + " " * (len(under) - 1)
