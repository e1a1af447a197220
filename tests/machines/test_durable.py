"""What a durable machine owes to whom, without a log and without a clock."""

import random
from typing import Any

import pytest

from penstock.machines.durable import MAX_UNCOMMITTED, STALL_MS, Answer, Durable
from penstock.protocol.error_codes import ErrorCode
from tests.machines.counter import TIMEOUT_MS, Add, Added, Ask, At, By, Counter, Fail, Ping, WaitFor

NOW = At(5_000)


def after(milliseconds: int) -> At:
    return At(NOW.ms + milliseconds)


@pytest.fixture(name="durable")
def new_durable() -> Durable[Counter]:
    return Durable(Counter())


def told(answers: list[Answer]) -> dict[Any, int]:
    """Sums by token, of answers that are no refusals."""
    assert not any(answer.response.error_code for answer in answers)  # type: ignore[attr-defined]
    return {answer.token: answer.response.throttle_time_ms for answer in answers}  # type: ignore[attr-defined]


def refused(answers: list[Answer]) -> dict[Any, ErrorCode]:
    return {answer.token: ErrorCode(answer.response.error_code) for answer in answers}  # type: ignore[attr-defined]


def test_a_reply_waits_until_what_it_says_is_committed(durable: Durable[Counter]) -> None:
    assert durable.submit(Add(3), By("a"), NOW) == []
    assert durable.take_records() == [Added(3)]
    assert told(durable.committed(NOW)) == {"a": 3}
    assert durable.uncommitted == 0


def test_the_decisions_of_a_turn_share_a_batch_and_are_answered_together(durable: Durable[Counter]) -> None:
    for number, token in enumerate("abc", 1):
        durable.submit(Add(number), By(token), NOW)
    assert durable.take_records() == [Added(1), Added(2), Added(3)]
    assert not durable.has_records
    assert told(durable.committed(NOW)) == {"a": 1, "b": 3, "c": 6}


def test_batches_are_committed_in_their_order(durable: Durable[Counter]) -> None:
    durable.submit(Add(1), By("a"), NOW)
    durable.take_records()
    durable.submit(Add(2), By("b"), NOW)
    assert durable.take_records() == [Added(2)]
    assert told(durable.committed(NOW)) == {"a": 1}
    assert told(durable.committed(NOW)) == {"b": 3}


def test_who_asks_learns_nothing_that_is_not_committed(durable: Durable[Counter]) -> None:
    durable.submit(Add(3), By("a"), NOW)
    durable.take_records()
    assert durable.submit(Ask(), By("b"), NOW) == []
    assert not durable.has_records
    assert told(durable.committed(NOW)) == {"a": 3, "b": 3}


def test_with_everything_committed_an_answer_leaves_at_once(durable: Durable[Counter]) -> None:
    assert told(durable.submit(Ask(), By("b"), NOW)) == {"b": 0}


def test_a_reply_that_says_nothing_new_leaves_at_once_in_any_case(durable: Durable[Counter]) -> None:
    durable.submit(Add(3), By("a"), NOW)
    assert told(durable.submit(Ping(), By("b"), NOW)) == {"b": 0}


def test_who_waits_for_others_is_answered_with_their_commit(durable: Durable[Counter]) -> None:
    assert durable.submit(WaitFor(3), By("w"), NOW) == []
    assert durable.is_parked("w")
    assert durable.submit(Add(5), By("a"), NOW) == []
    assert not durable.is_parked("w")
    durable.take_records()
    assert told(durable.committed(NOW)) == {"a": 5, "w": 5}


def test_a_log_that_takes_nothing_refuses_what_needs_it_and_nothing_has_happened(durable: Durable[Counter]) -> None:
    answers = durable.submit(Add(3), By("a"), NOW, may_append=False)
    assert refused(answers) == {"a": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert durable.machine.sum == 0
    assert not durable.has_records
    assert told(durable.submit(Ping(), By("b"), NOW, may_append=False)) == {"b": 0}
    assert told(durable.submit(Ask(), By("c"), NOW, may_append=False)) == {"c": 0}


def test_beyond_the_backlog_everything_that_would_wait_for_the_log_is_refused(durable: Durable[Counter]) -> None:
    for number in range(MAX_UNCOMMITTED):
        assert durable.submit(Add(1), By(number), NOW) == []
    durable.take_records()
    assert refused(durable.submit(Add(1), By("a"), NOW)) == {"a": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert refused(durable.submit(Ask(), By("b"), NOW)) == {"b": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert told(durable.submit(Ping(), By("c"), NOW)) == {"c": 0}
    assert durable.take(Counter().decide(Add(1), By("nobody"), NOW), NOW) is None
    assert durable.machine.sum == MAX_UNCOMMITTED
    assert len(durable.committed(NOW)) == MAX_UNCOMMITTED
    assert durable.submit(Add(1), By("a"), NOW) == []


def test_questions_count_to_the_backlog_too(durable: Durable[Counter]) -> None:
    durable.submit(Add(1), By("a"), NOW)
    for number in range(MAX_UNCOMMITTED - 1):
        assert durable.submit(Ask(), By(number), NOW) == []
    assert durable.uncommitted == MAX_UNCOMMITTED
    assert refused(durable.submit(Ask(), By("b"), NOW)) == {"b": ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_time_is_up_when_it_is(durable: Durable[Counter]) -> None:
    durable.submit(WaitFor(50), By("w"), NOW)
    assert durable.next_deadline() == NOW.ms + TIMEOUT_MS
    assert durable.tick(after(TIMEOUT_MS - 1)) == []
    assert not durable.has_records
    assert durable.tick(after(TIMEOUT_MS)) == []
    assert durable.take_records() == [Added(100)]
    assert told(durable.committed(after(TIMEOUT_MS))) == {"w": 100}


def test_while_the_log_is_stalled_nobodys_time_is_up_and_deadlines_move_by_the_stall(
    durable: Durable[Counter],
) -> None:
    durable.submit(Add(1), By("a"), NOW)
    durable.take_records()
    durable.submit(WaitFor(50), By("w"), NOW)
    assert not durable.is_stalled(after(STALL_MS))
    assert durable.is_stalled(after(STALL_MS + 1))
    assert durable.tick(after(60_000)) == []
    assert not durable.has_records
    durable.committed(after(60_000))
    assert durable.next_deadline() == NOW.ms + TIMEOUT_MS + 60_000
    assert durable.tick(after(60_000)) == []
    assert not durable.has_records
    durable.tick(after(60_000 + TIMEOUT_MS))
    assert durable.has_records


def test_a_commit_within_a_second_is_no_stall(durable: Durable[Counter]) -> None:
    durable.submit(Add(1), By("a"), NOW)
    durable.take_records()
    durable.submit(WaitFor(50), By("w"), NOW)
    durable.committed(after(STALL_MS))
    assert durable.next_deadline() == NOW.ms + TIMEOUT_MS


def test_stalls_that_overlap_count_once(durable: Durable[Counter]) -> None:
    durable.submit(WaitFor(50), By("w"), NOW)
    durable.submit(Add(1), By("a"), NOW)
    durable.take_records()
    durable.submit(Add(1), By("b"), after(2_000))
    durable.take_records()
    durable.committed(after(5_000))
    durable.committed(after(7_000))
    assert durable.next_deadline() == NOW.ms + TIMEOUT_MS + 7_000


def test_a_long_stall_counts_as_a_whole_though_shorter_ones_in_it_were_counted(durable: Durable[Counter]) -> None:
    durable.submit(WaitFor(50), By("w"), NOW)
    durable.submit(Add(1), By("a"), NOW)
    durable.take_records()
    for second in (10, 20, 30):
        durable.tick(after(second * 1_000), may_append=False)
        durable.tick(after(second * 1_000 + 500))
    assert durable.next_deadline() == NOW.ms + TIMEOUT_MS + 1_500
    durable.committed(after(60_000))
    assert durable.next_deadline() == NOW.ms + TIMEOUT_MS + 60_000


def test_a_log_that_takes_nothing_for_a_time_costs_nobody_that_time(durable: Durable[Counter]) -> None:
    durable.submit(WaitFor(50), By("w"), NOW)
    assert durable.submit(Ping(), By("p"), after(9_000), may_append=False)
    assert durable.tick(after(TIMEOUT_MS), may_append=False) == []
    assert durable.tick(after(TIMEOUT_MS + 500), may_append=False) == []
    assert not durable.has_records
    durable.tick(after(TIMEOUT_MS + 3_000))
    assert not durable.has_records
    assert durable.next_deadline() == NOW.ms + TIMEOUT_MS + 4_000
    durable.tick(after(TIMEOUT_MS + 4_000))
    assert durable.has_records


def test_a_caller_who_is_gone_is_forgotten(durable: Durable[Counter]) -> None:
    durable.submit(WaitFor(3), By("w"), NOW)
    durable.forget("w")
    assert durable.parked == 0
    assert durable.machine.waiting == {}
    durable.submit(Add(5), By("a"), NOW)
    durable.take_records()
    assert told(durable.committed(NOW)) == {"a": 5}


def test_when_the_log_is_lost_everybody_is_refused_once(durable: Durable[Counter]) -> None:
    durable.submit(WaitFor(100), By("w"), NOW)
    durable.submit(Add(1), By("a"), NOW)
    durable.take_records()
    durable.submit(Add(1), By("b"), NOW)
    answers = durable.lost(ErrorCode.NOT_COORDINATOR)
    assert sorted(answer.token for answer in answers) == ["a", "b", "w"]  # type: ignore[type-var]
    assert set(refused(answers).values()) == {ErrorCode.NOT_COORDINATOR}
    assert durable.lost(ErrorCode.NOT_COORDINATOR) == []


def test_at_the_end_nobody_waits_for_others_and_commits_are_still_answered(durable: Durable[Counter]) -> None:
    durable.submit(WaitFor(100), By("w"), NOW)
    durable.submit(Add(1), By("a"), NOW)
    durable.take_records()
    assert refused(durable.end_waits(ErrorCode.NOT_COORDINATOR)) == {"w": ErrorCode.NOT_COORDINATOR}
    assert told(durable.committed(NOW)) == {"a": 1}


def test_a_machine_that_raises_lets_it_be_known(durable: Durable[Counter]) -> None:
    for broken in (Fail(), Fail(later=True)):
        with pytest.raises(RuntimeError, match="on purpose"):
            durable.submit(broken, By("a"), NOW)


@pytest.mark.parametrize("seed", range(200))
def test_every_caller_gets_one_answer_and_none_that_is_not_committed(seed: int) -> None:
    """Whatever happens in whatever order. The seed is the test's parameter."""
    chance = random.Random(seed)
    durable, now = Durable(Counter()), 0
    answers: list[Answer] = []
    asked: set[int] = set()
    committed, taken = 0, 0
    batches: list[int] = []
    for token in range(300):
        now += chance.choice((0, 1, 400, 3_000))
        match chance.randrange(8):
            case 0 | 1 | 2:
                request: Any = chance.choice((Add(1), Ask(), WaitFor(chance.randrange(400))))
                asked.add(token)
                new = durable.submit(request, By(token), At(now), may_append=chance.random() < 0.9)
            case 3 | 4 if durable.has_records:
                taken += sum(record.number for record in durable.take_records())
                batches.append(taken)
                new = []
            case 5 | 6 if batches:
                committed = batches.pop(0)
                new = durable.committed(At(now))
            case _:
                new = durable.tick(At(now), may_append=chance.random() < 0.9)
        for answer in new:
            if not answer.response.error_code:  # type: ignore[attr-defined]
                assert answer.response.throttle_time_ms <= committed  # type: ignore[attr-defined]
        answers += new
    answers += durable.lost(ErrorCode.NOT_COORDINATOR)
    tokens = [answer.token for answer in answers]
    assert len(tokens) == len(set(tokens))
    assert set(tokens) == asked
