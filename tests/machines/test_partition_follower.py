"""How a follower's log becomes a copy of its leader's."""

from typing import Any

import pytest

from penstock.machines.partition_follower import Append, FetchFrom, PartitionFollower, StartAt, Step, Truncate, Wait
from penstock.protocol.error_codes import ErrorCode
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.log.leader_epochs import LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    found = LeaderEpochs(MemoryFiles(), "leader-epochs")
    for epoch, start in entries:
        found.begin(epoch, start)
    return found


NO_EPOCHS = epochs()


def follower() -> PartitionFollower:
    return PartitionFollower(leader_id=1, leader_epoch=5, high_watermark=3)


def asked(one: PartitionFollower, end: int = 10, last_epoch: int = 4, log_start: int = 0) -> FetchFrom:
    fetch = one.fetch(durable_end=end, last_record_epoch=last_epoch, log_start=log_start)
    assert fetch is not None
    return fetch


def answer(one: PartitionFollower, fetch: FetchFrom, **named: Any) -> Step:
    return one.answered(fetch, **{"epochs": NO_EPOCHS, "log_start": 0, "log_end": 10, **named})


def test_it_fetches_from_its_durable_end_on_with_the_epoch_of_its_last_record() -> None:
    assert asked(follower()) == FetchFrom(leader_epoch=5, offset=10, last_fetched_epoch=4, log_start=0)


def test_one_fetch_is_outstanding_at_a_time() -> None:
    one = follower()
    fetch = asked(one)
    assert one.fetch(durable_end=10, last_record_epoch=4, log_start=0) is None
    assert answer(one, fetch) == Append()
    assert asked(one, end=12) is not None


def test_after_a_fetch_was_lost_another_is_made_and_the_answer_to_the_lost_one_is_late() -> None:
    one = follower()
    lost = asked(one)
    one.lost(lost)
    fetch = asked(one, end=11)
    one.lost(lost)
    assert answer(one, lost) == Wait()
    assert answer(one, fetch) == Append()


@pytest.mark.parametrize("error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH])
def test_a_leader_of_another_epoch_is_not_heeded(error: ErrorCode) -> None:
    one = follower()
    assert answer(one, asked(one), error=error, diverging=(3, 2)) == Wait()
    assert asked(one) is not None


def test_what_the_leader_has_deleted_is_skipped() -> None:
    one = follower()
    assert answer(one, asked(one), error=ErrorCode.OFFSET_OUT_OF_RANGE, leader_log_start=20) == StartAt(20)


def test_out_of_range_without_the_start_of_the_leaders_log_changes_nothing() -> None:
    one = follower()
    assert answer(one, asked(one), error=ErrorCode.OFFSET_OUT_OF_RANGE) == Wait()


@pytest.mark.parametrize(
    ("own", "diverging", "step"),
    [
        pytest.param([(2, 0), (4, 6)], (4, 8), Truncate(8), id="the leader's epoch ends earlier"),
        pytest.param([(2, 0), (4, 6)], (3, 7), Truncate(6), id="the leader has an epoch between, so ask again"),
        pytest.param([(2, 0), (4, 6)], (2, 5), Truncate(5), id="an older epoch ends earlier there"),
        pytest.param([(2, 0), (4, 6)], (2, 9), Truncate(6), id="an older epoch ends earlier here"),
        pytest.param([(4, 0)], (3, 7), Truncate(0), id="no epoch is shared"),
        pytest.param([(4, 0)], (-1, -1), StartAt(2), id="all epochs of the leader are newer"),
    ],
)
def test_what_the_leader_does_not_have_is_cut_by_epoch(
    own: list[tuple[int, int]], diverging: tuple[int, int], step: Step
) -> None:
    one = follower()
    assert answer(one, asked(one), diverging=diverging, epochs=epochs(*own), leader_log_start=2) == step


@pytest.mark.parametrize("diverging", [(4, 7), (3, 5)])
def test_a_log_that_would_end_before_its_start_begins_where_the_leaders_does(diverging: tuple[int, int]) -> None:
    one = follower()
    step = answer(
        one,
        asked(one, log_start=8),
        diverging=diverging,
        epochs=epochs((4, 8)),
        log_start=8,
        leader_log_start=3,
    )
    assert step == StartAt(3)


def test_the_high_watermark_is_the_leaders_up_to_the_own_end_and_never_goes_back() -> None:
    one = follower()
    assert one.committed(7, log_end=10) == 7
    assert one.committed(20, log_end=10) == 10
    assert one.committed(8, log_end=10) == 10
