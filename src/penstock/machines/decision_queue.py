"""A durable machine between its callers and its log: what is decided and not committed yet, and who waits for that.

It owns no log and no clock: the runtime appends the records it hands out, and reports when they are committed. What
cannot be written is refused before it has happened: records are encoded and measured before anything is applied.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message

# The most decisions that may wait for the log to commit them; the next one is refused.
MAX_UNCOMMITTED: Final = 1000
# The most bytes that the records of these decisions may take.
MAX_UNCOMMITTED_BYTES: Final = 32 * 1024 * 1024
# What a batch and each record in it take beside keys and values, at the most.
BATCH_OVERHEAD: Final = 61
RECORD_OVERHEAD: Final = 24
# A log that commits nothing for this long is stalled: members are not blamed for what did not come through meanwhile.
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


class MachineDecision(Protocol):
    @property
    def changes(self) -> Sequence[Any]: ...
    @property
    def records(self) -> Sequence[Any]: ...
    @property
    def replies(self) -> Sequence[Reply]: ...
    @property
    def may_be_split(self) -> bool:
        """Whether any first part of the records is true by itself, so that they need not be in one batch."""


class Machine(Protocol):
    """`decide` changes nothing, `apply` is the only mutation, and the state is a fold over the records of the log."""

    def decide(self, request: Any, caller: Any, now: Any, *, new_member_id: str = "") -> MachineDecision: ...
    def refuse(self, request: Any, code: ErrorCode) -> Message: ...
    def apply(self, change: Any, now: Any = None) -> None: ...
    def loaded(self, now: Any) -> MachineDecision: ...
    def tick(self, now: Any) -> Sequence[MachineDecision]: ...
    def next_deadline(self) -> int | None: ...
    def shift_deadlines(self, by_ms: int) -> None: ...
    def forget_waiter(self, token: Hashable) -> None: ...


M = TypeVar("M", bound=Machine)


Encoded = tuple[bytes, bytes | None]
"""Key and value of a record as the log holds them."""


class Undecided(Exception):  # noqa: N818 - a bug of the machine, but not of its state
    """The machine failed to decide, or decided what cannot be written. Nothing has changed."""


class Answer(NamedTuple):
    """To be sent now."""

    token: Hashable
    response: Message


@dataclass(slots=True, eq=False)
class _Waiting:
    """An answer that leaves with its commit, and the request: it says how to refuse it."""

    answer: Answer
    request: Any
    deadline_ms: float = math.inf
    is_answered: bool = False


@dataclass(slots=True)
class _Batch:
    """Decisions that share one append, and the answers that leave when it is committed."""

    since_ms: int
    records: list[Encoded] = field(default_factory=list)
    size: int = BATCH_OVERHEAD
    decisions: int = 0
    waiting: list[_Waiting] = field(default_factory=list)


class DecisionQueue(Generic[M]):
    """Every method returns the answers that may leave now. Nothing is said before it is true for good.

    Callers of requests of the types `impatient` wait for the log for no longer than `patience_ms`, since what they have
    sent after these waits with them. They are refused then, and what was decided stands."""

    def __init__(
        self,
        machine: M,
        encode: Callable[[Any], Encoded],
        *,
        max_batch_bytes: int,
        impatient: Collection[type] = (),
        patience_ms: float = math.inf,
    ) -> None:
        self.machine = machine
        self._encode = encode
        self._max_batch_bytes = max_batch_bytes
        self._impatient = impatient
        self._patience_ms = patience_ms
        # Those that will not wait for ever, in the order of their deadlines.
        self._hurried: deque[_Waiting] = deque()
        # In the order of the log. The records of the last ones are not taken yet, and the very last one may grow.
        self._batches: deque[_Batch] = deque()
        self._untaken = 0
        self._uncommitted = 0
        self._uncommitted_bytes = 0
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
        """A request. If the log cannot take what it leads to, nothing has happened: the caller may try again, unless
        that is too large for a batch. Raises Undecided."""
        if may_append == self._is_blocked:
            self._log_changed(now)
        try:
            decision = self.machine.decide(request, caller, now, new_member_id=new_member_id)
            records = [self._encode(record) for record in decision.records]
        except Exception as error:
            raise Undecided(f"{type(request).__name__} led to no decision") from error
        if not decision.may_be_split and BATCH_OVERHEAD + sum(map(_size, records)) > self._max_batch_bytes:
            return [Answer(caller.token, self.machine.refuse(request, ErrorCode.MESSAGE_TOO_LARGE))]
        if not self._can_take(decision, records, may_append):
            return [Answer(caller.token, self.machine.refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE))]
        self._parked[caller.token] = request
        return self._carry_out(decision, records, now)

    def take(self, decision: MachineDecision, now: Instant, *, may_append: bool = True) -> list[Answer] | None:
        """A decision that no caller asked for, so that none can be refused it: its records may need several batches.
        None if it has to come again later."""
        records = [self._encode(record) for record in decision.records]
        return self._carry_out(decision, records, now) if self._can_take(decision, records, may_append) else None

    def tick(self, now: Instant, *, may_append: bool = True) -> list[Answer]:
        """Time has passed. While the log is stalled or takes nothing, no deadline of the machine's expires."""
        if may_append == self._is_blocked:
            self._log_changed(now)
        answers = self._refuse_overdue(now)
        if self._is_blocked or self.is_stalled(now):
            return answers
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
        self._uncommitted_bytes -= batch.size
        if now.ms - batch.since_ms > STALL_MS:
            self._move_deadlines(batch.since_ms, now.ms)
        answers = self._answered(batch.waiting)
        while self._hurried and self._hurried[0].is_answered:
            self._hurried.popleft()
        return answers

    def forget(self, token: Hashable) -> None:
        """The caller is gone."""
        if self._parked.pop(token, None) is not None:
            self.machine.forget_waiter(token)

    def end_waits(self, code: ErrorCode) -> list[Answer]:
        """Answer the callers that wait for other requests, since there will be none. Commits are still waited for."""
        parked, self._parked = self._parked, {}
        for token in parked:
            self.machine.forget_waiter(token)
        return [Answer(token, self.machine.refuse(request, code)) for token, request in parked.items()]

    def lost(self, code: ErrorCode) -> list[Answer]:
        """What was decided may never be committed, so the machine is of no use any more: refuse everybody."""
        waiting = [
            (each.answer.token, each.request)
            for batch in self._batches
            for each in batch.waiting
            if not each.is_answered
        ]
        self._batches.clear()
        self._hurried.clear()
        self._untaken = self._uncommitted = self._uncommitted_bytes = 0
        answers = [
            Answer(token, self.machine.refuse(request, code)) for token, request in waiting if request is not None
        ]
        return answers + self.end_waits(code)

    # What is to be done

    @property
    def has_records(self) -> bool:
        """Whether there is anything to append."""
        return self._untaken > 0

    def take_records(self) -> list[Encoded]:
        """The oldest batch that was not taken, to be appended at once and as a whole."""
        assert self._untaken, "nothing was decided"
        batch = self._batches[-self._untaken]
        self._untaken -= 1
        records, batch.records = batch.records, []
        return records

    def next_deadline(self) -> int | None:
        deadline = self.machine.next_deadline()
        if not self._hurried:
            return deadline
        hurried = int(self._hurried[0].deadline_ms)
        return hurried if deadline is None else min(hurried, deadline)

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

    def _can_take(self, decision: MachineDecision, records: Sequence[Encoded], may_append: bool) -> bool:
        has_room = self._uncommitted < MAX_UNCOMMITTED and self._uncommitted_bytes < MAX_UNCOMMITTED_BYTES
        if records:
            return may_append and has_room
        return has_room or not any(reply.after_commit for reply in decision.replies)

    def _store(self, records: Sequence[Encoded], now: Instant) -> None:
        """Records that fit a batch are in one. Others begin a new one wherever the last one is full."""
        total = sum(map(_size, records))
        is_split = BATCH_OVERHEAD + total > self._max_batch_bytes
        for piece, size in [([record], _size(record)) for record in records] if is_split else [(records, total)]:
            if not self._untaken or self._batches[-1].size + size > self._max_batch_bytes:
                self._batches.append(_Batch(now.ms))
                self._untaken += 1
                self._uncommitted_bytes += BATCH_OVERHEAD
            self._batches[-1].records += piece
            self._batches[-1].size += size
            self._uncommitted_bytes += size

    def _carry_out(self, decision: MachineDecision, records: Sequence[Encoded], now: Instant) -> list[Answer]:
        for change in decision.changes:
            self.machine.apply(change, now)
        if records:
            self._store(records, now)
        behind = self._batches[-1] if self._batches else None
        answers: list[Answer] = []
        has_to_wait = bool(records)
        for reply in decision.replies:
            answer = Answer(reply.token, reply.response)
            request = self._parked.pop(reply.token, None)
            if reply.after_commit and behind is not None:
                waiting = _Waiting(answer, request)
                behind.waiting.append(waiting)
                if type(request) in self._impatient:
                    waiting.deadline_ms = now.ms + self._patience_ms
                    self._hurried.append(waiting)
                has_to_wait = True
            else:
                answers.append(answer)
        if has_to_wait and behind is not None:
            behind.decisions += 1
            self._uncommitted += 1
        return answers

    @staticmethod
    def _answered(waiting: Sequence[_Waiting]) -> list[Answer]:
        answers = [each.answer for each in waiting if not each.is_answered]
        for each in waiting:
            each.is_answered = True
        return answers

    def _refuse_overdue(self, now: Instant) -> list[Answer]:
        answers: list[Answer] = []
        while self._hurried and self._hurried[0].deadline_ms <= now.ms:
            overdue = self._hurried.popleft()
            overdue.is_answered = True
            refusal = self.machine.refuse(overdue.request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            answers.append(Answer(overdue.answer.token, refusal))
        return answers

    def _log_changed(self, now: Instant) -> None:
        """It takes nothing from now on, or does so again."""
        if self._is_blocked:
            self._move_deadlines(self._blocked_since, now.ms)
        self._is_blocked = not self._is_blocked
        self._blocked_since = now.ms

    def _move_deadlines(self, since_ms: int, until_ms: int) -> None:
        """Move deadlines by the time in which no request was heard. Time that stalled twice over counts once."""
        touched = [(begin, end) for begin, end in self._moved if begin <= until_ms and end >= since_ms]
        uncounted_ms = until_ms - since_ms - sum(min(end, until_ms) - max(begin, since_ms) for begin, end in touched)
        if uncounted_ms > 0:
            self.machine.shift_deadlines(uncounted_ms)
        touched.append((since_ms, until_ms))
        whole = (min(begin for begin, _ in touched), max(end for _, end in touched))
        # A stall that still goes on began with the oldest batch, so that the time before it is never asked about again.
        oldest_ms = self._batches[0].since_ms if self._batches else until_ms
        self._moved = [span for span in self._moved if span not in touched and span[1] > oldest_ms] + [whole]


def _size(record: Encoded) -> int:
    key, value = record
    return RECORD_OVERHEAD + len(key) + (len(value) if value is not None else 0)
