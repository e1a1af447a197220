"""Tests that are coroutines: each runs in an event loop of its own, and not for ever."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec

from tests.metadata.stores import Stores

Arguments = ParamSpec("Arguments")


def scenario(test: Callable[Arguments, Awaitable[None]]) -> Callable[Arguments, None]:
    """A test of `stores` runs in their loop, after they have started."""

    @functools.wraps(test)
    def run(*arguments: Arguments.args, **named: Arguments.kwargs) -> None:
        stores = named.get("stores", named.get("cluster"))

        async def within_a_minute() -> None:
            async with asyncio.timeout(60):
                if not isinstance(stores, Stores):
                    await test(*arguments, **named)
                    return
                await stores.start()
                try:
                    await test(*arguments, **named)
                finally:
                    await stores.stop()

        new_loop = stores.new_loop if isinstance(stores, Stores) else None
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(within_a_minute())

    return run
