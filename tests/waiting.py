"""Tests that run in an event loop wait here: for a condition, for turns of the loop, and never for ever."""

import asyncio
import inspect
import os
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

from penstock.broker.engine import EngineLoop

P = ParamSpec("P")

LIMIT_SECONDS = 300.0 if os.environ.get("SOAK_HOSTILE") else 120.0
"""The time that one test may take, on a machine that is busy with others, too; in `make soak` attacks are larger."""


def in_loop(
    test: Callable[P, Coroutine[Any, Any, None]],
    *,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = EngineLoop,
) -> Callable[P, None]:
    """Run a test in an event loop of its own, which must be empty of tasks in the end. Brokers serve their clients by
    the engine there, unless the loop is another."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(LIMIT_SECONDS):
                await test(*args, **kwargs)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"the test left tasks behind: {left}"

        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(bounded())

    return run


def in_every_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test twice: where the engine serves a broker's clients, and where asyncio's transports do."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        in_loop(test)(*args, **kwargs)
        in_loop(test, new_loop=asyncio.SelectorEventLoop)(*args, **kwargs)

    return run


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that other tasks or threads bring about. The test's own time limit ends a vain wait, and the
    error then says what was waited for."""
    try:
        while not condition():
            await asyncio.sleep(0.001)
    except asyncio.CancelledError as error:
        error.add_note(f"waited in vain for this to become true: {_text(condition)}")
        raise


async def turns(count: int = 20) -> None:
    """Let the loop go round: whatever can happen without a thread or a timer has happened."""
    for _ in range(count):
        await asyncio.sleep(0)


def _text(condition: Callable[[], object]) -> str:
    """The source of a condition, in one line."""
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        return repr(condition)
