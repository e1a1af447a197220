"""`Merged` iterates in the order of timestamps, for callers that block."""

from typing import Any, Generic, Self, TypeVar

from penstock.client.consumer import merged as asynchronous
from penstock.client.loop_thread import LoopThread
from penstock.client.message import Message

K = TypeVar("K")
V = TypeVar("V")


class Merged(Generic[K, V]):
    """What `Consumer.merged` returns. Of the message that it returned last, `is_late` says whether it is older than one
    before; `late` counts these."""

    def __init__(self, thread: LoopThread, inner: asynchronous.Merged[Any, Any]) -> None:
        self._thread = thread
        self._inner = inner

    @property
    def is_late(self) -> bool:
        return self._inner.is_late

    @property
    def late(self) -> int:
        return self._inner.late

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message[K, V]:
        if not self._thread.is_open:
            raise StopIteration
        try:
            return self._thread.run(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None
