"""`penstock log` prints segments, batches, indexes and checkpoints of a data folder."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from penstock.cli.help import examples
from penstock.cli.lazy import NearGroup
from penstock.cli.options import output_option
from penstock.cli.output import NOTHING, Size, Timestamp, bytes_field, cell_text, id_text, terminal_width
from penstock.protocol.printable import printable, printable_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cli.log.view import BatchView, IndexView, PartitionView, View
    from penstock.protocol.batch import BatchHeader
    from penstock.protocol.records import Record

# Titles and fixed widths of the columns, as batches are printed while they are read; below 0 means left-aligned.
_COLUMNS = {
    "POSITION": 10,
    "FIRST": 10,
    "LAST": 10,
    "COUNT": 6,
    "SIZE": 9,
    "CODEC": -6,
    "CRC": -3,
    "EPOCH": 5,
    "PRODUCER": -12,
    "FROM": -24,
    "TO": -24,
    "FLAGS": -5,
}
# What a narrow terminal leaves out, in this order.
_SPARE = ("TO", "PRODUCER", "EPOCH", "POSITION", "CODEC", "FROM", "SIZE", "FLAGS")
_INDENT = "    "


@click.group(cls=NearGroup)
def log() -> None:
    """Look into the files of a data folder."""


@log.command(epilog=examples("penstock log dump ./data", "penstock log dump ./data/logs/orders-0 --records"))
@click.argument("path", type=click.Path(exists=True, file_okay=False))
@click.option("--records", is_flag=True, help="Also the records of each batch.")
@click.option("--entries", is_flag=True, help="Also the entries of indexes that are right.")
@output_option
def dump(path: str, records: bool, entries: bool, output: str) -> None:
    """Show segments, batches, indexes and checkpoints.

    PATH is a broker's data folder or the folder of one partition, in use or a copy: nothing is locked and nothing is
    changed. Producers are shown as id/epoch/sequence. JSON is an object a line. The exit code is 1 if something is
    damaged.
    """
    from penstock.cli.log.view import NoLogError, walk
    from penstock.storage.files import RealFiles

    printer = _JsonPrinter(records, entries) if output == "json" else _TextPrinter(records, entries)
    damaged = False
    try:
        for view in walk(RealFiles(), path):
            damaged = is_damaged(view) or damaged
            printer.show(view)
    except NoLogError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise click.ClickException(f"cannot read {error.filename or path}: {error.strerror}") from error
    if damaged:
        raise click.ClickException("something is damaged: see above")


def is_damaged(view: "View") -> bool:
    """Whether a view shows damage. A wrong index is no damage, because it is a cache."""
    from penstock.cli.log.view import BatchView, FaultView, PartitionView

    match view:
        case PartitionView():
            return bool(view.problems)
        case BatchView():
            return view.problem is not None
        case FaultView():
            return view.is_damage
        case _:
            return False


class _TextPrinter:
    def __init__(self, records: bool, entries: bool) -> None:
        self._records = records
        self._entries = entries
        self._has_titles = False
        self._columns = columns_in(terminal_width()) if sys.stdout.isatty() else list(_COLUMNS)

    def show(self, view: "View") -> None:
        from penstock.cli.log.view import BatchView, FaultView, IndexView, PartitionView, SegmentView

        match view:
            case PartitionView():
                self._show_partition(view)
            case SegmentView():
                self._has_titles = False
                click.echo(f"  {view.path.rpartition('/')[2]}, {Size(view.size)}")
            case BatchView():
                self._show_batch(view)
            case FaultView():
                what = "DAMAGED: " if view.is_damage else ""
                click.echo(f"    {what}{view.reason}")
            case IndexView():
                self._show_index(view)

    def _show_partition(self, view: "PartitionView") -> None:
        click.echo(f"{view.name} in {view.path}")
        facts = {
            "topic id": None if view.identity is None else id_text(view.identity),
            "log start": view.log_start,
            "recovery point": view.recovery_point,
            "leader epochs": [f"{epoch} from {start}" for epoch, start in view.leader_epochs],
            "snapshots": [f"at {offset}" for offset in view.snapshots],
            "producers": view.producers,
        }
        told = [f"{name} {cell_text(value)}" for name, value in facts.items() if value not in (None, [])]
        if told:
            click.echo(f"  {'; '.join(told)}")
        for problem in view.problems:
            click.echo(f"  DAMAGED: {problem}")

    def _show_batch(self, view: "BatchView") -> None:
        if not self._has_titles:
            self._has_titles = True
            click.echo(_row({name: name for name in self._columns}))
        header = view.header
        cells = {
            "POSITION": str(view.position),
            "FIRST": str(header.base_offset),
            "LAST": str(header.last_offset),
            "COUNT": str(header.record_count),
            "SIZE": str(header.size),
            "CODEC": codec_text(header),
            "CRC": "ok" if view.problem is None else "BAD",
            "EPOCH": str(header.leader_epoch),
            "PRODUCER": producer_text(header),
            "FROM": str(Timestamp(header.base_timestamp)),
            "TO": str(Timestamp(header.max_timestamp)),
            "FLAGS": ",".join(flags(header)),
        }
        click.echo(_row({name: cells[name] for name in self._columns}))
        if view.problem is not None:
            click.echo(f"      DAMAGED: {view.problem}")
        elif self._records:
            for record in records_of(view):
                click.echo(f"      {record_text(record) if not isinstance(record, str) else record}")

    def _show_index(self, view: "IndexView") -> None:
        if view.entries is None:
            click.echo(f"    index: {view.problem}; it is built anew when it is needed")
            return
        wrong = len(view.wrong)
        verdict = "all right" if not wrong else f"{wrong} wrong; it is built anew when it is needed"
        click.echo(f"    index: {len(view.entries)} entries, {verdict}")
        for entry in view.entries if self._entries else view.wrong:
            click.echo(
                f"      offset {entry.offset} at byte {entry.position}, before it nothing newer than "
                f"{Timestamp(entry.max_timestamp)}{f': {entry.problem}' if entry.problem else ''}"
            )


class _JsonPrinter:
    def __init__(self, records: bool, entries: bool) -> None:
        from msgspec.json import Encoder

        self._records = records
        self._entries = entries
        self._encode = Encoder().encode

    def show(self, view: "View") -> None:
        for fields in self._objects(view):
            click.echo(printable_json(self._encode(fields).decode()))

    def _objects(self, view: "View") -> "Iterator[dict[str, object]]":
        from penstock.cli.log.view import BatchView, FaultView, IndexView, PartitionView, SegmentView

        match view:
            case PartitionView():
                yield {
                    "kind": "partition",
                    "name": view.name,
                    "path": view.path,
                    "topic_id": None if view.identity is None else id_text(view.identity),
                    "log_start": view.log_start,
                    "recovery_point": view.recovery_point,
                    "leader_epochs": [{"epoch": epoch, "start": start} for epoch, start in view.leader_epochs],
                    "snapshots": view.snapshots,
                    "producers": view.producers,
                    "problems": view.problems,
                }
            case SegmentView():
                yield {"kind": "segment", "path": view.path, "base_offset": view.base_offset, "size": view.size}
            case BatchView():
                yield {
                    "kind": "batch",
                    "position": view.position,
                    **header_fields(view.header),
                    "problem": view.problem,
                }
                if self._records and view.problem is None:
                    for record in records_of(view):
                        yield {"kind": "problem", "text": record} if isinstance(record, str) else record_fields(record)
            case FaultView():
                yield {"kind": "fault", "reason": view.reason, "is_damage": view.is_damage}
            case IndexView():
                yield {
                    "kind": "index",
                    "entries": None if view.entries is None else len(view.entries),
                    "wrong": len(view.wrong),
                    "problem": view.problem,
                }
                for entry in view.entries or () if self._entries else view.wrong:
                    yield {
                        "kind": "index entry",
                        "offset": entry.offset,
                        "position": entry.position,
                        "max_timestamp": entry.max_timestamp,
                        "problem": entry.problem,
                    }


def records_of(view: "BatchView") -> "Iterator[Record | str]":
    """The records of a batch whose checksum is right. A text stands in place of those that cannot be read."""
    from penstock.protocol.errors import DecodeError
    from penstock.protocol.records import iterate

    try:
        yield from iterate(view.data)
    except DecodeError as error:
        yield f"the records cannot be read: {error}"


def record_text(record: "Record") -> str:
    headers = [f"{printable(name)}={cell_text(value)}" for name, value in record.headers]
    parts = [
        str(record.offset),
        str(Timestamp(record.timestamp)),
        f"key {cell_text(record.key)}",
        f"value {cell_text(record.value)}",
        *([f"headers {','.join(headers)}"] if headers else []),
    ]
    return "  ".join(parts)


def record_fields(record: "Record") -> dict[str, object]:
    return {
        "kind": "record",
        "offset": record.offset,
        "timestamp": record.timestamp,
        **bytes_field("key", record.key),
        **bytes_field("value", record.value),
        "headers": [{"name": name, **bytes_field("value", value)} for name, value in record.headers],
    }


def header_fields(header: "BatchHeader") -> dict[str, object]:
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "size": header.size,
        "codec": codec_text(header),
        "crc": f"{header.crc:08x}",
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "flags": flags(header),
    }


def flags(header: "BatchHeader") -> list[str]:
    told = {
        "transactional": header.is_transactional,
        "control": header.is_control,
        "append-time": header.is_log_append_time,
        "delete-horizon": header.has_delete_horizon,
    }
    return [name for name, is_set in told.items() if is_set]


def codec_text(header: "BatchHeader") -> str:
    from penstock.protocol.errors import DecodeError

    try:
        return header.codec.name.lower()
    except DecodeError:
        return "?"


def producer_text(header: "BatchHeader") -> str:
    if header.producer_id < 0:
        return NOTHING
    return f"{header.producer_id}/{header.producer_epoch}/{header.base_sequence}"


def columns_in(width: int) -> list[str]:
    """The columns that fit a terminal of this width."""
    columns = dict(_COLUMNS)
    for name in _SPARE:
        if len(_INDENT) + sum(abs(each) + 2 for each in columns.values()) - 2 > width:
            del columns[name]
    return list(columns)


def _row(cells: Mapping[str, str]) -> str:
    widths = [(cell, _COLUMNS[name]) for name, cell in cells.items()]
    return (
        _INDENT + "  ".join(cell.rjust(width) if width > 0 else cell.ljust(-width) for cell, width in widths).rstrip()
    )
