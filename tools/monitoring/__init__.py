"""Writes docs/monitoring: the alarms as rules for Prometheus, and the dashboard for Grafana.

python -m tools.monitoring          writes them
python -m tools.monitoring --check  says whether they are up to date
"""

from collections.abc import Callable
from pathlib import Path

from tools.monitoring.dashboard import render_dashboard
from tools.monitoring.rules_file import render_rules

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"

FILES: dict[str, Callable[[], str]] = {
    "penstock.rules.yml": render_rules,
    "penstock.grafana.json": render_dashboard,
}


def main(arguments: list[str]) -> int:
    """Write the files, or compare them; return the exit status."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    status = 0
    for name, render in FILES.items():
        file = FOLDER / name
        if arguments != ["--check"]:
            file.write_text(render())
        elif not file.exists() or file.read_text() != render():
            print(f"{file} is not what the tables say; run: python -m tools.monitoring")
            status = 1
    return status
