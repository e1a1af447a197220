"""The event loop of simulated brokers and clients: connections are in memory, and threads are work on the loop."""

import asyncio
import contextvars
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context
from random import Random
from typing import Any, Final, TypeVar, TypeVarTuple

from penstock.broker.upkeep.worker import Work
from penstock.storage.files.memory import Crashed
from tools.simulate.brokers.network import MemoryServer, MemoryTransport, Network
from tools.simulate.loop import Owner, SimulatedLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_FIRST_LOOK_AT_TASKS: Final = 1000
_CANCELS: Final = 5
_TURNS_TO_END: Final = 3000


class NumberedFuture(asyncio.Future[Any]):
    """A future whose place in a set is the same in every run."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._number = number

    def __hash__(self) -> int:
        return self._number

    __eq__ = object.__eq__


class NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set is the same in every run."""

    def __init__(
        self,
        number: int,
        work: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        # Before anything else: the base class puts it into a set.
        self._number = number
        super().__init__(work, loop=loop, context=context)

    def __hash__(self) -> int:
        return self._number

    __eq__ = object.__eq__


class BrokersLoop(SimulatedLoop):
    """Each host has an owner of the same name, whose callbacks are its process."""

    def __init__(self, random: Random, problem: Callable[[str], None]) -> None:
        super().__init__(random, problem)
        self.network = Network(self, random)
        self.thread_seconds: Callable[[], float] = lambda: 0.0
        # Called when a disk has lost its power in the middle of a call.
        self.crashed: Callable[[], None] = lambda: None
        self.is_over = False
        self.owners: list[Owner] = []
        self._object_numbers = itertools.count(1)
        # The tasks of a dead process are never finished. They stay here, as their end would run code of it.
        self._tasks: list[NumberedTask] = []
        self._look_at_tasks = _FIRST_LOOK_AT_TASKS

    def _step(self) -> None:
        try:
            super()._step()
        except Crashed:
            self.crashed()

    # Connections

    async def create_server(  # type: ignore[override]
        self, factory: Callable[[], Any], host: Any = None, port: Any = None, *, start_serving: bool = True, **_: Any
    ) -> MemoryServer:
        server = self.network.bind(self.current_owner(), factory, str(host), int(port))
        if start_serving:
            await server.start_serving()
        return server

    async def create_connection(  # type: ignore[override]
        self, factory: Callable[[], Any], host: Any = None, port: Any = None, **_: Any
    ) -> tuple[MemoryTransport, Any]:
        return await self.network.connect(self.current_owner(), factory, str(host), int(port))

    def remove_reader(self, fd: Any) -> bool:
        """A listener stops accepting; its server is closed next."""
        return False

    # Threads

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(self.thread_seconds(), work)
        return future

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    # Tasks

    def create_future(self) -> "asyncio.Future[Any]":
        return NumberedFuture(next(self._object_numbers), self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> "asyncio.Task[T]":
        task = NumberedTask(next(self._object_numbers), coro, self, context)
        self._tasks.append(task)
        if len(self._tasks) > self._look_at_tasks:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._look_at_tasks = 2 * len(self._tasks) + _FIRST_LOOK_AT_TASKS
        return task

    def clear_away(self) -> None:
        """The simulation is over: end every task, also those of dead processes, whatever they make of it."""
        self.is_over, self.is_stopping = True, False
        self.next_fault = -1
        for _ in range(_CANCELS):
            left = [task for task in self._tasks if not task.done()]
            for owner in self.owners:
                self.release(owner)
            for task in left:
                task.cancel()
            for _ in range(_TURNS_TO_END):
                if not self._runnable or all(task.done() for task in left):
                    break
                self.turn()
            if not left:
                break
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.close()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # A task that came to its end with the power of its machine.
        if not self.is_over and not isinstance(context.get("exception"), Crashed):
            super().call_exception_handler(context)


class SimulatedWorker:
    """A worker whose pieces of work take a time of the seed, one after the other. It belongs to the process that made
    it."""

    def __init__(self, loop: BrokersLoop) -> None:
        self._loop = loop
        self._context = contextvars.copy_context()
        self._ends = 0.0
        self._todo: deque[Work] = deque()

    def put(self, work: Work) -> None:
        self._ends = max(self._ends, self._loop.time()) + self._loop.thread_seconds()
        self._todo.append(work)
        self._loop.call_at(self._ends, self._do_next, context=self._context)

    def close(self) -> None:
        while self._todo:
            self._do_next()

    def _do_next(self) -> None:
        if self._todo:
            self._todo.popleft()()
