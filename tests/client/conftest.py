"""Retries without the long pauses between them, and a broker for those who need a real one."""

from collections.abc import Iterator

import pytest

from penstock.client.cluster import retries as retrying
from penstock.testing import Broker


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "BACKOFF_MS", 1)


@pytest.fixture(scope="package")
def shared_broker() -> Iterator[Broker]:
    with Broker(storage="memory", group_min_session_timeout_ms=100) as running:
        yield running


@pytest.fixture
def broker(shared_broker: Broker) -> Iterator[Broker]:
    """In memory, the same for all tests; what they have made go wrong goes right again after each."""
    yield shared_broker
    shared_broker.reset()
