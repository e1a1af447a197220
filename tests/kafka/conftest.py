"""Apache Kafka is started once for all of these tests, which `make test-kafka` alone runs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.server import Kafka


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("PENSTOCK_TEST_KAFKA") == "1":
        return
    skip = pytest.mark.skip(reason="needs an Apache Kafka: make test-kafka")
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    with Kafka() as started:
        yield started


@pytest.fixture(scope="session")
def bootstrap(kafka: Kafka) -> str:
    """The plaintext address, for tests that are about something else than security."""
    return kafka.plaintext
