"""The simulation of replication: some thousand of its schedules, and that it is what it claims to be."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tools.simulate.replication import STATES, World, simulate

SHARE = 1250
FOUND = Path("tests/fixtures/simulation")

REGRESSIONS = {
    984: "a leader proposed no more, since a former controller did not know its topic",
}
"""Seeds that have broken a rule, with what was wrong. tests/fixtures/simulation has what happened then; the code has
changed since, and with it the schedule."""


@pytest.mark.parametrize("first", range(1, 4 * SHARE, SHARE))
def test_no_schedule_breaks_a_rule_and_together_they_reach_every_state(first: int) -> None:
    states: Counter[str] = Counter()
    for seed in range(first, first + SHARE):
        outcome = simulate(seed)
        assert not outcome.problems, (
            f"{outcome.problems[0]}; see it with .venv/bin/python -m tools.simulate replication --replay {seed}"
        )
        states += outcome.states
    assert [state for state in STATES if not states[state]] == []
    assert states.keys() <= set(STATES)


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_seeds_that_found_something_find_nothing_any_more(seed: int) -> None:
    assert simulate(seed).problems == []
    assert "PROBLEM" in (FOUND / f"replication-{seed}.txt").read_text()


def test_a_seed_replays_to_the_same_transcript() -> None:
    for seed in (1, 2, 3):
        first, second = simulate(seed, told=True), simulate(seed, told=True)
        assert first.transcript == second.transcript != []
        assert first.digest == second.digest == simulate(seed).digest
    assert simulate(1).digest != simulate(2).digest


def test_a_seed_replays_in_another_process_whatever_the_seed_of_its_hashes() -> None:
    for hash_seed in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-m", "tools.simulate", "replication", "--replay", "7"],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        )
        assert told.stdout.endswith(f"schedule {simulate(7).digest}\n")


def test_most_schedules_acknowledge_records_and_elect_leaders() -> None:
    """What never happens breaks no rule."""
    acknowledged = elected = 0
    for seed in range(1, 101):
        world = World(seed)
        world.run()
        acknowledged += world.ledger.acknowledgements > 0
        elected += sum(image.leader_epoch for image, _ in world.metadata.view.partitions.values()) > 1
    assert acknowledged > 85
    assert elected > 70
