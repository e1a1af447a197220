"""The simulation of whole brokers: some of its schedules, and that a seed replays byte for byte."""

import re
import subprocess
import sys
from collections import Counter

import pytest

from penstock.broker.partitions.partition import Partition
from penstock.machines.partition_leader import PartitionLeader
from penstock.protocol.batch import split
from tools.simulate.brokers import STATES, simulate

SCHEDULES = 8

REGRESSIONS = {
    4: "a follower that was away while its last epoch was deleted waited for ever, and was never in sync again",
    31: "a leader forgot a follower that had nothing to fetch, and so said only once where it was",
    150: "a deletion was acknowledged with too few in sync, and a replica that had left and not made it came to lead",
    410: "the first batch of a new producer was refused, as too few were in sync, and the next one came before it",
}
"""Seeds that have broken a rule, with what was wrong. The code has changed since, and with it the schedule."""


def test_no_schedule_of_whole_brokers_breaks_a_rule() -> None:
    states: Counter[str] = Counter()
    for seed in range(1, SCHEDULES + 1):
        outcome = simulate(seed)
        assert not outcome.problems, f"seed {seed}: {outcome.problems[0]}"
        assert outcome.acknowledged > 0
        states += outcome.states
    assert states.keys() <= set(STATES)
    assert states["a broker lost its power"] > 0


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_seeds_of_whole_brokers_that_found_something_find_nothing_any_more(seed: int) -> None:
    assert simulate(seed).problems == []


def test_a_seed_of_whole_brokers_replays_byte_for_byte_whatever_the_seed_of_its_hashes() -> None:
    here = simulate(6)
    program = "from tools.simulate.brokers import simulate; print(simulate(6).digest)"
    for hash_seed in ("1", "3"):
        told = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join([".", *sys.path])},
            check=True,
            capture_output=True,
            text=True,
        )
        assert told.stdout == f"{here.digest}\n"
    assert simulate(7).digest != here.digest


def test_a_transcript_with_all_that_brokers_log_is_of_the_same_schedule() -> None:
    short, long = simulate(6), simulate(6, told=True)
    assert short.digest == long.digest
    assert len(long.transcript) > len(short.transcript)


# What it would find


def first_problem() -> str:
    """About every second seed notices such a fault. Which of them do changes with the code."""
    found = (problem for seed in range(1, 21) for problem in simulate(seed).problems)
    return next(found, "no problem")


def test_followers_that_forget_what_producers_sent_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def append_copied(partition: Partition, data: memoryview, now_ms: int) -> None:
        partition.log.append_replicated(split(data), now_ms=now_ms)
        partition.wrote(len(data))

    monkeypatch.setattr(Partition, "append_copied", append_copied)
    problem = first_problem()
    assert re.search(r"is at \(0, \d+\) and at \(0, \d+\)", problem), problem


def test_a_leader_that_does_not_wait_for_one_of_its_followers_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(leader: PartitionLeader) -> None:
        if len(leader.isr) >= leader.needed:
            others = sorted(leader.maximal_isr - {leader.broker_id})[:-1]
            ends = [leader.end_offset, *(leader.followers[broker_id].end_offset for broker_id in others)]
            leader.high_watermark = max(leader.high_watermark, min(ends))

    monkeypatch.setattr(PartitionLeader, "_commit", commit)
    # Two producers were told the offset, or a reader finds another record there than before.
    problem = first_problem()
    assert re.search(r"were both acknowledged at|has changed from", problem), problem
