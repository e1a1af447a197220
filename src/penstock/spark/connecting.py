"""The way to the brokers from a process of Spark's, which blocks: opened once, and kept for the tasks that follow."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.client.settings import ConsumerSettings, read_settings
from penstock.spark.options import Settings

T = TypeVar("T")


class Link:
    """A cluster, and a thread with an event loop for it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = read_settings(ConsumerSettings, settings)
        self._loop = asyncio.new_event_loop()
        # A daemon, for Spark ends its workers without asking.
        threading.Thread(target=self._loop.run_forever, name="penstock-spark", daemon=True).start()
        self.cluster: Cluster = self.run(self._open())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result, waited for; whoever is interrupted while he waits cancels it."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begin it, and go on."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _open(self) -> Cluster:
        return open_cluster(self.settings)


def connect(settings: Settings) -> Link:
    """The process's link for these settings."""
    key = tuple(sorted(settings.items()))
    with _lock:
        if key not in _links:
            _links[key] = Link(settings)
        return _links[key]


_links: Final[dict[tuple[tuple[str, str], ...], Link]] = {}
_lock: Final = threading.Lock()
