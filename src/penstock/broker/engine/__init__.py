"""The engine is the data path between clients' sockets and the log. Here it is chosen which one serves a loop."""

import asyncio
import select

from penstock.broker.engine.plain import AppendWaiter, Engine, FetchWaiter, Partition, Staged
from penstock.broker.engine.selector import EngineSelector

__all__ = ["AppendWaiter", "Engine", "EngineLoop", "FetchWaiter", "Partition", "Staged", "engine_of"]


class EngineLoop(asyncio.SelectorEventLoop):
    """An event loop whose clients are served by an engine, where the operating system has epoll. On any other loop, a
    broker's connections are asyncio's transports."""

    def __init__(self) -> None:
        self.engine = Engine() if hasattr(select, "epoll") else None
        super().__init__(None if self.engine is None else EngineSelector(self.engine))


def engine_of(loop: asyncio.AbstractEventLoop) -> Engine | None:
    return loop.engine if isinstance(loop, EngineLoop) else None
