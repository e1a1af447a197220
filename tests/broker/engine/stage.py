"""A turn that a test settles by hand, outside any loop."""

import asyncio
from collections.abc import Callable
from typing import cast

from penstock.broker.engine.turn import Turn


class ManualLoop:
    """As much of an event loop as a turn needs."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def run(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


def manual_turn(
    now_ms: Callable[[], int] = lambda: 0, *, disk_broke: Callable[[OSError], None] = lambda error: None
) -> tuple[Turn, ManualLoop]:
    loop = ManualLoop()
    return Turn(cast(asyncio.AbstractEventLoop, loop), now_ms, disk_broke=disk_broke), loop
