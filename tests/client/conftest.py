"""Retries without the long pauses between them."""

import pytest

from penstock.client import retrying


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "BACKOFF_MS", 1)
