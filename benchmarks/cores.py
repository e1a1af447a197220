"""Chooses the core of the server and that of the load, so that neither takes time from the other."""

import os
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Cores:
    """Without any, processes run wherever the system puts them."""

    server: tuple[int, ...] = ()
    load: tuple[int, ...] = ()

    @property
    def are_apart(self) -> bool:
        return bool(self.server and self.load)

    def __str__(self) -> str:
        if self.are_apart:
            return "server and load each on a core of its own"
        return "not pinned: there is one core, which server and load share"


def choose_cores() -> Cores:
    usable = sorted(os.sched_getaffinity(0))
    return Cores(server=(usable[0],), load=(usable[1],)) if len(usable) > 1 else Cores()


def on_cores(command: list[str], cores: tuple[int, ...]) -> list[str]:
    """The command, kept to these cores if any are named. By a program, since what Python would do between fork and
    exec is not safe beside threads."""
    return ["taskset", "--cpu-list", ",".join(map(str, cores)), *command] if cores else command
