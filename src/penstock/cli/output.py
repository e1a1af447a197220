"""Prints rows as a table for people or as JSON for programs."""

import math
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import IO

import click

from penstock.cli.tables import lay_out, lines
from penstock.protocol.printable import printable, printable_json

Row = Mapping[str, object]
"""Cells by the name of their column, which is also the name of the field in JSON."""

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
    """Milliseconds since 1970: a number in JSON, a date in UTC in a table; below 0 stands for no time."""

    def __str__(self) -> str:
        if self < 0:
            return NOTHING
        seconds, milliseconds = divmod(int(self), 1000)
        try:
            date = datetime.fromtimestamp(seconds, UTC)
        except (ValueError, OverflowError, OSError):
            # Producers may send any number, even one beyond the year 9999.
            return f"{int(self)} ms"
        return f"{date:%Y-%m-%dT%H:%M:%S}.{milliseconds:03}Z"


class Duration(float):
    """Seconds: a number in JSON, in the largest units in a table; infinity is printed as never."""

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
    """A number per second."""

    def __str__(self) -> str:
        return f"{float(self):,.1f}/s"


def show_json(value: object, *, indent: int | None = 2) -> None:
    """Print JSON; without an indent it is one line, as for a row of many."""
    import json

    for line in json.dumps(value, indent=indent, ensure_ascii=False).split("\n"):
        click.echo(printable_json(line))


def show_table(columns: Sequence[str], rows: Iterable[Row], *, spare: Sequence[str] = ()) -> None:
    """Print a table. On a terminal it is fitted to the width, if need be without the columns that can be spared, in
    their order; elsewhere every row is one whole line."""
    titles = [column.replace("_", " ").upper() for column in columns]
    cells = [[row[column] for column in columns] for row in rows]
    numeric = [all(isinstance(row[number], int | float | None) for row in cells) for number in range(len(columns))]
    texts = [[cell_text(cell) for cell in row] for row in cells]
    width = terminal_width() if sys.stdout.isatty() else sys.maxsize
    layout = lay_out(titles, texts, spare=[columns.index(name) for name in spare if name in columns], width=width)
    if layout.widths is None:
        for number, row in enumerate(texts):
            if number:
                click.echo()
            show_fields(dict(zip(columns, row, strict=True)))
        return
    is_styled = obeys_escapes(sys.stdout)
    for number, row in enumerate([titles, *texts]):
        chosen = [row[column] for column in layout.columns]
        for line in lines(chosen, layout.widths, [numeric[column] for column in layout.columns]):
            click.echo(click.style(line, bold=True) if is_styled and not number else line)
    if left_out := [name.replace("_", " ") for number, name in enumerate(columns) if number not in layout.columns]:
        click.echo(wrapped(f"not shown: {', '.join(left_out)} (--output json has all)"), err=True)


def show_fields(fields: Mapping[str, object]) -> None:
    """Print the fields of one thing, each on its line."""
    names = [printable(name).replace("_", " ") for name in fields]
    width = max(map(len, names), default=0)
    for name, value in zip(names, fields.values(), strict=True):
        click.echo(f"{name.ljust(width)}  {cell_text(value)}")


def show_sentence(text: str, *, label: str = "", colour: str | None = None, indent: str = "") -> None:
    """Print a sentence, which begins with a label in colour where there are colours. On a terminal it is broken between
    words; elsewhere it is one line."""
    whole = f"{indent}{label}{printable(text)}"
    if sys.stdout.isatty():
        further = indent or "  "
        width = terminal_width()
        whole = textwrap.fill(whole, width, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)
    if label and obeys_escapes(sys.stdout):
        whole = whole.replace(label.rstrip(), click.style(label.rstrip(), fg=colour, bold=True), 1)
    click.echo(whole)


def obeys_escapes(stream: IO[str]) -> bool:
    """Whether colours, bold letters and a cursor that moves may be sent: to a terminal that knows them, unless the user
    has said otherwise (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int:
    return shutil.get_terminal_size().columns


def wrapped(text: str) -> str:
    """A sentence for standard error, which a terminal would break in the middle of words."""
    if not sys.stderr.isatty():
        return text
    return textwrap.fill(text, terminal_width(), break_long_words=False, break_on_hyphens=False)


def warn(text: object) -> None:
    click.echo(wrapped(f"Warning: {printable(str(text))}"), err=True)


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
            return printable(",".join(map(str, cell))) or NOTHING
        case bytes():
            return bytes_text(cell)
        case _:
            return printable(str(cell))


def bytes_text(data: bytes) -> str:
    """Bytes as text if they are UTF-8, else in hexadecimal."""
    try:
        return printable(data.decode())
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def id_text(topic_id: bytes) -> str | None:
    """A topic id as Kafka's tools write it; None for zero, which brokers without topic ids send."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(topic_id).decode().rstrip("=") if any(topic_id) else None


def bytes_field(name: str, data: bytes | None) -> dict[str, object]:
    """Bytes as a field of JSON: text if they are UTF-8, else base64 under another name."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {f"{name}_base64": b64encode(data).decode()}
