"""`settle` tries again until each outcome is one that another try would not change, or the time is up."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from penstock.client.errors import (
    BrokerError,
    ClientError,
    ConnectionLostError,
    NoBrokerError,
    TimedOutError,
    UnknownPartitionError,
    UnknownTopicError,
)

# Kafka's retry.backoff.ms and retry.backoff.max.ms.
BACKOFF_MS = 100
MAX_BACKOFF_MS = 1_000
# A topic that was just created is not known to every broker at once, so the first to deny it is not believed.
TRIES_FOR_UNKNOWN = 3

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class Tries(Generic[K, V]):
    """The state of one operation on some things; each try works on those that remain."""

    remaining: list[K]
    outcomes: dict[K, V | ClientError] = field(default_factory=dict)
    in_flight: set[K] = field(default_factory=set)
    """What a broker has been asked and has not answered: if the time is up now, its outcome is unknown."""


async def settle(
    keys: Iterable[K],
    attempt: Callable[[Tries[K, V]], Awaitable[None]],
    *,
    timeout_ms: int,
    repeatable: bool,
) -> dict[K, V | ClientError]:
    """The outcome of each key, in their order, errors among them. `attempt` puts an outcome for every key that remains.

    Unless it is `repeatable`, nothing is tried again of which it is unknown whether a broker has carried it out.
    """
    asked = list(dict.fromkeys(keys))
    tries: Tries[K, V] = Tries(asked)
    count = 0
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            while tries.remaining:
                if count:
                    await asyncio.sleep(backoff_ms(count) / 1000)
                await attempt(tries)
                count += 1
                tries.remaining = [
                    key
                    for key in tries.remaining
                    if isinstance(error := tries.outcomes[key], ClientError) and may_pass(error, count, repeatable)
                ]
    except TimeoutError:
        for key in tries.remaining:
            last = tries.outcomes.get(key)
            if key in tries.in_flight:
                unanswered = f"{key}: no answer came within {timeout_ms} ms"
                tries.outcomes[key] = TimedOutError(unanswered, outcome_unknown=not repeatable)
            elif key not in tries.outcomes or (isinstance(last, ClientError) and may_pass(last, count, repeatable)):
                why = f"the last try failed: {last}" if last else "the first try was not finished"
                tries.outcomes[key] = TimedOutError(f"{key}: no success within {timeout_ms} ms; {why}")
    return {key: tries.outcomes[key] for key in asked}


def may_pass(error: ClientError, tries: int, repeatable: bool) -> bool:
    """Whether another try can be hoped to go better, and does no harm."""
    match error:
        case UnknownTopicError() | UnknownPartitionError():
            return tries < TRIES_FOR_UNKNOWN
        case BrokerError():
            return error.code.retriable and (repeatable or not error.outcome_unknown)
        case ConnectionLostError() | TimedOutError():
            return repeatable or not error.outcome_unknown
        case NoBrokerError():
            return error.may_pass
        case _:
            return False


def backoff_ms(tries: int) -> float:
    """How long to wait after a number of tries; partly random, so that clients do not come back all at once."""
    return float(min(BACKOFF_MS * 2 ** min(tries - 1, 10), MAX_BACKOFF_MS)) * random.uniform(0.8, 1.2)
