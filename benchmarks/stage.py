"""Starts systems side by side, and measures each in turn while the others are idle."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TypeVar

from benchmarks.cores import Cores, choose_cores
from benchmarks.measure import Step
from benchmarks.processes import Server
from benchmarks.samples import Rounds
from benchmarks.scratch import scratch_folder
from benchmarks.systems import System

S = TypeVar("S")


@dataclass(slots=True)
class Stage:
    """Systems that are running, in the order in which they were named."""

    servers: Mapping[System, Server]
    cores: Cores
    step: Step
    _topic_numbers: Iterator[int] = field(default_factory=count)

    def take_turns(self, what: str, measure: Callable[[System, Server], S], *, rounds: int) -> dict[str, Rounds[S]]:
        """Measure every system once a round, forwards and backwards in turn; what came out, by the system's name."""
        found: dict[str, list[S]] = {system.name: [] for system in self.servers}
        for number in range(rounds):
            order = list(self.servers.items())
            for system, server in order if number % 2 == 0 else reversed(order):
                self.step(f"{what}: {system.name}, round {number + 1} of {rounds}")
                found[system.name].append(measure(system, server))
        return {name: Rounds(samples) for name, samples in found.items()}

    @contextmanager
    def topic(self, system: System, server: Server, partitions: int = 1) -> Iterator[str]:
        """A fresh topic, which is removed afterwards."""
        name = f"bench-{next(self._topic_numbers)}"
        system.make_topic(server, name, partitions)
        try:
            yield name
        finally:
            system.drop_topic(server, name)


@contextmanager
def running(systems: Sequence[System], step: Step, *, warm_bytes: int) -> Iterator[Stage]:
    """The page cache is warmed for as many bytes as are kept at a time."""
    cores = choose_cores()
    step("warming the page cache")
    with scratch_folder(warm_bytes) as folder, ExitStack() as stack:
        servers = {}
        for number, system in enumerate(systems):
            step(f"starting {system.name}")
            own = Path(folder) / str(number)
            own.mkdir()
            servers[system] = stack.enter_context(system.start(own, cores.server))
        yield Stage(servers, cores, step)
