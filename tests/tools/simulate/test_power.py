"""The simulation of power losses: some of its seeds with every call, and that it is what it claims to be."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from penstock.broker.partitions.partition import Partition
from penstock.protocol.batch import split
from penstock.storage import data_directory
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.log import holes, leader_epochs, log
from tools.simulate.power import STATES, simulate


# Of 135 a check of the simulation took it for wrong that a copy begins within what compaction has left of a batch.
@pytest.mark.parametrize("seed", [1, 133, 135])
def test_a_power_loss_at_any_call_breaks_no_rule(seed: int) -> None:
    outcome = simulate(seed)
    assert not outcome.problems, f"seed {seed}: {outcome.problems[0]}"
    assert outcome.power_losses == outcome.steps > 0


def test_every_state_that_is_counted_is_one_that_must_be_reached() -> None:
    states: Counter[str] = Counter()
    for seed in range(1, 5):
        states += simulate(seed, calls=range(5, 60, 7)).states
    assert states.keys() <= set(STATES)


def test_a_seed_replays_to_the_same_transcript() -> None:
    calls = range(10, 60, 10)
    first, second = simulate(1, calls=calls), simulate(1, calls=calls)
    assert first.transcript == second.transcript
    assert first.digest == second.digest != simulate(2, calls=calls).digest


def test_a_seed_replays_in_another_process_whatever_the_seed_of_its_hashes() -> None:
    program = "from tools.simulate.power import simulate; print(simulate(3, calls=range(20, 60, 10)).digest)"
    for hash_seed in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        )
        assert told.stdout == f"{simulate(3, calls=range(20, 60, 10)).digest}\n"


# What it would find: each of these switches off a rule


def _forget_holes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(holes.Holes, "add", lambda self, start_offset, end_offset: None)


def _tell_before_flushing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "is_copied_durably", True)


def _save_no_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leader_epochs.LeaderEpochs, "is_saved", True)
    patch.setattr(leader_epochs.LeaderEpochs, "save", lambda self: None)


def _keep_epochs_that_were_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leader_epochs.LeaderEpochs, "truncate", lambda self, end_offset: None)


def _cut_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    follow = Partition.follow

    def cut_and_follow(self: Partition, leader_id: int, leader_epoch: int) -> None:
        self.log.truncate(max(self.high_watermark, self.log.start_offset))
        follow(self, leader_id, leader_epoch)

    patch.setattr(Partition, "follow", cut_and_follow)


def _cut_above_the_recovery_point(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(data_directory.DataDirectory, "_lower", lambda self, ends: None)


def _move_the_start_in_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log, "write_log_start", lambda files, directory, offset: None)


def _forget_producers_of_copies(patch: pytest.MonkeyPatch) -> None:
    def append_copied(self: Partition, data: memoryview, now_ms: int) -> None:
        self.log.append_replicated(split(data), now_ms=now_ms)
        self.wrote(len(data))

    patch.setattr(Partition, "append_copied", append_copied)


def _do_not_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryFiles, "sync", lambda self, fd: None)


BROKEN: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    _forget_holes: 4,
    _tell_before_flushing: 7,
    _save_no_epochs: 7,
    _keep_epochs_that_were_cut: 5,
    _cut_to_the_high_watermark: 4,
    _cut_above_the_recovery_point: 8,
    _move_the_start_in_memory: 4,
    _forget_producers_of_copies: 4,
    _do_not_sync: 4,
}
"""What is broken, and a seed that finds it."""


@pytest.mark.parametrize("rule", BROKEN, ids=lambda rule: rule.__name__.strip("_"))
def test_a_rule_that_is_switched_off_is_found_out(
    rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule(monkeypatch)
    assert simulate(BROKEN[rule]).problems
