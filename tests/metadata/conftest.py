"""Three nodes of ZooKeeper are started once for all tests of a worker that want them, which takes little more than a
second. Each test has a chroot of its own."""

import itertools
from collections.abc import Iterator

import pytest

from tools.zookeeper.ensemble import Ensemble, install


@pytest.fixture(scope="session")
def ensemble() -> Iterator[Ensemble]:
    install()
    with Ensemble(nodes=3) as started:
        yield started


@pytest.fixture(scope="session")
def chroots() -> Iterator[str]:
    return (f"/test-{number}" for number in itertools.count())


@pytest.fixture
def connect(ensemble: Ensemble, chroots: Iterator[str]) -> str:
    """A connect string that no test before had."""
    chroot = next(chroots)
    return ensemble.connect + chroot
