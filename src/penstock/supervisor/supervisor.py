"""The supervisor keeps a process for each broker: it starts it, starts it again when it has ended, and stops all."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.supervisor.child import Child
from penstock.supervisor.left_processes import STOP_SECONDS, write_down
from penstock.supervisor.readiness import Readiness
from penstock.supervisor.restarts import MANY_REFUSALS, Restarts

log = logging.getLogger(__name__)

# Stands for the exit code of a process that there never was; no process has it.
NO_PROCESS: Final = 256


@dataclass(slots=True)
class Place:
    """The place of one broker, which is filled by one process after the other."""

    node_id: int
    command: Sequence[str]
    restarts: Restarts = field(default_factory=Restarts)
    child: Child | None = None
    told: Readiness | None = None


class Supervisor:
    """Runs the commands of brokers, by their numbers. `folder` is where it writes down which processes they are.
    `started` is called once: when every broker has either reported or refused to start many times; it gets the reports,
    and the numbers of those that refused."""

    def __init__(
        self,
        commands: dict[int, Sequence[str]],
        folder: str,
        started: Callable[[list[Readiness], list[int]], None],
        *,
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        self._places = [Place(node_id, command) for node_id, command in commands.items()]
        self._folder = folder
        self._started: Callable[[list[Readiness], list[int]], None] | None = started
        self._stop_seconds = stop_seconds
        self._stopping = asyncio.Event()
        self._no_hope = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._keep(place)) for place in self._places]

    async def failed(self) -> str:
        """Returns when no broker is left that might start, and says so."""
        await self._no_hope.wait()
        return f"none of {len(self._places)} brokers starts: each has refused {MANY_REFUSALS} times and said why above"

    async def stop(self, *, last: int | None = None) -> None:
        """Stop all brokers in order and wait for their ends. The broker `last`, which is the controller, is asked after
        the others: they ask it to take their leaderships over."""
        self._stopping.set()
        others = [place for place in self._places if place.node_id != last]
        for wave in (others, [place for place in self._places if place.node_id == last]):
            await self._stop_wave(wave)
        await asyncio.gather(*self._tasks)
        self._write_down()

    def kill(self) -> None:
        """End all brokers at once; what is not flushed is recovered at their next start."""
        self._stopping.set()
        for place in self._places:
            if place.child is not None:
                place.child.kill()

    async def _stop_wave(self, places: Iterable[Place]) -> None:
        children = [place.child for place in places if place.child is not None]
        for child in children:
            child.stop()
        ends = [asyncio.ensure_future(child.wait()) for child in children]
        if not ends:
            return
        _, late = await asyncio.wait(ends, timeout=self._stop_seconds)
        for child, end in zip(children, ends, strict=True):
            if end in late:
                log.error(
                    "a broker does not stop, and is killed",
                    extra={"broker": child.node_id, "pid": child.pid, "seconds": self._stop_seconds},
                )
                child.kill()
        await asyncio.gather(*ends)

    async def _keep(self, place: Place) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            try:
                place.child = child = await Child.spawn(place.node_id, place.command)
            except OSError as error:
                log.error("a broker's process cannot be made", extra={"broker": place.node_id, "error": str(error)})
                await self._pause(place, NO_PROCESS, None)
                continue
            self._write_down()
            if self._stopping.is_set():
                child.kill()
            else:
                child.begin()
            place.told = await child.readiness()
            began = loop.time()
            if place.told is not None:
                self._tell_once()
            code = await child.wait()
            served_seconds = None if place.told is None else loop.time() - began
            place.child = place.told = None
            if not self._stopping.is_set():
                await self._pause(place, code, served_seconds)

    async def _pause(self, place: Place, code: int, served_seconds: float | None) -> None:
        delay = place.restarts.ended(code, served_seconds=served_seconds)
        self._write_down()
        facts = {"broker": place.node_id, "exit_code": code, "starts_again_in_seconds": delay}
        log.warning("a broker has ended", extra=facts)
        if place.restarts.refusals == MANY_REFUSALS:
            log.error(
                f"a broker has refused to start {MANY_REFUSALS} times and said why above: correct that; until then its "
                "partitions are away, and its start is tried now and then",
                extra={"broker": place.node_id},
            )
        if all(each.restarts.is_hopeless for each in self._places):
            self._no_hope.set()
        self._tell_once()
        try:
            async with asyncio.timeout(delay):
                await self._stopping.wait()
        except TimeoutError:
            pass

    def _tell_once(self) -> None:
        if self._started is None or self._no_hope.is_set():
            return
        if all(place.told is not None or place.restarts.is_hopeless for place in self._places):
            told = [place.told for place in self._places if place.told is not None]
            tell, self._started = self._started, None
            tell(told, [place.node_id for place in self._places if place.told is None])

    def _write_down(self) -> None:
        children = [place.child for place in self._places if place.child is not None]
        try:
            write_down(self._folder, [child.identity for child in children if child.identity is not None])
        except OSError as error:
            # A full disk: brokers that serve what they have are worth more than this list.
            log.warning(
                "a later supervisor may not find these brokers: their list cannot be written",
                extra={"folder": self._folder, "error": str(error)},
            )
