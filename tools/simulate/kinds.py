"""The kinds of simulation, each of which runs other code of production through schedules of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tools.simulate import brokers, controller, power, replication
from tools.simulate.outcome import Ended


class Simulate(Protocol):
    def __call__(self, seed: int, *, told: bool = False) -> Ended: ...


@dataclass(frozen=True, slots=True)
class Kind:
    """`simulate` runs the schedule of a seed. `sources` are the files that decide how it goes: results of other ones
    say nothing. A run of `enough` schedules must have come through all `states`."""

    name: str
    simulate: Simulate
    states: Sequence[str]
    sources: Sequence[str]
    seeds: tuple[int, int]
    """Those of a run that names none."""
    enough: int
    block: int
    """Schedules that a process runs before it tells how they went: a few seconds' worth."""


_ALL: Final = (
    Kind(
        "controller",
        controller.simulate,
        controller.STATES,
        (
            "src/penstock/broker/cluster/*.py",
            "src/penstock/machines/*.py",
            "src/penstock/metadata/*.py",
            "tools/simulate/loop.py",
            "tools/simulate/controller/*.py",
        ),
        seeds=(1, 20_000),
        enough=500,
        block=50,
    ),
    Kind(
        "replication",
        replication.simulate,
        replication.STATES,
        (
            "src/penstock/machines/*.py",
            "src/penstock/storage/log/leader_epochs.py",
            "tools/simulate/replication/*.py",
        ),
        seeds=(1, 1_000_000),
        enough=2000,
        block=500,
    ),
    Kind(
        "power",
        power.simulate,
        power.STATES,
        (
            "src/penstock/broker/partitions/*.py",
            "src/penstock/machines/*.py",
            "src/penstock/storage/**/*.py",
            "tools/simulate/power/*.py",
        ),
        seeds=(1, 200),
        enough=200,
        block=2,
    ),
    Kind(
        "brokers",
        brokers.simulate,
        brokers.STATES,
        (
            "src/penstock/broker/**/*.py",
            "src/penstock/client/**/*.py",
            "src/penstock/machines/*.py",
            "src/penstock/metadata/*.py",
            "src/penstock/storage/**/*.py",
            "tools/simulate/loop.py",
            "tools/simulate/brokers/*.py",
        ),
        seeds=(1, 500),
        enough=200,
        block=2,
    ),
)

KINDS: Final = {kind.name: kind for kind in _ALL}
