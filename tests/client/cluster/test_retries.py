"""Trying again: what is, what is not, and what is left when the time is up."""

import asyncio
from collections.abc import Callable

import pytest

from penstock.client.cluster import retries as retrying
from penstock.client.cluster.retries import TRIES_FOR_UNKNOWN, Tries, backoff_ms, may_pass, settle
from penstock.client.errors import (
    BadReplyError,
    BrokerError,
    ClientError,
    ConnectionLostError,
    NoBrokerError,
    TimedOutError,
    UnknownPartitionError,
    UnknownTopicError,
    UnsendableError,
)
from penstock.protocol.error_codes import ErrorCode
from tests.waiting import in_loop

NOT_LEADER = BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "a")
TIMED_OUT = BrokerError(ErrorCode.REQUEST_TIMED_OUT, "a")


@pytest.mark.parametrize(
    ("error", "if_repeatable", "if_not"),
    [
        pytest.param(NOT_LEADER, True, True, id="not leader"),
        pytest.param(TIMED_OUT, True, False, id="broker timed out"),
        pytest.param(BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, "a"), True, True, id="not appended"),
        pytest.param(BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "a"), True, False, id="appended"),
        pytest.param(BrokerError(ErrorCode.MESSAGE_TOO_LARGE, "a"), False, False, id="refused"),
        pytest.param(BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "a"), False, False, id="unknown error"),
        pytest.param(ConnectionLostError("a"), True, True, id="lost before sending"),
        pytest.param(ConnectionLostError("a", outcome_unknown=True), True, False, id="lost after sending"),
        pytest.param(TimedOutError("a"), True, True, id="late before sending"),
        pytest.param(TimedOutError("a", outcome_unknown=True), True, False, id="late after sending"),
        pytest.param(NoBrokerError("a", may_pass=True), True, True, id="outage"),
        pytest.param(NoBrokerError("a", may_pass=False), False, False, id="no first contact"),
        pytest.param(BadReplyError("a"), False, False, id="bad reply"),
        pytest.param(UnsendableError("a"), False, False, id="unsendable"),
        pytest.param(ClientError("a"), False, False, id="anything else"),
    ],
)
def test_only_what_may_pass_and_does_no_harm_is_tried_again(
    error: ClientError, if_repeatable: bool, if_not: bool
) -> None:
    assert may_pass(error, 100, repeatable=True) is if_repeatable
    assert may_pass(error, 100, repeatable=False) is if_not


@pytest.mark.parametrize(
    "error", [UnknownTopicError("a"), UnknownPartitionError("a", 1, 1)], ids=["topic", "partition"]
)
def test_that_something_is_unknown_is_believed_after_some_tries(error: ClientError) -> None:
    assert may_pass(error, TRIES_FOR_UNKNOWN - 1, repeatable=False)
    assert not may_pass(error, TRIES_FOR_UNKNOWN, repeatable=True)


def test_pauses_grow_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "BACKOFF_MS", 100)
    assert 80 <= backoff_ms(1) <= 120
    assert 160 <= backoff_ms(2) <= 240
    assert all(800 <= backoff_ms(tries) <= 1200 for tries in (5, 50, 10**6))


def scripted(script: dict[str, list[str | ClientError]]) -> Callable[[Tries[str, str]], "asyncio.Future[None]"]:
    """An attempt in which each key has its next outcome."""

    def attempt(tries: Tries[str, str]) -> "asyncio.Future[None]":
        for key in tries.remaining:
            tries.outcomes[key] = script[key].pop(0)
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    return attempt


@in_loop
async def test_each_thing_is_tried_until_it_is_settled_and_no_longer() -> None:
    refused = BrokerError(ErrorCode.MESSAGE_TOO_LARGE, "c")
    script: dict[str, list[str | ClientError]] = {
        "a": ["done", "never asked"],
        "b": [NOT_LEADER, ConnectionLostError("b"), "done late", "never asked"],
        "c": [NOT_LEADER, refused, "never asked"],
    }
    outcomes = await settle(["c", "a", "b", "a"], scripted(script), timeout_ms=10_000, repeatable=False)
    assert list(outcomes.items()) == [("c", refused), ("a", "done"), ("b", "done late")]
    assert {key: len(left) for key, left in script.items()} == {"a": 1, "b": 1, "c": 1}


@in_loop
async def test_nothing_to_do_is_settled() -> None:
    assert await settle([], scripted({}), timeout_ms=1, repeatable=True) == {}


@in_loop
async def test_when_the_time_is_up_the_last_error_is_told_and_what_is_done_is_kept() -> None:
    async def attempt(tries: Tries[str, str]) -> None:
        for key in tries.remaining:
            tries.outcomes[key] = "done" if key == "quick" else NOT_LEADER

    outcomes = await settle(["slow", "quick"], attempt, timeout_ms=20, repeatable=True)
    assert outcomes["quick"] == "done"
    assert isinstance(outcomes["slow"], TimedOutError)
    assert "slow: no success within 20 ms; the last try failed: a: the leader has changed" in str(outcomes["slow"])
    assert not outcomes["slow"].outcome_unknown


@in_loop
async def test_what_is_on_its_way_when_the_time_is_up_has_an_unknown_outcome() -> None:
    refused = BrokerError(ErrorCode.MESSAGE_TOO_LARGE, "refused")

    async def attempt(tries: Tries[str, str]) -> None:
        tries.outcomes |= {"answered": "done", "refused": refused}
        tries.in_flight.add("sent")
        await asyncio.get_running_loop().create_future()

    keys = ["answered", "refused", "sent", "unsent"]
    outcomes = await settle(keys, attempt, timeout_ms=20, repeatable=False)
    assert [outcomes["answered"], outcomes["refused"]] == ["done", refused]
    assert [type(outcomes[key]) for key in ("sent", "unsent")] == [TimedOutError, TimedOutError]
    unknown = {key: error.outcome_unknown for key, error in outcomes.items() if isinstance(error, ClientError)}
    assert unknown == {"refused": False, "sent": True, "unsent": False}


@in_loop
async def test_the_outcome_of_what_changes_nothing_is_never_unknown() -> None:
    async def attempt(tries: Tries[str, str]) -> None:
        tries.in_flight.add("read")
        await asyncio.get_running_loop().create_future()

    error = (await settle(["read"], attempt, timeout_ms=20, repeatable=True))["read"]
    assert isinstance(error, TimedOutError)
    assert not error.outcome_unknown


@in_loop
async def test_cancelling_ends_the_tries() -> None:
    began = asyncio.Event()

    async def attempt(tries: Tries[str, str]) -> None:
        began.set()
        tries.outcomes["a"] = NOT_LEADER

    task = asyncio.create_task(settle(["a"], attempt, timeout_ms=10_000, repeatable=True))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
