"""`HelpContext` gives commands a help that can be read in a narrow terminal, too, and `examples` writes
what stands at its end."""

from collections.abc import Iterable

import click
from click.formatting import wrap_text

# Below this width, explanations stand under the options and not beside them.
NARROW = 60
_INDENT = 6


class HelpFormatter(click.HelpFormatter):
    """Click's formatter, with explanations below the options where there is no room beside them."""

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        if self.width >= NARROW:
            super().write_dl(rows, col_max, col_spacing)
            return
        for term, explanation in rows:
            self.write(f"{'':>{self.current_indent}}{term}\n")
            indent = " " * _INDENT
            for line in wrap_text(explanation, self.width - _INDENT).splitlines():
                self.write(f"{indent}{line}\n")


def examples(*lines: str) -> str:
    """The examples of a command, as the end of its help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


class HelpContext(click.Context):
    formatter_class = HelpFormatter
