"""A run: a program without faults, and then the program again for each call that changes something on the disk of one
broker, with the power lost there."""

import hashlib
import logging
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final

from penstock.storage.files.memory import Crashed
from tools.simulate.power.program import Kind, Program
from tools.simulate.power.world import World

STEPS: Final = 60
STEPS_AFTER: Final = 12

STATES: Final = (
    "a leader lost its power",
    "a follower lost its power",
    "all brokers lost their power at once",
    "power was lost again before a broker was back",
    "a start was interrupted",
    "a stop was interrupted",
    "an append was interrupted",
    "a copy was interrupted",
    "a flush was interrupted",
    "a cut was interrupted",
    "a start anew was interrupted",
    "a deletion was interrupted",
    "a compaction was interrupted",
    "a roll was interrupted",
    "a change of leader was interrupted",
    "a save of recovery points was interrupted",
    "a save of the high watermark was interrupted",
    "records that were not flushed were lost",
    "records that were not flushed were kept",
    "a start cut off what was torn",
    "a start anew was finished by the next start",
    "a swap was finished by the next start",
    "a hole above the recovery point was known to a start",
    "an epoch was saved, and no record of it",
    "producers were restored from a snapshot",
    "a high watermark was restored",
    "a log was compacted before it was copied",
    "a replica compacted its log",
    "a hole was copied",
    "a batch that begins before the start of a log was copied",
    "a copy was cut by leader epoch",
    "logs were cut together",
    "a copy was begun anew",
    "a broker came back with another disk",
    "a partition had no leader",
    "a partition waited for a disk that was lost",
)
"""What a run of many seeds must have come through."""


@dataclass(slots=True)
class Outcome:
    """`steps` is the number of calls that changed something on the victim's disk, `power_losses` of how many of them
    the power was lost at. Time does not pass here, and entries of the metadata log are not counted."""

    seed: int
    problems: list[str]
    states: Counter[str]
    transcript: list[str]
    steps: int
    power_losses: int
    seconds: float = 0.0
    entries: int = 0
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        self.digest = hashlib.sha256("\n".join(self.transcript).encode()).hexdigest()[:16]


def simulate(seed: int, *, told: bool = False, calls: Iterable[int] | None = None) -> Outcome:
    """Do the program of a seed, and again for each call of its victim, or for those that are named. The transcript has
    a line for each of them, or with `told` every step of the first run that broke a rule, or of the one without a
    fault."""
    with _silenced():
        first = _Run(seed)
        first.go()
        states, transcript = first.world.states, [first.summary]
        if first.world.is_broken or told:
            transcript += first.world.transcript
        problems, losses = first.world.ledger.problems[:], 0
        steps = first.calls
        for call in sorted({*range(1, steps + 1)} if calls is None else {*calls} & {*range(1, steps + 1)}):
            if problems:
                break
            run = _Run(seed, call)
            run.go()
            losses += 1
            states += run.world.states
            transcript.append(run.summary)
            if run.world.is_broken:
                problems = [f"call {call}: {problem}" for problem in run.world.ledger.problems]
                transcript += run.world.transcript
    return Outcome(seed, problems, states, transcript, steps, losses)


class _Run:
    """A program once, with the power lost at a call or not at all."""

    def __init__(self, seed: int, call: int | None = None) -> None:
        rng = Random(seed)
        kind = rng.choice(list(Kind))
        self._call = call
        self._seed = seed
        self.loses_all = rng.random() < 0.2
        self.world = World(
            seed,
            victim=rng.choice([0, 0, 1, 2]),
            is_compacted=kind.is_compacted,
            compacts=kind is Kind.COMPACTING,
            cuts_many=rng.random() < 0.3,
        )
        self.program = Program(self.world, kind, rng, theme=seed)
        self.calls = 0
        self.summary = ""
        if call is not None:
            self.world.crash_at(call)

    def go(self) -> None:
        world = self.world
        try:
            self._go()
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            world.ledger.problem(f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})")
        ends = [replica.log.end_offset if (replica := broker.replica) else None for broker in world.brokers]
        self.summary = f"{self._call or '-'} {ends} {world.ledger.committed_end} {len(world.metadata.entries)}"

    def _go(self) -> None:
        try:
            self.program.begin()
            self.program.run(STEPS)
            self.calls = self.world.victim.files.steps
        except Crashed:
            self._come_back(Random(f"{self._seed} {self._call}"))
        if not self.world.is_broken:
            self._end()

    def _come_back(self, rng: Random) -> None:
        world = self.world
        lost = world.brokers if self.loses_all else [world.victim]
        world.lose_power(lost, rng)
        if world.is_broken:
            return
        self.program.rng = rng
        is_founded = world.metadata.has_topic
        if is_founded and rng.random() < 0.5:
            self.program.run(STEPS_AFTER)
        for broker in rng.sample(lost, len(lost)):
            world.bring_back(broker, rng)
        if not is_founded:
            self.program.begin()
        self.program.run(STEPS_AFTER)

    def _end(self) -> None:
        world = self.world
        for _ in range(2):
            leader = world.settle()
            if leader is None:
                return
            world.ledger.check_settled(world.brokers, leader)
            for producer in world.producers:
                producer.send(leader, [b"last"], 0, world.now_ms)


@contextmanager
def _silenced() -> Iterator[None]:
    """What brokers log is of no interest: they are to go down all the time."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
