"""`first_answer` asks one broker after the other: the next one when the last has been silent for a while. The answer
that comes first counts."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from penstock.client.errors import ClientError, ConnectionLostError, TimedOutError

C = TypeVar("C")
T = TypeVar("T")


class UnreachedError(Exception):
    """No connection could be opened, so nothing was asked."""

    def __init__(self, errors: Iterable[ClientError]) -> None:
        self.errors = list(errors)
        super().__init__("; ".join(map(str, self.errors)))


async def first_answer(
    candidates: Iterable[C],
    ask: Callable[[C], Awaitable[T]],
    *,
    patience: float,
    passed_over: Callable[[C], object],
) -> T:
    """The first answer. After an UnreachedError of one candidate the next one is asked at once. After `patience`
    seconds of silence `passed_over` is called and the next one is asked as well; the silent one may still answer, until
    another one has.

    The loss of a candidate that was reached is raised when no other answer can come, and so is an UnreachedError with
    the reasons of all. Every other error is raised at once.
    """
    waiting = deque(candidates)
    latest: C
    asked: set[asyncio.Future[T]] = set()
    unreached: list[ClientError] = []
    loss: ClientError | None = None

    def ask_next() -> None:
        nonlocal latest
        if waiting:
            latest = waiting.popleft()
            asked.add(asyncio.ensure_future(ask(latest)))

    try:
        ask_next()
        while asked:
            limit = patience if waiting else None
            done, _ = await asyncio.wait(asked, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                passed_over(latest)
                ask_next()
            for reply in done:
                asked.remove(reply)
                try:
                    return reply.result()
                except UnreachedError as error:
                    unreached += error.errors
                    ask_next()
                except (ConnectionLostError, TimedOutError) as error:
                    loss = error
        raise loss or UnreachedError(unreached)
    finally:
        for reply in asked:
            reply.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
