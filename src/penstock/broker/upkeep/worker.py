"""A worker does what waits for the disk, away from the loop: one piece of work after the other."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

Work = Callable[[], object]


class Worker(Protocol):
    def put(self, work: Work) -> None:
        """Have this done after all that was put before it. Work raises nothing."""

    def close(self) -> None:
        """Return when all is done. Nothing may be put after this."""


class ThreadWorker:
    """A worker that is a thread of its own. It makes no future for a piece of work: there may be thousands a second."""

    def __init__(self, name: str) -> None:
        self._todo: SimpleQueue[Work | None] = SimpleQueue()
        # A broker that was dropped without being stopped does not keep its process alive.
        self._thread = threading.Thread(target=self._work_off, name=name, daemon=True)
        self._is_started = False

    def put(self, work: Work) -> None:
        if not self._is_started:
            self._is_started = True
            self._thread.start()
        self._todo.put(work)

    def close(self) -> None:
        if self._is_started:
            self._todo.put(None)
            self._thread.join()

    def _work_off(self) -> None:
        while (work := self._todo.get()) is not None:
            work()
