"""A race runs work of the cluster together until one part of it ends, and leaves nothing of the rest behind."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def race(*work: Coroutine[Any, Any, object]) -> None:
    """Returns, or raises what was raised, when the first ends. The others are cancelled by then."""
    tasks = [asyncio.ensure_future(part) for part in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in ended:
        task.result()
