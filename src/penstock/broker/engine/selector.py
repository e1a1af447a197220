"""The selector of the loop that a broker runs on: asyncio's own selector, nested in the engine's epoll.

A loop waits in `select`. There the engine serves the clients whose requests have come, and only then says what asyncio
itself has to do: no request passes through a callback of the loop.
"""

import selectors

from penstock.broker.engine.plain import Engine


class EngineSelector(selectors.DefaultSelector):
    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        engine.nest(self.fileno())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(0) if self._engine.run(timeout) else []

    def close(self) -> None:
        self._engine.close()
        super().close()
