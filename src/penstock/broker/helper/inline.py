"""The inline helper serves a broker whose files are in its own memory, where no other process could see them."""

import asyncio
from collections.abc import AsyncGenerator

from penstock.broker.helper.task import J, JobFailedError, R, Task
from penstock.storage.files import Files


class InlineHelper:
    """Runs jobs on the event loop, one result a turn."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._turn = asyncio.Lock()
        self.sleeps_alone = False
        self.restarts = 0

    async def run(self, task: Task[J, R], job: J) -> AsyncGenerator[R, None]:
        async with self._turn:
            steps = task.run(self._files, job, should_stop=lambda: False)
            while True:
                try:
                    result = next(steps, None)
                except Exception as error:
                    raise JobFailedError(task.name, type(error).__name__, str(error)) from error
                if result is None:
                    return
                yield result
                await asyncio.sleep(0)

    async def close(self) -> None:
        """There is nothing to close: a caller that runs a job stops it."""
