"""Prints the matrix of clients behind the results of the tests that are its cells; leaves the long tests of Spark to
`make test-spark`, has workers begin with what takes long, and fails a test in which an event loop reports an error."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests import order
from tests.clients import matrix
from tests.clients.matrix import Cell
from tests.loop_errors import failing_on_loop_errors
from tests.spark import short


@pytest.fixture(autouse=True)
def loop_errors_fail() -> Iterator[None]:
    with failing_on_loop_errors():
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    short.leave_out(config, items)
    order.arrange(config, items)


def pytest_itemcollected(item: pytest.Item) -> None:
    # A cell that fails before its test begins is a cell of the matrix, too.
    if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        cell = item.callspec.params.get("cell")
        if isinstance(cell, Cell):
            item.user_properties.append(("cell", list(cell)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    results: dict[Cell, bool] = {}
    versions: dict[str, str] = {}
    duplicates: dict[Cell, int] = {}
    for name, values, passed in _properties(terminalreporter.stats):
        if name == "cell":
            cell = Cell(*values)
            results[cell] = passed and results.get(cell, True)
        elif name == "version":
            versions[values[0]] = values[1]
        elif name == "duplicates":
            duplicates[Cell(*values[:-1])] = values[-1]
    if results:
        terminalreporter.section("matrix of clients")
        terminalreporter.write_line(
            matrix.render(results.items(), versions, duplicates, colors=terminalreporter.hasmarkup)
        )


def _properties(stats: dict[str, list[Any]]) -> Iterator[tuple[str, Any, bool]]:
    """What tests told about themselves, and whether they passed."""
    for outcome in ("passed", "failed", "error"):
        for report in stats.get(outcome, ()):
            for name, value in getattr(report, "user_properties", ()):
                yield name, value, outcome == "passed"
