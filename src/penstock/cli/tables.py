"""`lay_out` fits a table to a width: it leaves out columns that can be spared, folds the widest one, or else puts each
row's cells below each other."""

from collections.abc import Sequence
from dataclasses import dataclass

GAP = 2
# A column is not folded to less than this, in which a name can still be read.
FOLDED = 16


@dataclass(slots=True, frozen=True)
class Layout:
    """How a table is printed: which of its columns, and how wide; long without widths."""

    columns: tuple[int, ...]
    widths: tuple[int, ...] | None

    @property
    def is_long(self) -> bool:
        return self.widths is None


def lay_out(titles: Sequence[str], rows: Sequence[Sequence[str]], *, spare: Sequence[int] = (), width: int) -> Layout:
    """The layout of a table in `width` cells. `spare` are the columns that can be left out, in this order."""
    natural = [max(map(cells, column)) for column in zip(titles, *rows, strict=True)]
    columns = list(range(len(titles)))
    for each in (None, *spare):
        if each is not None:
            columns.remove(each)
        if _total(natural, columns) <= width:
            return Layout(tuple(columns), tuple(natural[column] for column in columns))
    widest = max(columns, key=lambda column: natural[column])
    left = width - (_total(natural, columns) - natural[widest])
    if left < max(FOLDED, cells(titles[widest])):
        return Layout(tuple(range(len(titles))), None)
    return Layout(tuple(columns), tuple(left if column == widest else natural[column] for column in columns))


def lines(texts: Sequence[str], widths: Sequence[int], to_the_right: Sequence[bool]) -> list[str]:
    """The lines of a row, of which there are several if a cell is folded."""
    folded = [fold(text, width) for text, width in zip(texts, widths, strict=True)]
    made = []
    for number in range(max(map(len, folded))):
        parts = [pieces[number] if number < len(pieces) else "" for pieces in folded]
        padded = [
            " " * (width - cells(part)) + part if is_right else part + " " * (width - cells(part))
            for part, width, is_right in zip(parts, widths, to_the_right, strict=True)
        ]
        made.append((" " * GAP).join(padded).rstrip())
    return made


def fold(text: str, width: int) -> list[str]:
    """A text in pieces of at most `width` cells."""
    if cells(text) <= width:
        return [text]
    from rich.cells import chop_cells

    return chop_cells(text, width)


def cells(text: str) -> int:
    """How many cells of a terminal a text takes: some letters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _total(widths: Sequence[int], columns: Sequence[int]) -> int:
    return sum(widths[column] for column in columns) + GAP * (len(columns) - 1)
