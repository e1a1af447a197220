"""Groups in storms: what must hold whatever happens, over many seeds."""

from collections import Counter

import pytest

from penstock.machines import decision_queue
from tests.machines.groups.histories import seeded
from tests.machines.groups.simulation import STATES, run

BLOCK = 500


@pytest.mark.parametrize("block", range(4))
def test_groups_hold_their_promises_in_every_storm(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # So few that a stalled log fills it.
    monkeypatch.setattr(decision_queue, "MAX_UNCOMMITTED", 15)
    reached: Counter[str] = Counter()
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        with seeded(seed) as chance:
            run(chance, reached)
    assert not STATES - reached.keys(), "no seed has come to this: the storms are too weak"
