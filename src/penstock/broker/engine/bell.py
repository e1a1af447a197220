"""A bell is rung by a thread, and heard by the loop: as part of the engine's next turn where there is an engine, and as
a callback of the loop where there is none."""

import asyncio
import os
from collections.abc import Callable

from penstock.broker.engine import engine_of
from penstock.broker.engine.turn import Turn


class Bell:
    def __init__(self, loop: asyncio.AbstractEventLoop, turn: Turn, rung: Callable[[], None]) -> None:
        self._loop = loop
        self._rung = rung
        self._engine = engine_of(loop)
        self._fd = -1 if self._engine is None else self._engine.add_bell(turn, rung)

    def ring(self) -> None:
        """In any thread. Several rings may be heard as one."""
        if self._fd < 0:
            self._loop.call_soon_threadsafe(self._rung)
        else:
            os.eventfd_write(self._fd, 1)

    def close(self) -> None:
        """No thread may ring after this."""
        if self._engine is not None:
            self._engine.remove_bell(self._fd)
            self._engine = None
