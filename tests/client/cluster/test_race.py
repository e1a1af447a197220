"""One broker after the other is asked, and the first answer counts."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.cluster.race import UnreachedError, first_answer
from penstock.client.errors import AuthenticationError, ClientError, ConnectionLostError, TimedOutError
from tests.client.virtual_time import in_virtual_time


class Brokers:
    """Each answers after some seconds, by its name or by raising an error."""

    def __init__(self, **plan: tuple[float, Exception | None]) -> None:
        self.plan = plan
        self.asked: dict[str, float] = {}
        self.cancelled: list[str] = []
        self.passed_over: list[str] = []

    async def ask(self, name: str) -> str:
        self.asked[name] = round(asyncio.get_running_loop().time() - self.began, 3)
        seconds, error = self.plan[name]
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        if error is not None:
            raise error
        return name

    async def race(self) -> str:
        self.began = asyncio.get_running_loop().time()
        return await first_answer(list(self.plan), self.ask, patience=1.0, passed_over=self.passed_over.append)


def unreached(why: str) -> UnreachedError:
    return UnreachedError([ConnectionLostError(why)])


@in_virtual_time
async def test_a_broker_that_answers_is_the_only_one_asked() -> None:
    brokers = Brokers(a=(0.9, None), b=(0.0, None))
    assert await brokers.race() == "a"
    assert brokers.asked == {"a": 0.0}
    assert brokers.passed_over == []


@in_virtual_time
async def test_the_next_one_is_asked_when_the_last_was_silent_for_a_while() -> None:
    brokers = Brokers(a=(60.0, None), b=(60.0, None), c=(0.1, None))
    assert await brokers.race() == "c"
    assert brokers.asked == {"a": 0.0, "b": 1.0, "c": 2.0}
    assert brokers.passed_over == ["a", "b"]
    assert sorted(brokers.cancelled) == ["a", "b"]


@in_virtual_time
async def test_a_late_answer_is_taken_if_it_is_the_first() -> None:
    brokers = Brokers(a=(1.5, None), b=(60.0, None))
    assert await brokers.race() == "a"
    assert brokers.cancelled == ["b"]


@in_virtual_time
async def test_after_one_that_cannot_be_reached_the_next_one_is_asked_at_once() -> None:
    brokers = Brokers(a=(0.0, unreached("refused")), b=(0.0, None))
    assert await brokers.race() == "b"
    assert brokers.asked == {"a": 0.0, "b": 0.0}
    assert brokers.passed_over == []


@in_virtual_time
async def test_when_none_can_be_reached_all_reasons_are_told() -> None:
    brokers = Brokers(a=(5.0, unreached("silent")), b=(0.0, unreached("refused")))
    with pytest.raises(UnreachedError, match=r"^refused; silent$"):
        await brokers.race()


@pytest.mark.parametrize("loss", [ConnectionLostError, TimedOutError])
def test_a_loss_is_raised_only_when_no_other_answer_can_come(loss: Callable[[str], ClientError]) -> None:
    @in_virtual_time
    async def test() -> None:
        assert await Brokers(a=(3.0, None), b=(0.1, loss("lost"))).race() == "a"
        with pytest.raises(type(loss("")), match="lost"):
            await Brokers(a=(3.0, unreached("refused")), b=(0.1, loss("lost"))).race()

    test()


@in_virtual_time
async def test_a_refusal_is_raised_at_once() -> None:
    brokers = Brokers(a=(60.0, None), b=(0.0, AuthenticationError("wrong password")))
    with pytest.raises(AuthenticationError):
        await brokers.race()
    assert brokers.cancelled == ["a"]


@in_virtual_time
async def test_without_candidates_nothing_is_asked() -> None:
    with pytest.raises(UnreachedError):
        await Brokers().race()


@in_virtual_time
async def test_a_caller_that_gives_up_leaves_nothing_behind() -> None:
    brokers = Brokers(a=(60.0, None), b=(60.0, None))
    racing: asyncio.Task[Any] = asyncio.create_task(brokers.race())
    await asyncio.sleep(1.5)
    racing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await racing
    assert sorted(brokers.cancelled) == ["a", "b"]
