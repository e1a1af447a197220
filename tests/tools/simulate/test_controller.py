"""The simulation of the controller: some hundred of its schedules, and that it is what it claims to be."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from penstock.broker.cluster.state import ClusterState
from penstock.metadata.memory import MemoryStore
from penstock.metadata.store import ConflictError
from tools.simulate.controller import STATES, simulate

SCHEDULES = 500
FOUND = Path("tests/fixtures/simulation")

REGRESSIONS = {
    5: "a change that was written when its broker stopped was refused as if it had not been",
    17: "what was being decided when the controller resigned was never answered",
    37: "a snapshot was taken of an image that had nothing yet, and the store did not take it",
    51: "a broker did not start, since the snapshot that it had read was replaced twice meanwhile",
    359: "a broker that had lost the lease before it heard of it took the store for damaged, and ended",
}
"""Seeds that have broken a rule, with what was wrong. tests/fixtures/simulation has what happened then; the code has
changed since, and with it the schedule."""


def test_no_schedule_breaks_a_rule_and_together_they_reach_every_state() -> None:
    states: Counter[str] = Counter()
    for seed in range(1, SCHEDULES + 1):
        outcome = simulate(seed)
        assert not outcome.problems, (
            f"{outcome.problems[0]}; see it with .venv/bin/python -m tools.simulate controller --replay {seed}"
        )
        states += outcome.states
    assert [state for state in STATES if not states[state]] == []


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_seeds_that_found_something_find_nothing_any_more(seed: int) -> None:
    assert simulate(seed).problems == []
    assert "PROBLEM" in (FOUND / f"seed-{seed}.txt").read_text()


def test_every_state_that_is_counted_is_one_that_must_be_reached() -> None:
    states: Counter[str] = Counter()
    for seed in range(1, 40):
        states += simulate(seed).states
    assert states.keys() <= set(STATES)


def test_a_seed_replays_to_the_same_transcript() -> None:
    for seed in (1, 2, 3):
        first, second = simulate(seed, told=True), simulate(seed, told=True)
        assert first.transcript == second.transcript
        assert first.digest == second.digest == simulate(seed).digest
    assert simulate(1).digest != simulate(2).digest


def test_a_seed_replays_in_another_process_whatever_the_seed_of_its_hashes() -> None:
    for hash_seed in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-m", "tools.simulate", "controller", "--replay", "7"],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        )
        assert told.stdout.endswith(f"schedule {simulate(7).digest}\n")


# What it would find


def test_a_store_without_fencing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "_check_controller", lambda store, controller_epoch: None)
    assert first_problem(range(1, 200))


def test_a_store_without_compare_and_set_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def append(store: MemoryStore, controller_epoch: int, index: int, entry: bytes) -> None:
        store._check_controller(controller_epoch)
        store._shared.entries.append(bytes(entry))
        store._table.changes.wake()

    monkeypatch.setattr(MemoryStore, "_append", append)
    assert "twice" in first_problem(range(1, 200))


def test_an_append_that_claims_a_conflict_for_no_reason_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def append(store: MemoryStore, controller_epoch: int, index: int, entry: bytes) -> None:
        raise ConflictError(index, index)

    monkeypatch.setattr(MemoryStore, "append", append)
    assert "caught up" in first_problem([1])


def test_a_broker_that_passes_over_an_entry_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = ClusterState._apply

    def forgetful(state: ClusterState, index: int, data: bytes) -> object:
        before = state.image.next_producer_id
        change = apply(state, index, data)
        state.image.next_producer_id = before
        return change

    monkeypatch.setattr(ClusterState, "_apply", forgetful)
    assert "is not what the log says" in first_problem(range(1, 20))


def first_problem(seeds: "range | list[int]") -> str:
    return next((problem for seed in seeds for problem in simulate(seed).problems), "")
