"""`LineAccount` counts the lines of input, and says which of them have failed and how to go on after them."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

STANDARD_INPUT = "-"
# Limits the runs of failed lines that are named.
RUNS = 8


class Line(NamedTuple):
    """The number of a file, in the order of reading, and of a line in it, which counts from 1."""

    file: int
    number: int


@dataclass(slots=True)
class _Run:
    """Lines of a file that follow each other."""

    file: int
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"


class LineAccount:
    """`names` are those of the files, of which `-` is standard input; the first is read from line `first` on."""

    def __init__(self, names: Sequence[str], first: int = 1) -> None:
        self._names = names
        self.skipped = first - 1
        """How many lines of the first file are left out."""
        self.read = 0
        """How many lines were read. A line has this number until it has to be named."""
        self._starts = [0]
        """The number of the first line of each file."""
        self._failed: list[_Run] = []
        self._are_more = False

    @property
    def is_at_end(self) -> bool:
        """Whether all files are read."""
        return len(self._starts) > len(self._names)

    def end_file(self) -> None:
        self._starts.append(self.read)

    def line(self, number: int) -> Line:
        """The place of a line in its file; that of the next one also if it has not been read."""
        file = bisect_right(self._starts, number) - 1
        return Line(file, number - self._starts[file] + 1 + (self.skipped if file == 0 else 0))

    def fail(self, number: int) -> None:
        """Take note that a line was not sent. Lines fail in the order in which they are read."""
        line, run = self.line(number), self._failed[-1] if self._failed else None
        if run is not None and (run.file, run.last + 1) == line:
            run.last = line.number
        elif len(self._failed) < RUNS:
            self._failed.append(_Run(line.file, line.number, line.number))
        else:
            self._are_more = True

    def advice(self) -> str | None:
        """What was not sent and how to send it, in a sentence; None if all was."""
        ahead = self.line(self.read)
        if not self._failed:
            if self.is_at_end:
                return None
            return f"all before line {ahead.number} of {self._name(ahead.file)} was sent; {self._go_on(ahead)}"
        first = self._failed[0]
        if len(self._failed) == 1 and (first.file, first.last) == self.line(self.read - 1):
            begin = Line(first.file, first.first)
            return (
                f"line {begin.number} of {self._name(begin.file)} was not sent, nor any after it; {self._go_on(begin)}"
            )
        files = dict.fromkeys(run.file for run in self._failed)
        lines = [
            f"{', '.join(str(run) for run in self._failed if run.file == file)} of {self._name(file)}" for file in files
        ]
        is_one = len(self._failed) == 1 and first.first == first.last
        what = f"{'line' if is_one else 'lines'} {' and '.join(lines)}{' and others' if self._are_more else ''}"
        told = f"{what} {'was' if is_one else 'were'} not sent, all others"
        alone = f"send {'it' if is_one else 'these'} by {'itself' if is_one else 'themselves'}"
        if self.is_at_end:
            return f"{told} were: {alone}"
        return f"{told} before line {ahead.number} of {self._name(ahead.file)} were: {alone}; {self._go_on(ahead)}"

    def _name(self, file: int) -> str:
        name = self._names[file]
        return "standard input" if name == STANDARD_INPUT else name

    def _go_on(self, line: Line) -> str:
        rest = self._names[line.file :]
        where = "with the same input" if list(rest) == [STANDARD_INPUT] else " ".join(rest)
        return f"to go on there: --from-line {line.number} {where}"
