"""What a simulation of one schedule has come to."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol


class Ended(Protocol):
    """What is asked of an outcome, of whatever kind of simulation. `entries` are those of the metadata log."""

    seed: int
    problems: list[str]
    states: Counter[str]
    transcript: list[str]
    steps: int
    seconds: float
    entries: int
    digest: str


@dataclass(slots=True)
class Outcome:
    """`entries` are those of the metadata log; `schedule` is a number that other orders of events make another."""

    seed: int
    problems: list[str]
    states: Counter[str]
    transcript: list[str]
    steps: int
    seconds: float
    entries: int
    schedule: int
    digest: str = field(init=False)
    """Of what happened; it does not depend on whether there is a transcript."""

    def __post_init__(self) -> None:
        told = "\n".join([*self.problems, str(sorted(self.states.items())), f"{self.steps} {self.schedule}"])
        self.digest = hashlib.sha256(told.encode()).hexdigest()[:16]
