"""Tests that are coroutines: each runs in an event loop of its own, and not for ever."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec

Arguments = ParamSpec("Arguments")


def scenario(test: Callable[Arguments, Awaitable[None]]) -> Callable[Arguments, None]:
    @functools.wraps(test)
    def run(*arguments: Arguments.args, **named: Arguments.kwargs) -> None:
        async def within_a_minute() -> None:
            async with asyncio.timeout(60):
                await test(*arguments, **named)

        asyncio.run(within_a_minute())

    return run
