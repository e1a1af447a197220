"""What the blocking clients have in common."""

from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from penstock.client.loop_thread import LoopThread
from penstock.client.serializers import BYTES

if TYPE_CHECKING:
    # Of Python 3.13: what keys and values are where nobody gives a serializer.
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

ANY_BYTES: Final[Any] = BYTES
"""The default where the type of keys and values follows from the serializer that is given."""


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
