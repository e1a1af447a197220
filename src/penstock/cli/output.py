"""What commands print: the same rows as a table for people or as JSON for programs."""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import click

Row = Mapping[str, object]
"""Cells by the name of their column, which is the field's name in JSON."""

NOTHING = "-"


class Size(int):
    """Bytes: a number in JSON, rounded in a table."""

    def __str__(self) -> str:
        if self < 1024:
            return f"{int(self)} B"
        amount, units = self / 1024, ["KiB", "MiB", "GiB", "TiB", "PiB"]
        while amount >= 1023.95 and len(units) > 1:
            amount /= 1024
            units.pop(0)
        return f"{amount:.1f} {units[0]}"


class Timestamp(int):
    """Milliseconds since 1970: a number in JSON, a date in UTC in a table; below 0 is none."""

    def __str__(self) -> str:
        if self < 0:
            return NOTHING
        seconds, milliseconds = divmod(int(self), 1000)
        try:
            date = datetime.fromtimestamp(seconds, UTC)
        except (ValueError, OverflowError, OSError):
            # Producers may send any number, also one beyond the year 9999.
            return f"{int(self)} ms"
        return f"{date:%Y-%m-%dT%H:%M:%S}.{milliseconds:03}Z"


class Duration(float):
    """Seconds: a number in JSON, in its largest units in a table; infinite is never."""

    def __str__(self) -> str:
        if math.isinf(self):
            return "never"
        if 0 < self < 10:
            return f"{float(self):.1f} s"
        seconds = round(self)
        for unit, size, finer, finer_size in (("d", 86_400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
            if seconds >= size:
                rest = seconds % size // finer_size
                return f"{seconds // size}{unit} {rest}{finer}" if rest else f"{seconds // size}{unit}"
        return f"{seconds} s"


class Rate(float):
    """So many in a second."""

    def __str__(self) -> str:
        return f"{float(self):,.1f}/s"


def show_json(value: object, *, indent: int | None = 2) -> None:
    """Without an indent it is one line, as for a row of many."""
    import json

    click.echo(json.dumps(value, indent=indent, ensure_ascii=False))


def show_table(columns: Sequence[str], rows: Iterable[Row], *, indent: int = 0) -> None:
    """On a terminal it is fitted to the width; elsewhere every row is one line, whole."""
    titles = [column.replace("_", " ").upper() for column in columns]
    cells = [[row[column] for column in columns] for row in rows]
    numeric = [all(isinstance(row[number], int | float | None) for row in cells) for number in range(len(columns))]
    texts = [[cell_text(cell) for cell in row] for row in cells]
    if sys.stdout.isatty():
        _show_rich_table(titles, texts, numeric, indent)
        return
    widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
    for line in (titles, *texts):
        padded = [
            text.rjust(width) if is_number else text.ljust(width)
            for text, width, is_number in zip(line, widths, numeric, strict=True)
        ]
        click.echo(" " * indent + "  ".join(padded).rstrip())


def show_fields(fields: Mapping[str, object]) -> None:
    """The fields of one thing, each on its line."""
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        click.echo(f"{name.replace('_', ' ').ljust(width)}  {cell_text(value)}")


def cell_text(cell: object) -> str:
    match cell:
        case None:
            return NOTHING
        case bool():
            return "yes" if cell else "no"
        case Size() | Timestamp() | Duration() | Rate():
            return str(cell)
        case int():
            return f"{cell:,}"
        case list() | tuple():
            return ",".join(map(str, cell)) or NOTHING
        case bytes():
            return bytes_text(cell)
        case _:
            return printable(str(cell))


def bytes_text(data: bytes) -> str:
    """Text if it is some, else hexadecimal."""
    try:
        return printable(data.decode())
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def id_text(topic_id: bytes) -> str | None:
    """A topic id as Kafka's tools write it; None if it is zero, as from brokers that know no ids."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(topic_id).decode().rstrip("=") if any(topic_id) else None


def printable(text: str) -> str:
    """Without anything that a terminal would obey."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def bytes_field(name: str, data: bytes | None) -> dict[str, object]:
    """Bytes as a field of JSON: text if it is some, else in base64 under another name."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {f"{name}_base64": b64encode(data).decode()}


def _show_rich_table(titles: Sequence[str], rows: list[list[str]], numeric: Sequence[bool], indent: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title, is_number in zip(titles, numeric, strict=True):
        table.add_column(title, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        # As text: what a topic is called may look like markup.
        table.add_row(*map(Text, row))
    Console(highlight=False).print(Padding(table, (0, 0, 0, indent)))
