"""`make demo`: a broker serves a real client, three brokers copy a topic and one of them is killed, then a log is
written, read, truncated, crashed and recovered, and in the end what the client sent is counted."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import cycle, islice
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from penstock.protocol.batch import split
from penstock.protocol.compression import Codec
from penstock.protocol.records import NewRecord, Record, build, iterate
from penstock.storage.data_directory import DataDirectory
from penstock.storage.errors import OffsetOutOfRangeError
from penstock.storage.files import RealFiles
from penstock.storage.log.log import Log, LogConfig
from penstock.storage.log.retention import DAY_MS
from tools.broker_demo import BrokerDemo
from tools.cluster_demo import ClusterDemo
from tools.pipeline_demo import PipelineDemo

TOPIC = "orders"
NAME = f"{TOPIC}-0"
CONFIG = LogConfig(segment_bytes=24_000)
RECORDS = 6000
IN_A_BATCH = 50
ITEMS = ("valve", "blade", "gasket", "meter", "pipe")

# Time comes in as an argument, so a demo may have its own: ten days of orders, up to now.
NOW_MS = int(datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp() * 1000)
ALL_DAYS_MS = 10 * DAY_MS

# The process that will be killed flushes this often, and from then on only writes: what it wrote last is in doubt.
BATCHES_BETWEEN_FLUSHES = 10
FLUSHES = 6
UNFLUSHED_RECORDS = 2000
AT_MOST_BATCHES = 5000
TORN_BYTES = 137


def main() -> int:
    if sys.argv[1:2] == ["append-until-killed"]:
        append_until_killed(sys.argv[2])
        return 0
    # A terminal that cannot show a bar shows a question mark.
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        console = Console(highlight=False)
        console.width = min(console.width, 100)
        BrokerDemo(folder, console).run()
        ClusterDemo(folder, console).run()
        Demo(os.path.join(folder, "log"), console).run()
        PipelineDemo(folder, console).run()
        console.print("\nDone. The temporary folder is gone.")
    return 0


def order(number: int) -> NewRecord:
    """The record that belongs at an offset, so that what comes back can be held against what was written."""
    item = ITEMS[number % len(ITEMS)]
    value = json.dumps({"order": number, "item": item, "pieces": 1 + number * 31 % 90}, separators=(",", ":"))
    # What comes after the ten days comes all at once.
    timestamp = NOW_MS - ALL_DAYS_MS + min(number, RECORDS) * ALL_DAYS_MS // RECORDS
    return NewRecord(key=b"customer-%d" % (number * 7919 % 97), value=value.encode(), timestamp=timestamp)


class SegmentLine(NamedTuple):
    """What a table says about a segment, kept because the segment itself changes."""

    file: str
    base_offset: int
    end_offset: int
    size: int
    entries: int
    newest_ms: int


class Demo:
    def __init__(self, folder: str, console: Console) -> None:
        self.folder = folder
        self.console = console
        self.open()

    def run(self) -> None:
        self.write()
        self.read()
        self.find()
        self.truncate_the_end()
        self.truncate_the_history()
        self.crash()
        self.stop_and_start()

    def open(self) -> None:
        self.data = DataDirectory(self.folder, RealFiles())
        self.log: Log = self.data.log(TOPIC, 0, CONFIG)

    def write(self) -> None:
        codecs = tuple(Codec)
        names = ", ".join(codec.name.lower() for codec in codecs)
        self.step("Write", f"{RECORDS:,} orders in batches of {IN_A_BATCH}, in turn as {names}.")
        for first, codec in zip(range(0, RECORDS, IN_A_BATCH), cycle(codecs), strict=False):
            batch = build([order(number) for number in range(first, first + IN_A_BATCH)], codec=codec)
            self.log.append(split(batch), leader_epoch=0, now_ms=order(first).timestamp)
        self.data.flusher.flush()
        self.say(f"One flush made {self.log.size:,} bytes durable. A segment takes {CONFIG.segment_bytes:,} bytes.")
        self.show_segments()

    def read(self) -> None:
        offset = 4321
        self.step("Read", f"from offset {offset:,}. The index finds the batch, and only that is decoded.")
        self.show_records(islice(records_from(self.log, offset), 4))

    def find(self) -> None:
        timestamp = NOW_MS - 2 * DAY_MS
        self.step("Find", f"the first order since {clock(timestamp)}. The time index finds the batch.")
        header = self.log.find_timestamp(timestamp)
        assert header is not None, "the orders go on until now"
        found = (record for record in records_from(self.log, header.base_offset) if record.timestamp >= timestamp)
        self.show_records(islice(found, 1))

    def truncate_the_end(self) -> None:
        offset = 5025
        self.step("Truncate the end", f"at offset {offset:,}, as a follower of a new leader does.")
        before = self.segment_lines()
        self.log.truncate(offset)
        self.say(f"The log is cut before the batch that holds it, and ends at {self.log.end_offset:,}.")
        self.show_changes(before)

    def truncate_the_history(self) -> None:
        offset = 1000
        self.step("Truncate the history", f"up to offset {offset:,}, then by retention of 7 days.")
        before = self.segment_lines()
        self.log.advance_start(offset)
        deleted = len(before) - len(self.segment_lines())
        self.say(f"Up to an offset: the log starts at {self.log.start_offset:,}. Files deleted: {deleted}.")
        expired = self.log.find_expired(NOW_MS)
        if expired:
            self.log.advance_start(expired[-1].end_offset)
        self.say(f"By retention: the log starts at {self.log.start_offset:,}. Files deleted: {len(expired)}.")
        self.show_changes(before)
        try:
            self.log.read(offset, max_bytes=1)
        except OffsetOutOfRangeError as error:
            self.say(f"A reader of the past is told: {error}.")

    def crash(self) -> None:
        self.step("Crash", "for real: another process appends in a loop, and SIGKILL ends it.")
        self.data.close()
        flushed, written = run_and_kill(self.folder)
        self.say(f"It flushed up to {flushed:,}, wrote on without a flush, and was killed at {written:,}.")
        torn = newest_segment(f"{self.folder}/{NAME}")
        os.truncate(torn, os.stat(torn).st_size - TORN_BYTES)
        self.say(
            "A kill loses nothing that the operating system has already. A power cut does, so the last write is torn "
            f"as well: {TORN_BYTES} bytes are cut off {os.path.basename(torn)}."
        )
        self.open()
        assert not self.data.was_clean, "a killed process leaves no marker"
        self.show_recovery()
        count = self.compare_with_what_was_written()
        assert self.log.end_offset >= flushed, "what was flushed is there"
        certain, others = flushed - self.log.start_offset, self.log.end_offset - flushed
        self.say(
            f"All {certain:,} flushed records are there. So are {others:,} others. "
            f"Each of the {count:,} is as it was written. The torn batch had not been flushed."
        )

    def stop_and_start(self) -> None:
        self.step("Stop and start", "in order. The stop leaves a marker that says where each log ends.")
        self.data.close()
        self.open()
        assert self.data.was_clean, "the marker is there"
        self.show_recovery()
        self.show_segments(newest=5)
        self.data.close()

    def compare_with_what_was_written(self) -> int:
        count = 0
        for record in records_from(self.log, self.log.start_offset):
            written = order(record.offset)
            assert record[1:] == (written.timestamp, written.key, written.value, ()), f"{record} is not {written}"
            count += 1
        assert count == self.log.end_offset - self.log.start_offset, "no offset is missing"
        return count

    # Showing

    def step(self, title: str, text: str) -> None:
        self.console.print(f"\n[bold]{title}[/] {text}")

    def say(self, text: str) -> None:
        self.console.print(text, markup=False)

    def show_recovery(self) -> None:
        report = self.data.reports[NAME]
        table = Table.grid(padding=(0, 2))
        table.add_row("  last stop", "clean" if self.data.was_clean else "not clean")
        table.add_row("  scanned", f"{report.scanned_bytes:,} of {self.log.size + report.cut_bytes:,} bytes")
        table.add_row("  cut off", f"{report.cut_bytes:,} bytes")
        if report.cut_reason:
            table.add_row("  because", report.cut_reason)
        table.add_row("  log", f"{self.log.start_offset:,} to {self.log.end_offset:,}")
        self.console.print(table)

    def show_segments(self, newest: int | None = None) -> None:
        """All segments, or only a number of the newest."""
        lines = self.segment_lines()
        table = demo_table("file", ">base", ">end", ">bytes", "", ">index", "newest")
        if newest is not None and len(lines) > newest:
            table.add_row(f"{len(lines) - newest} older ones", style="dim")
            lines = lines[-newest:]
        for line in lines:
            numbers = (f"{line.base_offset:,}", f"{line.end_offset:,}", f"{line.size:,}")
            table.add_row(line.file, *numbers, bar(line.size), f"{line.entries}", clock(line.newest_ms))
        self.console.print(table)

    def show_changes(self, before: list[SegmentLine]) -> None:
        """The segments that there were, and what has become of them."""
        after = {line.file: line for line in self.segment_lines()}
        table = demo_table("file", ">base", ">end", "before", ">end", "after")
        for line in before:
            now = after.get(line.file)
            row = (line.file, f"{line.base_offset:,}", f"{line.end_offset:,}", bar(line.size))
            if now is None:
                table.add_row(*row, "", "deleted", style="dim")
            else:
                table.add_row(*row, f"{now.end_offset:,}", bar(now.size), style=None if now == line else "bold")
        self.console.print(table)

    def segment_lines(self) -> list[SegmentLine]:
        return [
            SegmentLine(
                os.path.basename(segment.path),
                segment.base_offset,
                segment.end_offset,
                segment.size,
                len(segment.index.offsets),
                segment.max_timestamp,
            )
            for segment in self.log.segments
            if segment.exists
        ]

    def show_records(self, records: Iterator[Record]) -> None:
        table = demo_table(">offset", "time", "key", "value")
        for record in records:
            key, value = (record.key or b"").decode(), (record.value or b"").decode()
            table.add_row(f"{record.offset:,}", clock(record.timestamp), key, value)
        self.console.print(table)


def records_from(log: Log, offset: int) -> Iterator[Record]:
    """All records from an offset on, as a consumer would get them: batch by batch, the first one perhaps too early."""
    position = offset
    while (found := log.read(position, max_bytes=64 * 1024)) is not None:
        with found:
            data = found.read()
        for header, view in split(data):
            yield from (record for record in iterate(view) if record.offset >= offset)
            position = header.next_offset


def append_until_killed(folder: str) -> None:
    """What the other process does. It says on its standard output how far it got."""
    data = DataDirectory(folder, RealFiles())
    log = data.log(TOPIC, 0, CONFIG)
    for number in range(AT_MOST_BATCHES):
        end = log.end_offset
        log.append(split(build([order(end + i) for i in range(IN_A_BATCH)])), leader_epoch=1, now_ms=NOW_MS)
        print("written", log.end_offset, flush=True)
        rounds, rest = divmod(number + 1, BATCHES_BETWEEN_FLUSHES)
        if rest == 0 and rounds <= FLUSHES:
            data.flusher.flush()
            if data.flusher.recovery_points_are_due(NOW_MS):
                data.flusher.save_recovery_points(NOW_MS)
            print("flushed", log.flushed_offset, flush=True)


def run_and_kill(folder: str) -> tuple[int, int]:
    """Let the other process append, and kill it when it has written much more than it has flushed. Returns how far it
    said that it had flushed and written."""
    command = [sys.executable, "-m", "tools.demo", "append-until-killed", folder]
    told = {"written": 0, "flushed": 0}
    flushes = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            what, offset = line.split()
            told[what] = int(offset)
            flushes += what == "flushed"
            if flushes == FLUSHES and told["written"] - told["flushed"] >= UNFLUSHED_RECORDS:
                process.send_signal(signal.SIGKILL)
                break
        process.wait()
    assert process.returncode == -signal.SIGKILL, f"the other process ended with {process.returncode} by itself"
    return told["flushed"], told["written"]


def newest_segment(directory: str) -> str:
    paths = [f"{directory}/{name}" for name in os.listdir(directory) if name.endswith(".log")]
    return max(path for path in paths if os.stat(path).st_size)


def demo_table(*columns: str) -> Table:
    """Without lines, so that it fits 80 columns; a column whose title begins with > is aligned to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in columns:
        table.add_column(title.removeprefix(">"), justify="right" if title.startswith(">") else "left", no_wrap=True)
    return table


def bar(size: int) -> str:
    """A full segment is ten wide."""
    eighths = round(80 * min(1.0, size / CONFIG.segment_bytes))
    return f"[cyan]{'█' * (eighths // 8)}{' ▏▎▍▌▋▊▉'[eighths % 8].strip()}[/]"


def clock(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%m-%d %H:%M")


if __name__ == "__main__":
    sys.exit(main())
