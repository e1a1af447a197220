"""An event loop whose clock stands still while there is something to do, and jumps to the next timer when there is not.

Both ends of every connection have to be in the loop, and no thread may be waited for.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec
from unittest.mock import patch

from penstock.client.cluster import retries as retrying

P = ParamSpec("P")

_BACKOFF_MS = retrying.BACKOFF_MS
"""As users have it: other tests shorten it."""
_GRACE_S = 0.001
"""How long data may be on its way between two sockets of this machine."""


class _Selector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        if found := super().select(_GRACE_S):
            return found
        # A little more, for the loop compares with what it has computed from another sum.
        self.now += timeout + 1e-6
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test in such a loop, which has to be empty of tasks after an hour of its time."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(3600):
                await test(*args, **kwargs)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"the test left tasks behind: {left}"

        with patch.object(retrying, "BACKOFF_MS", _BACKOFF_MS), asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(bounded())

    return run
