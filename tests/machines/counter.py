"""The smallest durable machine there can be: it counts, and callers may wait until it has counted so far."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.groups import HeartbeatResponse


class At(NamedTuple):
    """A moment by both clocks."""

    ms: int
    wall_ms: int = 0


@dataclass(slots=True, frozen=True)
class By:
    token: Hashable


@dataclass(slots=True, frozen=True)
class Add:
    """Answered with the sum, once it is committed."""

    number: int


@dataclass(slots=True, frozen=True)
class Ask:
    """Answered with the sum, once it is committed; changes nothing."""


@dataclass(slots=True, frozen=True)
class Ping:
    """Answered at once."""


@dataclass(slots=True, frozen=True)
class WaitFor:
    """Answered when the sum is this or more. Within 10 s, or the count grows by 100 (which is what timeouts do)."""

    number: int


@dataclass(slots=True, frozen=True)
class Fail:
    """Raises when it is decided or, `later`, when it is applied."""

    later: bool = False


@dataclass(slots=True, frozen=True)
class AddEach:
    """Adds numbers one by one: in one batch, or else `split` into as many as needed."""

    numbers: tuple[int, ...]
    split: bool = False


@dataclass(slots=True, frozen=True)
class Added:
    """Is written in as many digits as its number has; a negative one cannot be written."""

    number: int


@dataclass(slots=True, frozen=True)
class Parked:
    token: Hashable
    number: int
    deadline_ms: int


@dataclass(slots=True, frozen=True)
class Broke:
    pass


@dataclass(slots=True, frozen=True)
class Told:
    token: Hashable
    response: Message
    after_commit: bool


@dataclass(slots=True, frozen=True)
class Decided:
    changes: tuple[Added | Parked | Broke, ...] = ()
    replies: tuple[Told, ...] = ()
    may_be_split: bool = False

    @property
    def records(self) -> tuple[Added, ...]:
        return tuple(change for change in self.changes if isinstance(change, Added))


TIMEOUT_MS = 10_000


class Counter:
    def __init__(self) -> None:
        self.sum = 0
        self.waiting: dict[Hashable, Parked] = {}
        self.loaded_at: At | None = None

    def decide(self, request: object, caller: By, now: At, *, new_member_id: str = "") -> Decided:
        match request:
            case Add(number):
                return self._add(number, Told(caller.token, answer(self.sum + number), True))
            case AddEach(numbers, split):
                told = Told(caller.token, answer(self.sum + sum(numbers)), True)
                return Decided(tuple(map(Added, numbers)), (told,), split)
            case Ask():
                return Decided(replies=(Told(caller.token, answer(self.sum), True),))
            case WaitFor(number) if number > self.sum:
                return Decided((Parked(caller.token, number, now.ms + TIMEOUT_MS),))
            case WaitFor():
                return Decided(replies=(Told(caller.token, answer(self.sum), True),))
            case Fail(later=True):
                return Decided((Broke(),))
            case Ping():
                return Decided(replies=(Told(caller.token, answer(0), False),))
        raise RuntimeError("broken on purpose")

    def _add(self, number: int, *replies: Told) -> Decided:
        reached = [parked for parked in self.waiting.values() if parked.number <= self.sum + number]
        woken = [Told(parked.token, answer(self.sum + number), True) for parked in reached]
        return Decided((Added(number),), (*replies, *woken))

    @staticmethod
    def refuse(request: object, code: ErrorCode) -> Message:
        return HeartbeatResponse(error_code=code)

    def apply(self, change: Added | Parked | Broke, now: At | None = None) -> None:
        match change:
            case Added(number):
                self.sum += number
                self.waiting = {token: parked for token, parked in self.waiting.items() if parked.number > self.sum}
            case Parked(token):
                self.waiting[token] = change
            case Broke():
                raise RuntimeError("broken on purpose")

    def loaded(self, now: At) -> Decided:
        self.loaded_at = now
        return Decided()

    def tick(self, now: At) -> Sequence[Decided]:
        return [self._add(100)] if any(parked.deadline_ms <= now.ms for parked in self.waiting.values()) else []

    def next_deadline(self) -> int | None:
        return min((parked.deadline_ms for parked in self.waiting.values()), default=None)

    def shift_deadlines(self, by_ms: int) -> None:
        self.waiting = {
            token: Parked(token, parked.number, parked.deadline_ms + by_ms) for token, parked in self.waiting.items()
        }

    def forget_waiter(self, token: Hashable) -> None:
        self.waiting.pop(token, None)


def answer(number: int) -> Message:
    """A sum as a message that there is anyway."""
    return HeartbeatResponse(throttle_time_ms=number)


def encode(record: Added) -> tuple[bytes, bytes | None]:
    if record.number < 0:
        raise ValueError(f"{record.number} cannot be written")
    return b"added", str(record.number).encode()


def decode(key: bytes | None, value: bytes | None) -> Added | None:
    return Added(int(value or b"0")) if key == b"added" else None
