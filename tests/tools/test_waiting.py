"""The waits of the tests themselves: a vain one ends, and says what it waited for."""

import asyncio
import traceback

import pytest

from tests import waiting
from tests.waiting import in_loop, until


def test_a_vain_wait_says_what_it_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LIMIT_SECONDS", 0.01)
    arrived: list[str] = []

    @in_loop
    async def waits() -> None:
        await until(lambda: "the parcel" in arrived)

    with pytest.raises(TimeoutError) as caught:
        waits()
    report = "".join(traceback.format_exception(caught.value))
    assert 'waited in vain for this to become true: await until(lambda: "the parcel" in arrived)' in report


@in_loop
async def test_a_wait_ends_when_the_condition_is_true() -> None:
    arrived: list[str] = []
    asyncio.get_running_loop().call_later(0.002, arrived.append, "the parcel")
    await until(lambda: arrived)
    assert arrived == ["the parcel"]


def test_a_test_that_leaves_a_task_behind_fails() -> None:
    @in_loop
    async def careless() -> None:
        left.append(asyncio.create_task(asyncio.Event().wait()))

    left: list[asyncio.Task[bool]] = []
    with pytest.raises(AssertionError, match="left tasks behind"):
        careless()
