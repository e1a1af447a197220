"""What a durable machine owes to whom, without a log and without a clock."""

import random
from typing import Any

import pytest

from penstock.machines.decision_queue import (
    BATCH_OVERHEAD,
    MAX_UNCOMMITTED,
    MAX_UNCOMMITTED_BYTES,
    RECORD_OVERHEAD,
    STALL_MS,
    Answer,
    DecisionQueue,
    Undecided,
)
from penstock.protocol.error_codes import ErrorCode
from tests.machines.counter import (
    TIMEOUT_MS,
    Add,
    AddEach,
    Added,
    Ask,
    At,
    By,
    Counter,
    Fail,
    Ping,
    WaitFor,
    decode,
    encode,
)

NOW = At(5_000)
# A batch has room for ten records of one digit.
MAX_BATCH_BYTES = BATCH_OVERHEAD + 10 * (RECORD_OVERHEAD + len(b"added1"))


def new_queue(max_batch_bytes: int = 1 << 20) -> DecisionQueue[Counter]:
    return DecisionQueue(Counter(), encode, max_batch_bytes=max_batch_bytes)


def taken(queue: DecisionQueue[Counter]) -> list[Added | None]:
    """The records of the next batch, as whoever reads the log sees them."""
    return [decode(key, value) for key, value in queue.take_records()]


def after(milliseconds: int) -> At:
    return At(NOW.ms + milliseconds)


@pytest.fixture(name="queue")
def new_durable_fixture() -> DecisionQueue[Counter]:
    return new_queue()


def told(answers: list[Answer]) -> dict[Any, int]:
    """Sums by token, of answers that are no refusals."""
    assert not any(answer.response.error_code for answer in answers)  # type: ignore[attr-defined]
    return {answer.token: answer.response.throttle_time_ms for answer in answers}  # type: ignore[attr-defined]


def refused(answers: list[Answer]) -> dict[Any, ErrorCode]:
    return {answer.token: ErrorCode(answer.response.error_code) for answer in answers}  # type: ignore[attr-defined]


def test_a_reply_waits_until_what_it_says_is_committed(queue: DecisionQueue[Counter]) -> None:
    assert queue.submit(Add(3), By("a"), NOW) == []
    assert taken(queue) == [Added(3)]
    assert told(queue.committed(NOW)) == {"a": 3}
    assert queue.uncommitted == 0


def test_the_decisions_of_a_turn_share_a_batch_and_are_answered_together(queue: DecisionQueue[Counter]) -> None:
    for number, token in enumerate("abc", 1):
        queue.submit(Add(number), By(token), NOW)
    assert taken(queue) == [Added(1), Added(2), Added(3)]
    assert not queue.has_records
    assert told(queue.committed(NOW)) == {"a": 1, "b": 3, "c": 6}


def test_batches_are_committed_in_their_order(queue: DecisionQueue[Counter]) -> None:
    queue.submit(Add(1), By("a"), NOW)
    queue.take_records()
    queue.submit(Add(2), By("b"), NOW)
    assert taken(queue) == [Added(2)]
    assert told(queue.committed(NOW)) == {"a": 1}
    assert told(queue.committed(NOW)) == {"b": 3}


def test_who_asks_learns_nothing_that_is_not_committed(queue: DecisionQueue[Counter]) -> None:
    queue.submit(Add(3), By("a"), NOW)
    queue.take_records()
    assert queue.submit(Ask(), By("b"), NOW) == []
    assert not queue.has_records
    assert told(queue.committed(NOW)) == {"a": 3, "b": 3}


def test_with_everything_committed_an_answer_leaves_at_once(queue: DecisionQueue[Counter]) -> None:
    assert told(queue.submit(Ask(), By("b"), NOW)) == {"b": 0}


def test_a_reply_that_says_nothing_new_leaves_at_once_in_any_case(queue: DecisionQueue[Counter]) -> None:
    queue.submit(Add(3), By("a"), NOW)
    assert told(queue.submit(Ping(), By("b"), NOW)) == {"b": 0}


def test_who_waits_for_others_is_answered_with_their_commit(queue: DecisionQueue[Counter]) -> None:
    assert queue.submit(WaitFor(3), By("w"), NOW) == []
    assert queue.is_parked("w")
    assert queue.submit(Add(5), By("a"), NOW) == []
    assert not queue.is_parked("w")
    queue.take_records()
    assert told(queue.committed(NOW)) == {"a": 5, "w": 5}


def test_an_impatient_caller_is_refused_after_a_time_and_what_was_decided_stands() -> None:
    queue = DecisionQueue(Counter(), encode, max_batch_bytes=1 << 20, impatient={Add}, patience_ms=700)
    queue.submit(Add(1), By("a"), NOW)
    queue.submit(Ask(), By("b"), NOW)
    queue.take_records()
    queue.submit(Add(2), By("c"), after(500))
    queue.take_records()
    assert queue.next_deadline() == after(700).ms
    assert queue.tick(after(699)) == []
    # Also while the log takes nothing.
    assert refused(queue.tick(after(700), may_append=False)) == {"a": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert queue.next_deadline() == after(1200).ms
    assert told(queue.committed(after(800))) == {"b": 1}
    assert told(queue.committed(after(900))) == {"c": 3}
    assert queue.next_deadline() is None
    assert queue.uncommitted == 0


def test_an_impatient_caller_that_was_refused_hears_no_more_when_the_log_is_lost() -> None:
    queue = DecisionQueue(Counter(), encode, max_batch_bytes=1 << 20, impatient={Add}, patience_ms=700)
    queue.submit(Add(1), By("a"), NOW)
    queue.submit(Add(2), By("b"), after(1))
    queue.take_records()
    assert refused(queue.tick(after(700))) == {"a": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert refused(queue.lost(ErrorCode.NOT_COORDINATOR)) == {"b": ErrorCode.NOT_COORDINATOR}
    assert queue.tick(after(800)) == []


def test_a_log_that_takes_nothing_refuses_what_needs_it_and_nothing_has_happened(queue: DecisionQueue[Counter]) -> None:
    answers = queue.submit(Add(3), By("a"), NOW, may_append=False)
    assert refused(answers) == {"a": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert queue.machine.sum == 0
    assert not queue.has_records
    assert told(queue.submit(Ping(), By("b"), NOW, may_append=False)) == {"b": 0}
    assert told(queue.submit(Ask(), By("c"), NOW, may_append=False)) == {"c": 0}


def test_beyond_the_backlog_everything_that_would_wait_for_the_log_is_refused(queue: DecisionQueue[Counter]) -> None:
    for number in range(MAX_UNCOMMITTED):
        assert queue.submit(Add(1), By(number), NOW) == []
    queue.take_records()
    assert refused(queue.submit(Add(1), By("a"), NOW)) == {"a": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert refused(queue.submit(Ask(), By("b"), NOW)) == {"b": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert told(queue.submit(Ping(), By("c"), NOW)) == {"c": 0}
    assert queue.take(Counter().decide(Add(1), By("nobody"), NOW), NOW) is None
    assert queue.machine.sum == MAX_UNCOMMITTED
    assert len(queue.committed(NOW)) == MAX_UNCOMMITTED
    assert queue.submit(Add(1), By("a"), NOW) == []


def test_questions_count_to_the_backlog_too(queue: DecisionQueue[Counter]) -> None:
    queue.submit(Add(1), By("a"), NOW)
    for number in range(MAX_UNCOMMITTED - 1):
        assert queue.submit(Ask(), By(number), NOW) == []
    assert queue.uncommitted == MAX_UNCOMMITTED
    assert refused(queue.submit(Ask(), By("b"), NOW)) == {"b": ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_time_is_up_when_it_is(queue: DecisionQueue[Counter]) -> None:
    queue.submit(WaitFor(50), By("w"), NOW)
    assert queue.next_deadline() == NOW.ms + TIMEOUT_MS
    assert queue.tick(after(TIMEOUT_MS - 1)) == []
    assert not queue.has_records
    assert queue.tick(after(TIMEOUT_MS)) == []
    assert taken(queue) == [Added(100)]
    assert told(queue.committed(after(TIMEOUT_MS))) == {"w": 100}


def test_while_the_log_is_stalled_nobodys_time_is_up_and_deadlines_move_by_the_stall(
    queue: DecisionQueue[Counter],
) -> None:
    queue.submit(Add(1), By("a"), NOW)
    queue.take_records()
    queue.submit(WaitFor(50), By("w"), NOW)
    assert not queue.is_stalled(after(STALL_MS))
    assert queue.is_stalled(after(STALL_MS + 1))
    assert queue.tick(after(60_000)) == []
    assert not queue.has_records
    queue.committed(after(60_000))
    assert queue.next_deadline() == NOW.ms + TIMEOUT_MS + 60_000
    assert queue.tick(after(60_000)) == []
    assert not queue.has_records
    queue.tick(after(60_000 + TIMEOUT_MS))
    assert queue.has_records


def test_a_commit_within_a_second_is_no_stall(queue: DecisionQueue[Counter]) -> None:
    queue.submit(Add(1), By("a"), NOW)
    queue.take_records()
    queue.submit(WaitFor(50), By("w"), NOW)
    queue.committed(after(STALL_MS))
    assert queue.next_deadline() == NOW.ms + TIMEOUT_MS


def test_stalls_that_overlap_count_once(queue: DecisionQueue[Counter]) -> None:
    queue.submit(WaitFor(50), By("w"), NOW)
    queue.submit(Add(1), By("a"), NOW)
    queue.take_records()
    queue.submit(Add(1), By("b"), after(2_000))
    queue.take_records()
    queue.committed(after(5_000))
    queue.committed(after(7_000))
    assert queue.next_deadline() == NOW.ms + TIMEOUT_MS + 7_000


def test_a_long_stall_counts_as_a_whole_though_shorter_ones_in_it_were_counted(queue: DecisionQueue[Counter]) -> None:
    queue.submit(WaitFor(50), By("w"), NOW)
    queue.submit(Add(1), By("a"), NOW)
    queue.take_records()
    for second in (10, 20, 30):
        queue.tick(after(second * 1_000), may_append=False)
        queue.tick(after(second * 1_000 + 500))
    assert queue.next_deadline() == NOW.ms + TIMEOUT_MS + 1_500
    queue.committed(after(60_000))
    assert queue.next_deadline() == NOW.ms + TIMEOUT_MS + 60_000


def test_a_log_that_takes_nothing_for_a_time_costs_nobody_that_time(queue: DecisionQueue[Counter]) -> None:
    queue.submit(WaitFor(50), By("w"), NOW)
    assert queue.submit(Ping(), By("p"), after(9_000), may_append=False)
    assert queue.tick(after(TIMEOUT_MS), may_append=False) == []
    assert queue.tick(after(TIMEOUT_MS + 500), may_append=False) == []
    assert not queue.has_records
    queue.tick(after(TIMEOUT_MS + 3_000))
    assert not queue.has_records
    assert queue.next_deadline() == NOW.ms + TIMEOUT_MS + 4_000
    queue.tick(after(TIMEOUT_MS + 4_000))
    assert queue.has_records


def test_a_caller_who_is_gone_is_forgotten(queue: DecisionQueue[Counter]) -> None:
    queue.submit(WaitFor(3), By("w"), NOW)
    queue.forget("w")
    assert queue.parked == 0
    assert queue.machine.waiting == {}
    queue.submit(Add(5), By("a"), NOW)
    queue.take_records()
    assert told(queue.committed(NOW)) == {"a": 5}


def test_when_the_log_is_lost_everybody_is_refused_once(queue: DecisionQueue[Counter]) -> None:
    queue.submit(WaitFor(100), By("w"), NOW)
    queue.submit(Add(1), By("a"), NOW)
    queue.take_records()
    queue.submit(Add(1), By("b"), NOW)
    answers = queue.lost(ErrorCode.NOT_COORDINATOR)
    assert sorted(answer.token for answer in answers) == ["a", "b", "w"]  # type: ignore[type-var]
    assert set(refused(answers).values()) == {ErrorCode.NOT_COORDINATOR}
    assert queue.lost(ErrorCode.NOT_COORDINATOR) == []


def test_at_the_end_nobody_waits_for_others_and_commits_are_still_answered(queue: DecisionQueue[Counter]) -> None:
    queue.submit(WaitFor(100), By("w"), NOW)
    queue.submit(Add(1), By("a"), NOW)
    queue.take_records()
    assert refused(queue.end_waits(ErrorCode.NOT_COORDINATOR)) == {"w": ErrorCode.NOT_COORDINATOR}
    assert told(queue.committed(NOW)) == {"a": 1}


def test_a_machine_that_raises_lets_it_be_known(queue: DecisionQueue[Counter]) -> None:
    with pytest.raises(RuntimeError, match="on purpose"):
        queue.submit(Fail(later=True), By("a"), NOW)


@pytest.mark.parametrize("broken", [Fail(), Add(-1), AddEach((1, -1))], ids=["decide", "encode", "encode the second"])
def test_what_cannot_be_decided_or_written_has_not_happened(queue: DecisionQueue[Counter], broken: object) -> None:
    queue.submit(WaitFor(3), By("w"), NOW)
    with pytest.raises(Undecided):
        queue.submit(broken, By("a"), NOW)
    assert queue.machine.sum == 0
    assert not queue.has_records
    assert not queue.is_parked("a")
    queue.submit(Add(5), By("b"), NOW)
    assert taken(queue) == [Added(5)]
    assert told(queue.committed(NOW)) == {"b": 5, "w": 5}


def test_a_decision_that_fits_no_batch_is_refused_and_has_not_happened() -> None:
    queue = new_queue(MAX_BATCH_BYTES)
    assert refused(queue.submit(AddEach((1,) * 11), By("a"), NOW)) == {"a": ErrorCode.MESSAGE_TOO_LARGE}
    assert refused(queue.submit(Add(10**400), By("a"), NOW)) == {"a": ErrorCode.MESSAGE_TOO_LARGE}
    assert queue.machine.sum == 0
    assert not queue.has_records
    assert queue.submit(AddEach((1,) * 10), By("a"), NOW) == []
    assert taken(queue) == [Added(1)] * 10
    assert told(queue.committed(NOW)) == {"a": 10}


def test_the_decisions_of_a_turn_that_do_not_fit_one_batch_need_several_and_none_is_torn() -> None:
    queue = new_queue(MAX_BATCH_BYTES)
    for token in "abc":
        assert queue.submit(AddEach((1,) * 4), By(token), NOW) == []
    assert queue.submit(Ask(), By("d"), NOW) == []
    assert taken(queue) == [Added(1)] * 8
    assert taken(queue) == [Added(1)] * 4
    assert not queue.has_records
    assert told(queue.committed(NOW)) == {"a": 4, "b": 8}
    assert told(queue.committed(NOW)) == {"c": 12, "d": 12}
    assert queue.uncommitted == 0


def test_what_may_be_split_is_and_its_caller_is_answered_when_all_of_it_is_committed() -> None:
    queue = new_queue(MAX_BATCH_BYTES)
    assert queue.submit(AddEach((1,) * 25, split=True), By("a"), NOW) == []
    assert [len(taken(queue)) for _ in range(3)] == [10, 10, 5]
    assert queue.committed(NOW) == queue.committed(NOW) == []
    assert told(queue.committed(NOW)) == {"a": 25}


def test_what_no_caller_asked_for_is_split_and_never_refused() -> None:
    queue = new_queue(MAX_BATCH_BYTES)
    decision = Counter().decide(AddEach((1, 10**400, 1)), By("no caller"), NOW)
    assert queue.take(decision, NOW) == []
    assert [len(taken(queue)) for _ in range(3)] == [1, 1, 1]


def test_a_backlog_is_full_by_bytes_too() -> None:
    queue = new_queue()
    # Python writes no more digits than this at once.
    large = AddEach((10**4_000,) * 250)
    count = 0
    while not queue.submit(large, By(count), NOW):
        count += 1
    assert count <= MAX_UNCOMMITTED_BYTES // 1_000_000 + 1 < MAX_UNCOMMITTED
    assert refused(queue.submit(Add(1), By("a"), NOW)) == {"a": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert told(queue.submit(Ping(), By("b"), NOW)) == {"b": 0}
    while queue.has_records:
        queue.take_records()
        queue.committed(NOW)
    assert queue.submit(Add(1), By("a"), NOW) == []


@pytest.mark.parametrize("seed", range(200))
def test_every_caller_gets_one_answer_and_none_that_is_not_committed(seed: int) -> None:
    """Whatever happens in whatever order. The seed is the test's parameter."""
    chance = random.Random(seed)
    queue, now = new_queue(), 0
    answers: list[Answer] = []
    asked: set[int] = set()
    committed, read = 0, 0
    batches: list[int] = []
    for token in range(300):
        now += chance.choice((0, 1, 400, 3_000))
        match chance.randrange(8):
            case 0 | 1 | 2:
                request: Any = chance.choice((Add(1), Ask(), WaitFor(chance.randrange(400))))
                asked.add(token)
                new = queue.submit(request, By(token), At(now), may_append=chance.random() < 0.9)
            case 3 | 4 if queue.has_records:
                read += sum(int(value or b"") for _, value in queue.take_records())
                batches.append(read)
                new = []
            case 5 | 6 if batches:
                committed = batches.pop(0)
                new = queue.committed(At(now))
            case _:
                new = queue.tick(At(now), may_append=chance.random() < 0.9)
        for answer in new:
            if not answer.response.error_code:  # type: ignore[attr-defined]
                assert answer.response.throttle_time_ms <= committed  # type: ignore[attr-defined]
        answers += new
    answers += queue.lost(ErrorCode.NOT_COORDINATOR)
    tokens = [answer.token for answer in answers]
    assert len(tokens) == len(set(tokens))
    assert set(tokens) == asked
