"""What a partition becomes when brokers come and go."""

from typing import Any

import pytest

from penstock.machines.cluster_records import NO_LEADER, PartitionImage, ReassignedPartition
from penstock.machines.elections import (
    LEADER_EPOCH_STEP,
    addition_cancelled,
    awaits_reports,
    broker_came,
    broker_left,
    elected_unclean,
    ends_reported,
    given_up,
    isr_altered,
    led_anew,
    min_isr_changed,
    needed,
    needed_by,
    preferred_leads,
    replicas_added,
)
from penstock.machines.log_ends import NO_EPOCH, LogEnd
from tests.machines.import_walk import ImportWalk
from tests.machines.replica_walk import Walk


def partition(
    isr: tuple[int, ...],
    leader: int,
    *,
    elr: tuple[int, ...] = (),
    epoch: int = 3,
    change: int = 8,
    replicas: tuple[int, ...] = (1, 2, 3),
) -> PartitionImage:
    return PartitionImage(0, replicas, isr, elr, leader, epoch, change)


def state(image: PartitionImage | None) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Who is in sync, who is eligible, who leads."""
    assert image is not None
    return image.isr, image.elr, image.leader


def test_two_of_three_replicas_are_needed_unless_it_is_set() -> None:
    assert [needed(None, replicas) for replicas in (1, 2, 3, 5)] == [1, 1, 2, 2]
    assert [needed(2, replicas) for replicas in (1, 2, 3)] == [1, 2, 2]


@pytest.mark.parametrize(
    ("before", "live", "after"),
    [
        pytest.param(partition((1, 2, 3), 1), {2, 3}, partition((2, 3), 2, epoch=4, change=9), id="the leader"),
        pytest.param(partition((1, 2, 3), 2), {2, 3}, partition((2, 3), 2, change=9), id="a follower"),
        pytest.param(
            partition((3, 2, 1), 1), {3, 2}, partition((3, 2), 2, epoch=4, change=9), id="in order of preference"
        ),
        pytest.param(
            partition((1, 2), 1), {2}, partition((2,), 2, elr=(1,), epoch=4, change=9), id="too few are in sync then"
        ),
        pytest.param(partition((1,), 1), {2, 3}, partition((1,), NO_LEADER, epoch=4, change=9), id="the last in sync"),
        pytest.param(partition((1,), NO_LEADER), {2, 3}, None, id="nothing is left to change"),
        pytest.param(partition((2, 3), 2), {2, 3}, None, id="a replica that was not in sync"),
    ],
)
def test_a_broker_leaves(before: PartitionImage, live: set[int], after: PartitionImage | None) -> None:
    assert broker_left(before, 1, live) == after


def test_with_enough_in_sync_those_that_left_are_not_eligible() -> None:
    assert state(broker_left(partition((1, 2, 3), 1), 1, {2, 3}, 2)) == ((2, 3), (), 2)


def test_below_the_needed_number_those_that_leave_are_eligible() -> None:
    assert state(broker_left(partition((1, 2, 3), 1), 1, {2, 3}, 3)) == ((2, 3), (1,), 2)
    assert state(broker_left(partition((2, 3), 2, elr=(1,)), 2, {3}, 3)) == ((3,), (1, 2), 3)


def test_with_none_in_sync_the_eligible_ones_stay_eligible_until_one_is_alive() -> None:
    assert state(broker_left(partition((3,), 3, elr=(1,)), 3, set(), 2)) == ((), (1, 3), NO_LEADER)
    assert broker_left(partition((), NO_LEADER, elr=(1, 3)), 1, set(), 2) is None


def test_with_none_in_sync_an_eligible_one_that_is_alive_leads() -> None:
    assert state(broker_left(partition((3,), 3, elr=(1, 2)), 3, {2}, 2)) == ((2,), (1, 3), 2)
    assert state(broker_came(partition((), NO_LEADER, elr=(1, 3)), 3, 2)) == ((3,), (1,), 3)


def test_an_eligible_one_does_not_lead_while_another_is_in_sync() -> None:
    assert broker_came(partition((2,), NO_LEADER, elr=(1,)), 1, 2) is None


def test_a_replica_that_is_neither_in_sync_nor_eligible_never_leads() -> None:
    assert broker_came(partition((), NO_LEADER, elr=(1, 3)), 2, 2) is None
    assert state(broker_left(partition((1,), 1, elr=()), 1, {2, 3}, 1)) == ((1,), (), NO_LEADER)


def test_an_eligible_one_that_leads_commits_alone_where_one_is_enough() -> None:
    assert state(broker_came(partition((), NO_LEADER, elr=(1, 3)), 3, 1)) == ((3,), (), 3)


def test_a_replica_that_lost_its_log_is_not_eligible() -> None:
    assert state(broker_left(partition((1, 2), 1), 1, {2}, 2, has_lost_its_log=True)) == ((2,), (), 2)
    before = partition((3,), 3, elr=(1, 2))
    assert state(broker_left(before, 1, {3}, 2, has_lost_its_log=True)) == ((3,), (2,), 3)


def test_the_last_replica_that_has_everything_stays_in_sync_even_if_its_log_is_lost() -> None:
    assert state(broker_left(partition((1,), 1), 1, {2, 3}, 2, has_lost_its_log=True)) == ((1,), (), NO_LEADER)
    eligible = partition((), NO_LEADER, elr=(1,))
    assert state(broker_left(eligible, 1, {2, 3}, 2, has_lost_its_log=True)) == ((1,), (), NO_LEADER)
    assert state(broker_left(eligible, 1, {2, 3}, 2)) == ((1,), (), NO_LEADER)


def test_what_is_left_undone_for_a_partition_is_done_when_another_broker_leaves() -> None:
    assert state(broker_left(partition((2,), NO_LEADER), 3, {1, 2}, 2)) == ((2,), (), 2)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(partition((1,), NO_LEADER), partition((1,), 1, epoch=4, change=9), id="it has everything"),
        pytest.param(partition((2,), NO_LEADER), None, id="another has more"),
        pytest.param(partition((2,), 2), None, id="another leads"),
        pytest.param(partition((1, 2), 2), None, id="another leads, and both have everything"),
    ],
)
def test_a_broker_comes(before: PartitionImage, after: PartitionImage | None) -> None:
    assert broker_came(before, 1) == after


def test_a_leader_says_who_is_in_sync() -> None:
    assert isr_altered(partition((1,), 1), {3, 1}, 1) == partition((1, 3), 1, change=9)


def test_a_change_of_nothing_is_a_change_too() -> None:
    assert isr_altered(partition((1, 2), 1), {1, 2}, 2) == partition((1, 2), 1, change=9)


def test_those_that_a_leader_takes_out_are_eligible_while_too_few_are_in_sync() -> None:
    assert state(isr_altered(partition((1, 2, 3), 1), {1}, 2)) == ((1,), (2, 3), 1)
    assert state(isr_altered(partition((1,), 1, elr=(2,)), {1, 3}, 3)) == ((1, 3), (2,), 1)


def test_with_enough_in_sync_again_nobody_else_is_eligible() -> None:
    assert state(isr_altered(partition((1,), 1, elr=(2,)), {1, 3}, 2)) == ((1, 3), (), 1)


def test_with_fewer_needed_the_eligible_ones_are_eligible_no_longer() -> None:
    assert min_isr_changed(partition((1,), 1, elr=(2,)), 1) == partition((1,), 1, change=9)
    assert min_isr_changed(partition((1,), 1, elr=(2,)), 2) is None
    assert min_isr_changed(partition((), NO_LEADER, elr=(1, 2)), 1) is None


def test_with_more_needed_nobody_becomes_eligible() -> None:
    assert min_isr_changed(partition((1, 2), 1), 3) is None


@pytest.mark.parametrize(
    ("before", "live", "after"),
    [
        pytest.param(partition((1, 2, 3), 2), {2, 3}, partition((2, 3), 2, epoch=4, change=9), id="a follower"),
        pytest.param(partition((1, 2, 3), 1), {2, 3}, partition((2, 3), 2, epoch=4, change=9), id="the leader"),
        pytest.param(partition((1, 2, 3), 1), {3}, partition((2, 3), 3, epoch=4, change=9), id="to one that is alive"),
        pytest.param(partition((2, 3), 2), {2, 3}, partition((2, 3), 2, epoch=4, change=9), id="out of sync already"),
        pytest.param(partition((1, 2), 2), {2, 3}, None, id="too few are in sync without it"),
        pytest.param(partition((1, 2, 3), 1), set(), None, id="no other is alive"),
        pytest.param(partition((2,), NO_LEADER, elr=(1, 3)), {2, 3}, None, id="an eligible one"),
    ],
)
def test_a_damaged_replica_is_given_up_in_a_new_leader_epoch_where_enough_others_are_in_sync(
    before: PartitionImage, live: set[int], after: PartitionImage | None
) -> None:
    assert given_up(before, 1, live) == after


def test_the_preferred_replica_leads_if_it_is_in_sync_and_alive() -> None:
    assert preferred_leads(partition((2, 1), 2), {1, 2}) == partition((2, 1), 1, epoch=4, change=9)
    assert preferred_leads(partition((1, 2), 1), {1, 2}) is None
    assert preferred_leads(partition((2, 3), 2, elr=(1,)), {1, 2}) is None
    assert preferred_leads(partition((1, 2), 2), {2}) is None


def test_an_unclean_election_takes_any_replica_that_is_alive_if_none_leads() -> None:
    assert elected_unclean(partition((1,), NO_LEADER), {3}) == partition((3,), 3, epoch=4, change=9)
    assert elected_unclean(partition((), NO_LEADER, elr=(1,)), {2, 3}) == partition((2,), 2, epoch=4, change=9)
    assert elected_unclean(partition((1,), NO_LEADER), {9}) is None
    assert elected_unclean(partition((1,), 1), {3}) is None


def test_a_leader_whose_log_may_have_lost_its_end_leads_in_a_new_epoch() -> None:
    assert led_anew(partition((1,), 1)) == partition((1,), 1, epoch=4, change=9)


def adding(
    isr: tuple[int, ...],
    leader: int,
    new: tuple[int, ...],
    *,
    elr: tuple[int, ...] = (),
    epoch: int = 3,
    change: int = 8,
    replicas: tuple[int, ...] = (1, 2, 3),
) -> ReassignedPartition:
    return ReassignedPartition(0, replicas, isr, elr, leader, epoch, change, new)


def test_added_replicas_are_not_in_sync_and_change_nothing_else() -> None:
    assert replicas_added(partition((1,), 1, replicas=(1,)), (1, 2, 3)) == adding((1,), 1, (2, 3), change=9)
    assert replicas_added(adding((1,), 1, (2,), replicas=(1, 2)), (1, 2, 3)) == adding((1,), 1, (2, 3), change=9)


def test_replicas_that_a_partition_has_already_are_not_added() -> None:
    assert replicas_added(partition((1, 2), 1, replicas=(1, 2)), (1, 2)) is None
    reordered = replicas_added(partition((1, 2), 1, replicas=(1, 2)), (2, 1))
    assert reordered == partition((1, 2), 1, replicas=(2, 1), change=9)


@pytest.mark.parametrize("min_isr", [None, 1, 2, 3])
@pytest.mark.parametrize("present", [(1,), (1, 2), (1, 2, 3)])
def test_no_more_replicas_are_needed_until_all_that_are_added_are_in_sync(
    present: tuple[int, ...], min_isr: int | None
) -> None:
    before = partition(present, 1, replicas=present)
    grown = replicas_added(before, (*present, 4, 5))
    assert grown is not None
    assert needed_by(grown, min_isr) == needed_by(before, min_isr)
    half = isr_altered(grown, {*present, 4}, min_isr)
    assert (half.adding, needed_by(half, min_isr)) == ((4, 5), needed_by(before, min_isr))
    whole = isr_altered(half, {*present, 4, 5}, min_isr)
    assert (whole.adding, needed_by(whole, min_isr)) == ((), needed(min_isr, len(present) + 2))


def test_replicas_are_added_once_all_of_them_are_in_sync_though_an_old_one_is_not() -> None:
    assert isr_altered(adding((1,), 1, (2, 3)), {1, 2}) == adding((1, 2), 1, (2, 3), change=9)
    assert isr_altered(adding((1, 2), 2, (2, 3)), {2, 3}) == partition((2, 3), 2, change=9)


def test_with_all_added_those_that_leave_are_eligible_by_the_new_number() -> None:
    assert isr_altered(adding((1, 2), 2, (2, 3)), {2, 3}, 3) == partition((2, 3), 2, elr=(1,), change=9)


def test_a_replica_that_is_being_added_leads_only_if_it_is_in_sync() -> None:
    assert state(broker_left(adding((1, 2), 1, (2, 3)), 1, {2, 3})) == ((2,), (), 2)
    assert state(broker_left(adding((1,), 1, (2, 3)), 1, {2, 3})) == ((1,), (), NO_LEADER)
    assert broker_came(adding((1,), NO_LEADER, (2, 3)), 2) is None
    assert preferred_leads(adding((1,), 1, (2, 3), replicas=(2, 1, 3)), {1, 2, 3}) is None


def test_an_eligible_one_that_leads_is_added_with_that_if_no_other_is_being_added() -> None:
    before = ReassignedPartition(0, (1, 2, 3), (1,), (3,), 1, 3, 8, (3,))
    after = broker_left(before, 1, {3}, 2, has_lost_its_log=True)
    assert after == PartitionImage(0, (1, 2, 3), (3,), (), 3, 4, 9)


def test_those_that_leave_while_replicas_are_added_are_eligible_by_the_number_without_them() -> None:
    assert state(broker_left(adding((1, 4), 4, (3, 4), replicas=(1, 2, 3, 4)), 1, {4}, 2)) == ((4,), (1,), 4)
    assert state(broker_left(adding((1, 2), 2, (2, 3)), 1, {2}, 2)) == ((2,), (), 2)
    assert state(min_isr_changed(adding((1,), 1, (3, 4), elr=(2,), replicas=(1, 2, 3, 4)), 1)) == ((1,), (), 1)
    assert min_isr_changed(adding((1,), 1, (3, 4), elr=(2,), replicas=(1, 2, 3, 4)), 3) is None


def test_an_unclean_election_takes_a_replica_that_is_being_added_only_if_there_is_no_other() -> None:
    before = adding((1,), NO_LEADER, (3,), replicas=(3, 1, 2))
    assert elected_unclean(before, {2, 3}) == adding((2,), 2, (3,), replicas=(3, 1, 2), epoch=4, change=9)
    assert elected_unclean(before, {3}) == partition((3,), 3, replicas=(3, 1, 2), epoch=4, change=9)


def test_an_addition_that_is_cancelled_takes_away_those_that_do_not_have_everything() -> None:
    assert addition_cancelled(adding((1,), 1, (2, 3))) == partition((1,), 1, replicas=(1,), epoch=4, change=9)
    some = addition_cancelled(adding((1, 2), 2, (2, 3)))
    assert some == partition((1, 2), 2, replicas=(1, 2), epoch=4, change=9)


def test_a_replica_that_is_eligible_stays_when_an_addition_is_cancelled() -> None:
    before = adding((1,), 1, (3, 4), elr=(3,), replicas=(1, 2, 3, 4))
    after = addition_cancelled(before)
    assert after == adding((1,), 1, (3,), elr=(3,), replicas=(1, 2, 3), epoch=4, change=9)
    assert addition_cancelled(after) is None


def test_nothing_is_cancelled_where_nothing_is_added() -> None:
    assert addition_cancelled(partition((1,), 1)) is None


@pytest.mark.parametrize("min_isr", [None, 1, 2, 3])
def test_no_fewer_replicas_are_needed_after_an_addition_is_cancelled(min_isr: int | None) -> None:
    for before in (adding((1,), 1, (2, 3)), adding((1, 2), 1, (2, 3)), adding((1, 2), 1, (3,))):
        after = addition_cancelled(before)
        assert after is not None
        assert needed_by(before, min_isr) <= needed_by(after, min_isr)


def test_nothing_committed_is_lost_while_replicas_are_added_and_brokers_come_and_go() -> None:
    raised = completed = cancelled = committed = 0
    for seed in range(300):
        walk = Walk(seed)
        for step in range(300):
            try:
                walk.step()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, step {step}: {error}") from error
        raised, completed = raised + walk.raised, completed + walk.completed
        cancelled, committed = cancelled + walk.cancelled, committed + len(walk.committed)
    assert min(raised, completed, cancelled, committed) > 50, (raised, completed, cancelled, committed)


def imported(**more: Any) -> PartitionImage:
    return partition((), NO_LEADER, **more)


class TestImportedPartitions:
    """Nobody is known to have everything."""

    def test_no_broker_that_comes_or_goes_makes_one_of_them_led(self) -> None:
        state = imported()
        assert awaits_reports(state)
        assert broker_came(state, 1, others={2, 3}) is None
        assert broker_left(state, 1, {2, 3}) is None
        assert broker_left(state, 1, {2, 3}, has_lost_its_log=True) is None
        assert preferred_leads(state, {1, 2, 3}) is None
        assert min_isr_changed(state, 1) is None

    def test_all_replicas_have_to_report(self) -> None:
        end = LogEnd(3, 100, 3)
        assert ends_reported(imported(), {1: end, 3: end}) is None
        assert ends_reported(imported(), {1: end, 2: end, 3: end}) is not None

    def test_one_whose_log_goes_farthest_leads_and_those_that_equal_it_are_in_sync(self) -> None:
        ends = {1: LogEnd(3, 500, 3), 2: LogEnd(4, 100, 4), 3: LogEnd(4, 100, 6)}
        assert ends_reported(imported(), ends) == partition(
            (2, 3), 2, epoch=6 + LEADER_EPOCH_STEP, change=imported().partition_epoch + 1
        )

    def test_the_leader_epoch_is_beyond_the_export_and_beyond_all_logs(self) -> None:
        for exported, newest in ((3, 9), (9, 3), (0, NO_EPOCH)):
            end = LogEnd(newest, 5 if newest >= 0 else 0, newest)
            led = ends_reported(imported(epoch=exported), dict.fromkeys((1, 2, 3), end))
            assert led is not None
            assert led.leader_epoch == max(exported, newest) + LEADER_EPOCH_STEP

    def test_a_partition_without_records_is_led_by_its_first_replica_with_all_in_sync(self) -> None:
        led = ends_reported(imported(), dict.fromkeys((1, 2, 3), LogEnd(NO_EPOCH, 0, NO_EPOCH)))
        assert led is not None
        assert (led.leader, led.isr) == (1, (1, 2, 3))

    def test_of_logs_whose_epochs_are_not_known_one_is_in_sync(self) -> None:
        led = ends_reported(imported(), dict.fromkeys((1, 2, 3), LogEnd(NO_EPOCH, 7, NO_EPOCH)))
        assert led is not None
        assert (led.leader, led.isr) == (1, (1,))

    def test_replicas_that_were_added_since_have_nothing_to_report(self) -> None:
        grown = replicas_added(imported(), (4, 1, 2, 3))
        assert grown is not None
        end = LogEnd(3, 100, 3)
        led = ends_reported(grown, dict.fromkeys((1, 2, 3), end) | {4: LogEnd(9, 900, 9)})
        assert led is not None
        assert (led.leader, led.isr, led.adding) == (1, (1, 2, 3), (4,))

    def test_partitions_that_were_not_imported_do_not_go_by_reports(self) -> None:
        ends = dict.fromkeys((1, 2, 3), LogEnd(3, 100, 3))
        assert ends_reported(partition((1,), NO_LEADER), ends) is None
        assert ends_reported(partition((), NO_LEADER, elr=(1,)), ends) is None

    def test_an_operator_may_go_without_some_reports(self) -> None:
        ends = {1: LogEnd(3, 50, 3), 3: LogEnd(3, 70, 3)}
        led = elected_unclean(imported(), {1, 3}, ends)
        assert led is not None
        assert (led.leader, led.isr) == (3, (3,))
        assert elected_unclean(imported(), {1, 2, 3}, {}) is None
        assert elected_unclean(imported(), {4}, {4: LogEnd(9, 9, 9)}) is None


def test_nothing_committed_is_lost_when_metadata_is_lost_and_imported_from_older_exports() -> None:
    losses = led = committed = 0
    for seed in range(150):
        walk = ImportWalk(seed)
        for step in range(300):
            try:
                walk.step()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, step {step}: {error}") from error
        losses, led, committed = losses + walk.losses, led + walk.led, committed + len(walk.committed)
    assert min(losses, led, committed) > 100, (losses, led, committed)
