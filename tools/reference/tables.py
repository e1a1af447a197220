"""Writes tables of Markdown, and takes sentences out of docstrings."""

import re
from collections.abc import Iterable, Iterator


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a table, and an empty one."""
    yield _line(head)
    yield _line(("---",) * len(head))
    yield from map(_line, rows)
    yield ""


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def first_paragraph(text: str) -> str:
    """On one line."""
    return " ".join(text.strip().partition("\n\n")[0].split())


def first_sentence(text: str) -> str:
    """On one line; a colon or a dot within a name ends no sentence."""
    paragraph = first_paragraph(text)
    found = re.match(r".*?[.](?=\s|$)", paragraph)
    return paragraph if found is None else found[0]
