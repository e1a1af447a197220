"""`Blocking` is the base of the blocking clients: each lives in the thread of an event loop."""

from types import TracebackType
from typing import Self

from penstock.client.loop_thread import LoopThread


class Blocking:
    """A client of `penstock.client`, and the thread that it lives in."""

    _thread: LoopThread

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what the client does, and then its thread."""
        raise NotImplementedError
