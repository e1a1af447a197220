"""A stage is set once for all tests of a process: one broker, and a cluster of three."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from tests.clients.group_stage import ClusterGroupStage, GroupStage
from tests.clients.matrix import ALONE, CLUSTER, Cell
from tests.clients.stage import Drivers, Stage

BROKERS = {ALONE: 1, CLUSTER: 3}


@pytest.fixture(scope="session")
def stages() -> Iterator[Callable[[str], Stage]]:
    with Drivers() as drivers, ExitStack() as stack:
        yield cache(lambda where: stack.enter_context(Stage(drivers, BROKERS[where])))


@pytest.fixture
def stage(request: pytest.FixtureRequest, stages: Callable[[str], Stage]) -> Stage:
    return stages(_where(request))


@pytest.fixture(scope="session")
def group_stages() -> Iterator[Callable[[str], GroupStage]]:
    kinds = {ALONE: GroupStage, CLUSTER: ClusterGroupStage}
    with ExitStack() as stack:
        yield cache(lambda where: stack.enter_context(kinds[where]()))


@pytest.fixture
def groups(request: pytest.FixtureRequest, group_stages: Callable[[str], GroupStage]) -> GroupStage:
    return group_stages(_where(request))


def _where(request: pytest.FixtureRequest) -> str:
    """Where a test is run: its cell or its parameter says so, or else it is one broker."""
    callspec = getattr(request.node, "callspec", None)
    parameters = {} if callspec is None else callspec.params
    cell = parameters.get("cell")
    where = cell.where if isinstance(cell, Cell) else parameters.get("where", ALONE)
    assert isinstance(where, str)
    return where
