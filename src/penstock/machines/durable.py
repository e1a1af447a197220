"""A durable machine between its callers and its log: what is decided and not committed yet, and who waits for that.

It owns no log and no clock: whoever runs it appends the records it hands out, and tells it when they are committed.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message

# Beyond so many decisions that the log has not committed, the next one is refused.
MAX_UNCOMMITTED: Final = 1000
# A log that commits nothing for so long is stalled: nobody is to blame for what did not come through meanwhile.
STALL_MS: Final = 1000


class Instant(Protocol):
    """A moment by the monotonic clock and by the calendar."""

    @property
    def ms(self) -> int: ...
    @property
    def wall_ms(self) -> int: ...


class Caller(Protocol):
    @property
    def token(self) -> Hashable: ...


class Reply(Protocol):
    @property
    def token(self) -> Hashable: ...
    @property
    def response(self) -> Message: ...
    @property
    def after_commit(self) -> bool: ...


class Decision(Protocol):
    @property
    def changes(self) -> Sequence[Any]: ...
    @property
    def records(self) -> Sequence[Any]: ...
    @property
    def replies(self) -> Sequence[Reply]: ...


class Machine(Protocol):
    """`decide` changes nothing, `apply` is the only mutation, and the state is a fold over the records of the log."""

    def decide(self, request: Any, caller: Any, now: Any, *, new_member_id: str = "") -> Decision: ...
    def refuse(self, request: Any, code: ErrorCode) -> Message: ...
    def apply(self, change: Any, now: Any = None) -> None: ...
    def loaded(self, now: Any) -> Decision: ...
    def tick(self, now: Any) -> Sequence[Decision]: ...
    def next_deadline(self) -> int | None: ...
    def shift_deadlines(self, by_ms: int) -> None: ...
    def forget_waiter(self, token: Hashable) -> None: ...


M = TypeVar("M", bound=Machine)


class Answer(NamedTuple):
    """To be sent now."""

    token: Hashable
    response: Message


@dataclass(slots=True)
class _Batch:
    """Decisions that share one append, and the answers that leave when it is committed."""

    since_ms: int
    records: list[Any] = field(default_factory=list)
    decisions: int = 0
    # Of each answer the request too: it says how to refuse it, should the log be lost.
    answers: list[tuple[Answer, Any]] = field(default_factory=list)


class Durable(Generic[M]):
    """Every method returns the answers that may leave now. Nothing is said before it is true for good."""

    def __init__(self, machine: M) -> None:
        self.machine = machine
        # In the order of the log; the last one grows until its records are taken.
        self._batches: deque[_Batch] = deque()
        self._is_growing = False
        self._uncommitted = 0
        # Callers that the machine has taken in and not answered, and what they asked.
        self._parked: dict[Hashable, Any] = {}
        # Stretches of time by which deadlines were moved already, apart from each other.
        self._moved: list[tuple[int, int]] = []
        self._is_blocked = False
        self._blocked_since = 0

    # What happens

    def submit(
        self, request: Any, caller: Caller, now: Instant, *, may_append: bool = True, new_member_id: str = ""
    ) -> list[Answer]:
        """A request. If the log cannot take what it leads to, nothing has happened and the caller may try again."""
        if may_append == self._is_blocked:
            self._log_changed(now)
        decision = self.machine.decide(request, caller, now, new_member_id=new_member_id)
        records = decision.records
        if not self._can_take(decision, records, may_append):
            return [Answer(caller.token, self.machine.refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE))]
        self._parked[caller.token] = request
        return self._carry_out(decision, records, now)

    def take(self, decision: Decision, now: Instant, *, may_append: bool = True) -> list[Answer] | None:
        """A decision that no caller asked for; None if it has to come again later."""
        records = decision.records
        return self._carry_out(decision, records, now) if self._can_take(decision, records, may_append) else None

    def tick(self, now: Instant, *, may_append: bool = True) -> list[Answer]:
        """Time has passed. While the log is stalled or takes nothing, nobody's time is up."""
        if may_append == self._is_blocked:
            self._log_changed(now)
        if self._is_blocked or self.is_stalled(now):
            return []
        answers: list[Answer] = []
        for decision in self.machine.tick(now):
            taken = self.take(decision, now)
            if taken is None:
                break
            answers += taken
        return answers

    def committed(self, now: Instant) -> list[Answer]:
        """The oldest records that were taken and not committed now are."""
        batch = self._batches.popleft()
        self._uncommitted -= batch.decisions
        if now.ms - batch.since_ms > STALL_MS:
            self._move_deadlines(batch.since_ms, now.ms)
        return [answer for answer, _ in batch.answers]

    def forget(self, token: Hashable) -> None:
        """The caller is gone."""
        if self._parked.pop(token, None) is not None:
            self.machine.forget_waiter(token)

    def end_waits(self, code: ErrorCode) -> list[Answer]:
        """Whoever waits for others waits in vain: there will be no more requests. Commits are still waited for."""
        parked, self._parked = self._parked, {}
        for token in parked:
            self.machine.forget_waiter(token)
        return [Answer(token, self.machine.refuse(request, code)) for token, request in parked.items()]

    def lost(self, code: ErrorCode) -> list[Answer]:
        """What was decided may never be committed, so the machine is of no use any more: refuse everybody."""
        waiting = [(answer.token, request) for batch in self._batches for answer, request in batch.answers]
        self._batches.clear()
        self._is_growing = False
        self._uncommitted = 0
        answers = [
            Answer(token, self.machine.refuse(request, code)) for token, request in waiting if request is not None
        ]
        return answers + self.end_waits(code)

    # What is to be done

    @property
    def has_records(self) -> bool:
        """Whether there is anything to append."""
        return self._is_growing

    def take_records(self) -> list[Any]:
        """What was decided since the last time, to be appended at once and as a whole."""
        assert self._is_growing, "nothing was decided"
        self._is_growing = False
        batch = self._batches[-1]
        records, batch.records = batch.records, []
        return records

    def next_deadline(self) -> int | None:
        return self.machine.next_deadline()

    def is_stalled(self, now: Instant) -> bool:
        return bool(self._batches) and now.ms - self._batches[0].since_ms > STALL_MS

    @property
    def uncommitted(self) -> int:
        """Decisions that the log has not committed."""
        return self._uncommitted

    @property
    def parked(self) -> int:
        """Callers that wait for something other than the log."""
        return len(self._parked)

    def is_parked(self, token: Hashable) -> bool:
        return token in self._parked

    def _can_take(self, decision: Decision, records: Sequence[Any], may_append: bool) -> bool:
        if records:
            return may_append and self._uncommitted < MAX_UNCOMMITTED
        if self._uncommitted < MAX_UNCOMMITTED:
            return True
        return not any(reply.after_commit for reply in decision.replies)

    def _carry_out(self, decision: Decision, records: Sequence[Any], now: Instant) -> list[Answer]:
        for change in decision.changes:
            self.machine.apply(change, now)
        if records:
            if not self._is_growing:
                self._batches.append(_Batch(now.ms))
                self._is_growing = True
            self._batches[-1].records += records
        behind = self._batches[-1] if self._batches else None
        answers: list[Answer] = []
        has_to_wait = bool(records)
        for reply in decision.replies:
            answer = Answer(reply.token, reply.response)
            request = self._parked.pop(reply.token, None)
            if reply.after_commit and behind is not None:
                behind.answers.append((answer, request))
                has_to_wait = True
            else:
                answers.append(answer)
        if has_to_wait and behind is not None:
            behind.decisions += 1
            self._uncommitted += 1
        return answers

    def _log_changed(self, now: Instant) -> None:
        """It takes nothing from now on, or does so again."""
        if self._is_blocked:
            self._move_deadlines(self._blocked_since, now.ms)
        self._is_blocked = not self._is_blocked
        self._blocked_since = now.ms

    def _move_deadlines(self, since_ms: int, until_ms: int) -> None:
        """Nobody was heard from one moment to another; the same time counts once, whatever stalled in it."""
        touched = [(begin, end) for begin, end in self._moved if begin <= until_ms and end >= since_ms]
        uncounted_ms = until_ms - since_ms - sum(min(end, until_ms) - max(begin, since_ms) for begin, end in touched)
        if uncounted_ms > 0:
            self.machine.shift_deadlines(uncounted_ms)
        touched.append((since_ms, until_ms))
        whole = (min(begin for begin, _ in touched), max(end for _, end in touched))
        # A stall that still goes on began with the oldest batch, so that nobody asks about the time before it again.
        oldest_ms = self._batches[0].since_ms if self._batches else until_ms
        self._moved = [span for span in self._moved if span not in touched and span[1] > oldest_ms] + [whole]
