"""Where the log of a follower parts from its leader's."""

from dataclasses import dataclass, field

import pytest

from penstock.machines.parting import parting
from penstock.machines.partition_leader import PartitionLeader
from penstock.protocol.error_codes import ErrorCode
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.log.leader_epochs import LeaderEpochs


@dataclass
class ALog:
    """Records from 3 to 10: of epoch 1 up to 6, of epoch 4 from there on."""

    start_offset: int = 3
    end_offset: int = 10
    epochs: LeaderEpochs = field(default_factory=lambda: LeaderEpochs(MemoryFiles(), "leader-epochs"))

    def __post_init__(self) -> None:
        self.epochs.begin(1, 3)
        self.epochs.begin(4, 6)


def parted(
    *, leader_epoch: int = 4, offset: int = 10, last_epoch: int = 4, broker_id: int = 2
) -> ErrorCode | tuple[int, int] | None:
    leader = PartitionLeader.elected(
        broker_id=1, broker_epoch=1, leader_epoch=4, partition_epoch=0, replicas=(1, 2), isr=(1, 2), min_isr=1,
        log_start=0, log_end=6, durable_end=6, high_watermark=3, now_ms=0,
    )  # fmt: skip
    return parting(leader, ALog(), broker_id, leader_epoch=leader_epoch, offset=offset, last_fetched_epoch=last_epoch)


@pytest.mark.parametrize(("offset", "last_epoch"), [(10, 4), (7, 4), (6, 1), (4, 1), (3, -1)])
def test_a_log_that_is_a_beginning_of_the_leaders_has_not_parted(offset: int, last_epoch: int) -> None:
    assert parted(offset=offset, last_epoch=last_epoch) is None


@pytest.mark.parametrize(
    ("offset", "last_epoch", "where"),
    [
        (7, 1, (1, 6)),
        (8, 3, (1, 6)),
        (5, 3, (1, 6)),
        (12, 4, (4, 10)),
    ],
)
def test_it_is_told_where_the_largest_epoch_that_both_may_have_ends(
    offset: int, last_epoch: int, where: tuple[int, int]
) -> None:
    assert parted(offset=offset, last_epoch=last_epoch) == where


def test_a_fetch_of_an_older_leader_epoch_is_fenced_and_of_a_newer_one_unknown() -> None:
    assert parted(leader_epoch=3) is ErrorCode.FENCED_LEADER_EPOCH
    assert parted(leader_epoch=5) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_broker_that_is_no_replica_has_to_wait_for_newer_metadata() -> None:
    assert parted(broker_id=9) is ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("offset", [2, 11])
def test_an_offset_outside_of_the_log_is_out_of_range_if_no_epoch_says_more(offset: int) -> None:
    assert parted(offset=offset, last_epoch=-1) is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("offset", [2, 5])
def test_a_follower_of_an_epoch_of_which_nothing_is_left_is_out_of_range(offset: int) -> None:
    # "No epoch" would be no divergence on the wire, and the follower would wait for ever.
    assert parted(offset=offset, last_epoch=0) is ErrorCode.OFFSET_OUT_OF_RANGE
