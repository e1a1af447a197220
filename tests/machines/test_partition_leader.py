"""When a record is committed, and who is proposed as in sync."""

from typing import Any

import pytest

from penstock.machines.partition_leader import LAG_MS, REST_MS, Answered, PartitionLeader, Proposal
from penstock.protocol.error_codes import ErrorCode


def elected(isr: tuple[int, ...] = (1,), *, min_isr: int | None = 1, end: int = 10, **named: Any) -> PartitionLeader:
    """Broker 1 of 1, 2 and 3 begins to lead in epoch 3, with ten records of which four are known to be committed."""
    return PartitionLeader.elected(
        **{
            "broker_id": 1,
            "broker_epoch": 100,
            "leader_epoch": 3,
            "partition_epoch": 7,
            "replicas": (1, 2, 3),
            "isr": isr,
            "min_isr": min_isr,
            "log_start": 0,
            "log_end": end,
            "durable_end": end,
            "high_watermark": 4,
            "now_ms": 0,
            **named,
        }
    )


def fetched(leader: PartitionLeader, broker_id: int, offset: int, **named: Any) -> bool:
    return leader.follower_fetched(
        broker_id,
        **{
            "broker_epoch": 100 * broker_id,
            "session": 1,
            "offset": offset,
            "log_start": 0,
            "leader_end": leader.end_offset,
            "now_ms": 0,
            **named,
        },
    )


def proposed(leader: PartitionLeader, now_ms: int = 0) -> dict[int, int]:
    """Who is to be in sync, with the epochs of their registrations."""
    proposal = leader.next_proposal(now_ms, leader.end_offset)
    return {} if proposal is None else dict(proposal.isr)


def proposal_of(leader: PartitionLeader, now_ms: int = 0) -> Proposal:
    proposal = leader.next_proposal(now_ms, leader.end_offset)
    assert proposal is not None
    return proposal


class TestHighWatermark:
    def test_a_leader_alone_commits_what_is_durable(self) -> None:
        leader = elected(durable_end=8)
        assert leader.high_watermark == 8
        assert leader.log_advanced(12) == 12

    def test_it_never_goes_back(self) -> None:
        leader = elected()
        assert leader.log_advanced(4) == 10

    def test_it_is_never_after_the_end_of_the_log(self) -> None:
        assert elected((1, 2), high_watermark=99).high_watermark == 10

    def test_it_waits_for_every_replica_that_is_in_sync(self) -> None:
        leader = elected((1, 2, 3))
        assert leader.high_watermark == 4
        fetched(leader, 2, 10)
        assert leader.high_watermark == 4
        fetched(leader, 3, 7)
        assert leader.high_watermark == 7
        assert leader.log_advanced(12) == 7

    def test_it_does_not_wait_for_others(self) -> None:
        leader = elected((1, 2))
        fetched(leader, 2, 9)
        assert leader.high_watermark == 9

    def test_it_waits_for_those_that_are_only_proposed(self) -> None:
        leader = elected((1, 2))
        fetched(leader, 2, 10)
        fetched(leader, 3, 10)
        assert proposed(leader) == {1: 100, 2: 200, 3: 300}
        leader.log_advanced(12)
        fetched(leader, 2, 12)
        assert leader.high_watermark == 10
        fetched(leader, 3, 11)
        assert leader.high_watermark == 11

    def test_it_waits_for_those_that_are_to_leave_until_they_have_left(self) -> None:
        leader = elected((1, 2))
        assert proposed(leader, now_ms=LAG_MS + 1) == {1: 100}
        assert leader.high_watermark == 4
        assert leader.state_changed((1,), 8, 1) == 10

    def test_it_stays_while_fewer_are_in_sync_than_needed(self) -> None:
        leader = elected((1,), min_isr=2)
        assert not leader.takes_all
        assert leader.log_advanced(12) == 4
        fetched(leader, 2, 12)
        proposal_of(leader)
        assert leader.high_watermark == 4
        assert leader.state_changed((1, 2), 8, 2) == 12
        assert leader.takes_all

    def test_it_moves_when_fewer_are_needed_from_now_on(self) -> None:
        leader = elected((1,), min_isr=2)
        assert leader.state_changed((1,), 7, 1) == 10

    def test_it_stays_when_more_are_needed_from_now_on(self) -> None:
        leader = elected((1, 2), min_isr=2)
        leader.state_changed((1, 2), 7, 3)
        fetched(leader, 2, 10)
        assert leader.high_watermark == 4

    def test_no_more_are_needed_than_there_are_replicas(self) -> None:
        assert elected((1,), min_isr=3, replicas=(1,)).takes_all

    def test_it_is_settled_once_all_that_former_leaders_may_have_committed_is_committed(self) -> None:
        leader = elected((1, 2))
        assert not leader.is_settled
        fetched(leader, 2, 9)
        assert not leader.is_settled
        fetched(leader, 2, 10)
        assert leader.is_settled

    def test_an_older_state_of_the_partition_changes_nothing(self) -> None:
        leader = elected((1, 2))
        leader.state_changed((1, 2, 3), 9, 1)
        leader.state_changed((1,), 8, 1)
        assert leader.isr == leader.maximal_isr == {1, 2, 3}


class TestDeletions:
    def test_the_low_watermark_is_the_lowest_start_among_those_in_sync(self) -> None:
        leader = elected((1, 2, 3), log_start=6)
        fetched(leader, 2, 10, log_start=5)
        assert leader.low_watermark == -1
        fetched(leader, 3, 10, log_start=7)
        assert leader.low_watermark == 5
        fetched(leader, 2, 10, log_start=8)
        assert leader.low_watermark == 6
        leader.records_deleted(9)
        assert leader.low_watermark == 7
        assert elected((1,), log_start=6).low_watermark == 6

    def test_a_deletion_waits_for_every_replica_that_is_in_sync(self) -> None:
        leader = elected((1, 2), log_start=4)
        assert not leader.has_deleted(4)
        fetched(leader, 2, 10, log_start=3)
        assert leader.has_deleted(3)
        assert not leader.has_deleted(4)
        fetched(leader, 2, 10, log_start=4)
        assert leader.has_deleted(4)
        assert not leader.has_deleted(5)

    def test_it_waits_for_those_that_are_only_proposed(self) -> None:
        leader = elected((1, 2))
        fetched(leader, 2, 10)
        fetched(leader, 3, 10)
        proposal = proposal_of(leader)
        leader.records_deleted(4)
        fetched(leader, 2, 10, log_start=4)
        assert not leader.has_deleted(4)
        leader.answered(proposal, Answered.REFUSED, now_ms=0)
        assert leader.has_deleted(4)

    def test_it_waits_while_fewer_are_in_sync_than_needed_since_one_that_has_left_may_lead(self) -> None:
        leader = elected((1, 2), min_isr=2, log_start=4)
        fetched(leader, 2, 10, log_start=0)
        leader.state_changed((1,), 8, 2)
        assert leader.low_watermark == 4
        assert not leader.has_deleted(4)
        leader.state_changed((1,), 8, 1)
        assert leader.has_deleted(4)

    def test_a_follower_joins_once_its_log_begins_where_the_leaders_does_or_later(self) -> None:
        leader = elected(log_start=4)
        fetched(leader, 2, 10, log_start=3)
        assert proposed(leader) == {}
        fetched(leader, 2, 10, log_start=4)
        leader.records_deleted(5)
        assert proposed(leader) == {}
        fetched(leader, 2, 10, log_start=5)
        fetched(leader, 3, 10, log_start=6)
        assert proposed(leader) == {1: 100, 2: 200, 3: 300}


class TestFollowers:
    def test_a_fetch_of_an_earlier_session_says_nothing(self) -> None:
        leader = elected((1, 2))
        assert fetched(leader, 2, 6, session=4)
        assert not fetched(leader, 2, 9, session=3)
        assert not fetched(leader, 2, 9, broker_epoch=199, session=9)
        assert leader.followers[2].end_offset == 6

    def test_an_earlier_fetch_of_a_session_does_not_move_its_end_back(self) -> None:
        leader = elected((1, 2))
        fetched(leader, 2, 8)
        assert not fetched(leader, 2, 6)
        assert leader.followers[2].end_offset == 8

    def test_a_new_session_may_begin_further_back(self) -> None:
        leader = elected((1, 2))
        fetched(leader, 2, 8)
        assert fetched(leader, 2, 0, broker_epoch=201)
        assert leader.followers[2].end_offset == 0
        assert leader.high_watermark == 8

    def test_a_broker_that_holds_no_replica_is_no_follower(self) -> None:
        assert not fetched(elected(), 4, 10)

    def test_a_follower_joins_with_all_that_is_committed_and_all_before_the_epoch(self) -> None:
        leader = elected((1, 3), high_watermark=4)
        fetched(leader, 2, 9)
        assert proposed(leader) == {}
        fetched(leader, 2, 10)
        assert proposed(leader) == {1: 100, 2: 200, 3: -1}

    def test_a_follower_joins_only_up_to_the_high_watermark(self) -> None:
        leader = elected((1,))
        leader.log_advanced(20)
        fetched(leader, 2, 19)
        assert proposed(leader) == {}
        fetched(leader, 2, 20)
        assert proposed(leader) == {1: 100, 2: 200}

    def test_a_follower_that_has_not_fetched_does_not_join(self) -> None:
        leader = elected((1,), end=0, high_watermark=0)
        assert proposed(leader) == {}

    def test_a_follower_without_everything_for_too_long_leaves(self) -> None:
        leader = elected((1, 2, 3))
        fetched(leader, 3, 10)
        assert proposed(leader, now_ms=LAG_MS) == {}
        assert proposed(leader, now_ms=LAG_MS + 1) == {1: 100, 3: 300}

    def test_a_follower_that_was_at_the_end_of_then_is_caught_up_as_of_then(self) -> None:
        leader = elected((1, 2))
        fetched(leader, 2, 5, now_ms=1000, leader_end=8)
        fetched(leader, 2, 8, now_ms=2000, leader_end=9)
        assert leader.lagging(1000 + LAG_MS, 10) == []
        assert leader.lagging(1001 + LAG_MS, 10) == [2]

    def test_a_follower_that_would_have_to_leave_at_once_does_not_join(self) -> None:
        leader = elected((1,), min_isr=2)
        fetched(leader, 2, 10)
        leader.log_advanced(12)
        assert leader.high_watermark == 4
        assert leader.joining(LAG_MS, leader.end_offset) == [2]
        assert leader.joining(LAG_MS + 1, leader.end_offset) == []

    def test_a_follower_that_was_lost_joins_after_it_has_fetched_again(self) -> None:
        leader = elected((1, 2, 3))
        for broker in (2, 3):
            fetched(leader, broker, 10)
        leader.state_changed((1, 3), 8, 1)
        assert proposed(leader) == {}
        fetched(leader, 2, 10, broker_epoch=201)
        assert proposed(leader) == {1: 100, 2: 201, 3: 300}

    @pytest.mark.parametrize("was_repeated", [False, True])
    def test_a_follower_that_was_refused_rests_before_it_is_proposed_again(self, was_repeated: bool) -> None:
        leader = elected((1,))
        fetched(leader, 2, 10)
        leader.answered(proposal_of(leader), Answered.REFUSED, was_repeated=was_repeated, now_ms=5)
        leader.state_changed((1,), 8, 1)
        assert proposed(leader, now_ms=4 + REST_MS) == {}
        assert proposed(leader, now_ms=5 + REST_MS) == {1: 100, 2: 200}

    def test_a_partition_is_complete_when_all_followers_are_in_sync_and_have_everything(self) -> None:
        leader = elected((1, 2, 3))
        fetched(leader, 2, 10)
        assert not leader.is_complete(10)
        fetched(leader, 3, 10)
        assert leader.is_complete(10)
        leader.state_changed((1, 2), 8, 1)
        assert not leader.is_complete(10)

    def test_a_follower_that_had_everything_until_now_lags_from_now_on(self) -> None:
        leader = elected((1, 2))
        leader.fell_behind(5000)
        assert leader.lagging(5000 + LAG_MS, 11) == []
        assert leader.lagging(5001 + LAG_MS, 11) == [2]


class TestAddedReplicas:
    """Of brokers 4 and 5, which the partition gets beside 1, 2 and 3."""

    REPLICAS = (1, 2, 3, 4, 5)

    def test_they_count_for_the_needed_number_only_once_they_are_in_sync(self) -> None:
        leader = elected((1, 2, 3), min_isr=4)
        leader.state_changed((1, 2, 3), 8, 4, replicas=self.REPLICAS, adding=(4, 5))
        assert (leader.needed, leader.takes_all) == (3, True)
        leader.state_changed((1, 2, 3, 4, 5), 9, 4, replicas=self.REPLICAS)
        assert leader.needed == 4

    def test_a_new_leader_does_not_count_them_either(self) -> None:
        leader = elected((1,), min_isr=None, replicas=(1, 2, 3), adding=(2, 3))
        assert (leader.needed, leader.takes_all) == (1, True)

    def test_nothing_waits_for_them_before_they_are_proposed(self) -> None:
        leader = elected((1,), end=10)
        leader.state_changed((1,), 8, 1, replicas=self.REPLICAS, adding=(4, 5))
        assert leader.log_advanced(12) == 12
        assert fetched(leader, 4, 11)
        assert leader.high_watermark == 12

    def test_they_are_proposed_once_they_have_what_is_committed(self) -> None:
        leader = elected((1, 2, 3), end=10, log_end=10)
        for follower in (2, 3):
            fetched(leader, follower, 10)
        leader.state_changed((1, 2, 3), 8, 1, replicas=self.REPLICAS, adding=(4, 5))
        fetched(leader, 4, 9)
        assert leader.next_proposal(0, 10) is None
        fetched(leader, 4, 10)
        assert proposed(leader).keys() == {1, 2, 3, 4}

    def test_what_was_known_of_the_others_stays_known(self) -> None:
        leader = elected((1, 2, 3), end=10)
        fetched(leader, 2, 7)
        leader.state_changed((1, 2, 3), 8, 1, replicas=self.REPLICAS, adding=(4, 5))
        assert leader.followers[2].end_offset == 7
        assert leader.followers[4].end_offset == -1
        assert not leader.is_complete(10)

    def test_a_state_that_is_not_newer_brings_none(self) -> None:
        leader = elected((1, 2, 3), end=10)
        leader.state_changed((1, 2, 3), 7, 1, replicas=self.REPLICAS)
        assert leader.replicas == (1, 2, 3)


class TestProposals:
    def leader(self) -> PartitionLeader:
        """It is to propose that broker 2 joins."""
        leader = elected((1,))
        fetched(leader, 2, 10)
        return leader

    def test_one_is_under_way_at_a_time(self) -> None:
        leader = self.leader()
        proposal_of(leader)
        fetched(leader, 3, 10)
        assert proposed(leader) == {}

    def test_an_accepted_one_counts_once_the_log_has_it(self) -> None:
        leader = self.leader()
        leader.answered(proposal_of(leader), Answered.ACCEPTED)
        assert leader.isr == {1}
        assert leader.maximal_isr == {1, 2}
        assert proposed(leader) == {}
        leader.state_changed((1, 2), 8, 1)
        assert leader.isr == {1, 2}
        fetched(leader, 3, 10)
        assert proposed(leader) == {1: 100, 2: 200, 3: 300}

    def test_a_refused_one_is_forgotten_and_another_may_be_made(self) -> None:
        leader = self.leader()
        leader.log_advanced(12)
        assert proposed(leader) == {}
        leader.followers[2].end_offset = 12
        proposal = proposal_of(leader)
        leader.log_advanced(15)
        leader.answered(proposal, Answered.REFUSED)
        assert leader.maximal_isr == {1}
        assert leader.high_watermark == 15

    def test_one_of_unknown_outcome_is_made_again_as_it_was(self) -> None:
        leader = self.leader()
        proposal = proposal_of(leader)
        leader.answered(proposal, Answered.UNKNOWN)
        fetched(leader, 3, 10)
        assert leader.maximal_isr == {1, 2}
        assert proposal_of(leader) == proposal

    def test_one_of_unknown_outcome_that_is_refused_is_made_void_before_it_is_forgotten(self) -> None:
        leader = self.leader()
        proposal = proposal_of(leader)
        leader.answered(proposal, Answered.UNKNOWN)
        leader.answered(proposal_of(leader), Answered.REFUSED)
        assert leader.maximal_isr == {1, 2}
        void = proposal_of(leader)
        assert (dict(void.isr), void.partition_epoch) == ({1: 100}, proposal.partition_epoch)
        leader.answered(void, Answered.REFUSED)
        assert leader.maximal_isr == {1, 2}
        leader.answered(proposal_of(leader), Answered.ACCEPTED)
        assert leader.maximal_isr == {1, 2}
        leader.state_changed((1,), 8, 1)
        assert leader.maximal_isr == {1}

    def test_one_that_was_repeated_on_its_way_is_made_void_when_it_is_refused(self) -> None:
        leader = self.leader()
        leader.answered(proposal_of(leader), Answered.REFUSED, was_repeated=True)
        assert leader.maximal_isr == {1, 2}
        assert dict(proposal_of(leader).isr) == {1: 100}

    def test_one_of_unknown_outcome_that_was_accepted_is_found_in_the_log(self) -> None:
        leader = self.leader()
        leader.answered(proposal_of(leader), Answered.UNKNOWN)
        leader.state_changed((1, 2), 8, 1)
        assert leader.isr == leader.maximal_isr == {1, 2}
        assert leader.proposal is None

    @pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    def test_a_controller_that_does_not_know_the_topic_may_be_a_former_one_and_is_asked_again(
        self, code: ErrorCode
    ) -> None:
        leader = elected((1,))
        fetched(leader, 2, 10)
        proposal = proposal_of(leader)
        leader.answered(proposal, Answered.by(code))
        assert leader.maximal_isr == {1, 2}
        assert proposal_of(leader) == proposal

    @pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH])
    def test_of_a_state_that_the_controller_has_and_the_leader_not_the_metadata_log_tells(
        self, code: ErrorCode
    ) -> None:
        leader = elected((1,))
        fetched(leader, 2, 10)
        leader.answered(proposal_of(leader), Answered.by(code))
        assert leader.next_proposal(0, 10) is None
        assert leader.maximal_isr == {1, 2}

    @pytest.mark.parametrize("answer", list(Answered))
    def test_an_answer_to_another_one_says_nothing(self, answer: Answered) -> None:
        leader = self.leader()
        late = proposal_of(leader)
        leader.state_changed((1,), 8, 1)
        fetched(leader, 2, 10)
        proposal = proposal_of(leader)
        leader.answered(late, answer)
        assert leader.proposal == proposal
        assert leader.maximal_isr == {1, 2}

    def test_a_second_answer_says_nothing(self) -> None:
        leader = self.leader()
        proposal = proposal_of(leader)
        leader.answered(proposal, Answered.UNKNOWN)
        leader.answered(proposal, Answered.REFUSED)
        assert leader.maximal_isr == {1, 2}
        assert proposal_of(leader) == proposal

    def test_another_state_of_the_partition_ends_it(self) -> None:
        leader = self.leader()
        proposal_of(leader)
        leader.state_changed((1, 3), 8, 1)
        assert leader.proposal is None
        assert leader.maximal_isr == {1, 3}

    def test_other_settings_do_not_end_it(self) -> None:
        leader = self.leader()
        proposal = proposal_of(leader)
        leader.state_changed((1,), 7, 2)
        assert leader.proposal == proposal
        assert leader.maximal_isr == {1, 2}
