"""An event loop for simulations: its clock jumps to the next timer, and a seed decides which owner runs next."""

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context
from random import Random
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MAX_STEPS = 400_000
"""Ends a run that would never end. A normal one takes some thousand steps."""


class Owner:
    """What callbacks belong to: a process, or a request that travels. The callbacks of one owner run in order, those of
    different owners in any; a held owner runs none."""

    __slots__ = ("check", "is_held", "is_listed", "name", "number", "ready")

    def __init__(self, name: str, number: int, check: Callable[[], None] | None = None) -> None:
        self.name = name
        self.number = number
        # Called after each of its callbacks.
        self.check = check
        self.ready: deque[SimulatedHandle] = deque()
        self.is_held = False
        self.is_listed = False

    def context(self) -> Context:
        """A new context, in which callbacks and tasks belong to this owner."""
        context = contextvars.copy_context()
        context.run(_owner.set, self)
        return context


_owner: "contextvars.ContextVar[Owner | None]" = contextvars.ContextVar("owner", default=None)


class SimulatedHandle(asyncio.TimerHandle):
    __slots__ = ("args", "callback", "context", "is_cancelled", "time")

    def __init__(self, time: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context) -> None:
        # The base class is for the types alone: what it keeps costs time in a debugging loop.
        self.time = time
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.time

    def __repr__(self) -> str:
        return f"<SimulatedHandle {self.callback}>"

    __hash__ = object.__hash__
    __eq__ = object.__eq__


class SimulatedLoop(asyncio.BaseEventLoop):
    """No sockets, no threads: work for an executor is done at once. `at_step` is called when as many steps have been
    made as it said the last time."""

    def __init__(self, random: Random, problem: Callable[[str], None]) -> None:
        super().__init__()
        self.steps = 0
        # What ran, in this order: equal numbers mean equal schedules.
        self.schedule = 0
        self.is_stopping = False
        self.next_fault = -1
        self.fault: Callable[[], None] = lambda: None
        self._random = random
        self._problem = problem
        self._time = 0.0
        self._numbers = 0
        self._timers: list[tuple[float, int, SimulatedHandle]] = []
        self._runnable: list[Owner] = []
        self._nature = Owner("nature", 0)

    # Time and callbacks

    def time(self) -> float:
        return self._time

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = SimulatedHandle(self._time, callback, args, contextvars.copy_context() if context is None else context)
        self._make_ready(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._time + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = SimulatedHandle(when, callback, args, contextvars.copy_context() if context is None else context)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, handle))
        return handle

    def hold(self, owner: Owner) -> None:
        """From now on the callbacks of this owner wait."""
        owner.is_held = True
        if owner.is_listed:
            owner.is_listed = False
            self._runnable.remove(owner)

    def release(self, owner: Owner) -> None:
        owner.is_held = False
        self._list(owner)

    def current_owner(self) -> Owner:
        """The owner of the callback that runs now."""
        return _owner.get() or self._nature

    def run(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Run until the work is done, or `is_stopping`."""
        asyncio._set_running_loop(self)
        try:
            task = self.create_task(work)
            while not (task.done() or self.is_stopping):
                self._step()
            return task.result() if task.done() else None
        finally:
            asyncio._set_running_loop(None)

    def turn(self) -> None:
        """One step, outside of `run`."""
        asyncio._set_running_loop(self)
        try:
            self._step()
        finally:
            asyncio._set_running_loop(None)

    def _step(self) -> None:
        timers = self._timers
        while not self._runnable:
            if not timers:
                raise AssertionError("nothing is left to do, and the work is not done")
            self._time = max(self._time, timers[0][0])
            while timers and timers[0][0] <= self._time:
                handle = heapq.heappop(timers)[2]
                if not handle.is_cancelled:
                    self._make_ready(handle)
        self.steps += 1
        if self.steps == self.next_fault:
            self.fault()
            return
        if self.steps > MAX_STEPS:
            self.is_stopping = True
            self._problem(f"{self.steps} steps, and no end")
            return
        runnable = self._runnable
        at = int(self._random.random() * len(runnable)) if len(runnable) > 1 else 0
        owner = runnable[at]
        handle = owner.ready.popleft()
        if not owner.ready:
            owner.is_listed = False
            runnable[at] = runnable[-1]
            runnable.pop()
        if handle.callback is None:
            return
        self.schedule = hash((self.schedule, owner.number, int(self._time * 1_000_000)))
        try:
            handle.context.run(handle.callback, *handle.args)
            if owner.check is not None:
                owner.check()
        except Exception as error:
            self._problem(f"{owner.name}: {error!r}")

    def _make_ready(self, handle: SimulatedHandle) -> None:
        owner = handle.context.get(_owner) or self._nature
        owner.ready.append(handle)
        if not owner.is_listed:
            self._list(owner)

    def _list(self, owner: Owner) -> None:
        if owner.ready and not owner.is_held and not owner.is_listed:
            owner.is_listed = True
            self._runnable.append(owner)

    # What asyncio asks of a loop

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> "asyncio.Task[T]":
        return asyncio.Task(coro, loop=self, context=context)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._problem(f"{context['message']}: {context.get('exception')!r}")

    def get_debug(self) -> bool:
        return False
