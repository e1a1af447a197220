"""Writes docs/reference from the code: configs, metrics, settings of clients, commands, and the SDK's names.

python -m tools.reference          writes it
python -m tools.reference --check  says whether it is up to date
"""

from collections.abc import Callable
from pathlib import Path

from tools.reference.brokers import render_configs, render_metrics
from tools.reference.clients import render_settings
from tools.reference.commands import render_commands
from tools.reference.names import render_names

FOLDER = Path(__file__).parents[2] / "docs" / "reference"

PAGES: dict[str, Callable[[], str]] = {
    "configs.md": render_configs,
    "metrics.md": render_metrics,
    "client-settings.md": render_settings,
    "cli.md": render_commands,
    "sdk.md": render_names,
}


def main(arguments: list[str]) -> int:
    """Write the pages, or compare them; return the exit status."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    status = 0
    for name, render in PAGES.items():
        page = FOLDER / name
        if arguments != ["--check"]:
            page.write_text(render())
        elif not page.exists() or page.read_text() != render():
            print(f"{page} is not what the code says; run: python -m tools.reference")
            status = 1
    return status
