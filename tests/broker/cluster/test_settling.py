"""Decisions that were asked for together: each has its outcome, and none is asked for twice."""

import asyncio
from collections.abc import Sequence

import pytest

from penstock.broker.cluster.controlling import NotControllerError
from penstock.broker.cluster.settling import AT_ONCE, Settling
from penstock.broker.config.values import ConfigError
from penstock.machines.decisions import Refused
from penstock.protocol.error_codes import ErrorCode
from tests.broker.harness import create_topics, in_loop, running, turns


def made(reply: str) -> "asyncio.Future[str]":
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    future.set_result(reply)
    return future


def failed(error: Exception) -> "asyncio.Future[str]":
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


async def settle(asked: "Sequence[asyncio.Future[str] | Refused]") -> list[str | Refused]:
    settling: Settling[str] = Settling()
    for each in asked:
        await settling.add(each)
    return await settling.finish()


@in_loop
async def test_each_has_its_own_outcome_in_order() -> None:
    early = Refused(ErrorCode.INVALID_REQUEST, "named twice")
    late = Refused(ErrorCode.INVALID_PARTITIONS, "too few")
    wrong = failed(ConfigError("x", "is wrong"))
    one, two, three, four = await settle([early, made("a"), failed(late), wrong])
    assert (one, two, three) == (early, "a", late)
    assert isinstance(four, Refused)
    assert four.code == ErrorCode.INVALID_CONFIG
    assert await settle([]) == []


@in_loop
async def test_when_none_was_made_another_controller_may_make_them_all() -> None:
    refused = failed(Refused(ErrorCode.INVALID_PARTITIONS, "too few"))
    with pytest.raises(NotControllerError) as caught:
        await settle([failed(NotControllerError()), refused, failed(NotControllerError())])
    assert not caught.value.outcome_unknown
    with pytest.raises(NotControllerError) as caught:
        await settle([failed(NotControllerError()), failed(NotControllerError("?", outcome_unknown=True))])
    assert caught.value.outcome_unknown


@in_loop
async def test_when_some_were_made_the_others_are_told_apart() -> None:
    unknown = failed(NotControllerError("?", outcome_unknown=True))
    _, two, three = await settle([made("a"), failed(NotControllerError()), unknown])
    assert isinstance(two, Refused)
    assert isinstance(three, Refused)
    assert (two.code, three.code) == (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)


@in_loop
async def test_the_topics_of_one_request_are_all_asked_for_before_the_first_is_waited_for() -> None:
    async with running() as node:
        controlling = node.broker.services.controlling
        submit, pending = controlling.submit, []

        def counted(decide: object) -> "asyncio.Future[object]":
            future: asyncio.Future[object] = submit(decide)  # type: ignore[arg-type]
            pending.append(sum(not each.done() for each in pending_futures))
            pending_futures.append(future)
            return future

        pending_futures: list[asyncio.Future[object]] = []
        controlling.submit = counted  # type: ignore[method-assign,assignment]
        request = create_topics("t0")
        request.topics = [create_topics(f"t{number}").topics[0] for number in range(40)]
        reply = await (await node.connect()).ask(request, 7)
        assert {result.error_code for result in reply.topics} == {ErrorCode.NONE}
        assert pending == list(range(40))


@in_loop
async def test_a_request_waits_for_so_many_decisions_at_a_time_and_not_for_more() -> None:
    later: list[asyncio.Future[str]] = [asyncio.get_running_loop().create_future() for _ in range(AT_ONCE)]
    settling: Settling[str] = Settling()
    for each in later[:-1]:
        await settling.add(each)
    full = asyncio.ensure_future(settling.add(later[-1]))
    await turns()
    assert not full.done()
    for number, each in enumerate(later):
        each.set_result(str(number))
    await full
    await settling.add(made("last"))
    assert await settling.finish() == [*map(str, range(AT_ONCE)), "last"]
