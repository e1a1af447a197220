"""`SparkLink` connects a process of Spark's, which blocks, to the brokers: opened once, and kept for later tasks."""

import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from penstock.client.cluster.cluster import Cluster
from penstock.client.loop_thread import LoopThread
from penstock.client.opening import open_cluster
from penstock.client.settings import ConsumerSettings, read_settings
from penstock.spark.options import Settings

T = TypeVar("T")


class SparkLink:
    """A cluster, and the thread whose event loop it works on. Spark ends its workers without closing anything."""

    def __init__(self, settings: Settings) -> None:
        # A query that names a wrong address says so at once; Spark repeats what fails later.
        self.settings = read_settings(ConsumerSettings, {"fail.fast": True, **settings})
        self._thread = LoopThread("penstock-spark")
        self.cluster: Cluster = self._thread.call(lambda: open_cluster(self.settings))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result, waited for; a caller that is interrupted while it waits cancels it."""
        return self._thread.run(coroutine)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine, and return at once."""
        return self._thread.submit(coroutine)


def connect(settings: Settings) -> SparkLink:
    """The process's link for these settings."""
    key = tuple(sorted(settings.items()))
    with _lock:
        if key not in _links:
            _links[key] = SparkLink(settings)
        return _links[key]


_links: Final[dict[tuple[tuple[str, str], ...], SparkLink]] = {}
_lock: Final = threading.Lock()
