"""The stage is set once for all tests of a process."""

from collections.abc import Iterator

import pytest

from tests.clients.group_stage import GroupStage
from tests.clients.stage import Stage


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    with Stage() as opened:
        yield opened


@pytest.fixture(scope="session")
def groups() -> Iterator[GroupStage]:
    with GroupStage() as opened:
        yield opened
