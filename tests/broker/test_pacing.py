"""Long work in slices: whose turn it is, what ends it, and replies that are written bit by bit."""

import asyncio
import threading
from typing import Any, cast

import pytest

from penstock.broker.network.call import Call
from penstock.broker.pacing import (
    FIRST_ITEMS,
    THREADS,
    ClientGoneError,
    Gate,
    Pacing,
    ReplyTooLargeError,
    Room,
    Written,
)
from penstock.protocol.apis import api
from penstock.protocol.schemas.groups import ListedGroup, ListGroupsResponse
from penstock.protocol.session import write_response
from tests.broker.harness import in_loop, turns, until


class Line:
    """As much of a connection as the pace of a request looks at."""

    is_open = True


def a_call() -> Call:
    call = Call(api(16), 5, 7, "test", memoryview(b""))
    call.connection = cast(Any, Line())
    return call


def pacing(max_reply_bytes: int = 1 << 20) -> Pacing:
    return Pacing(asyncio.get_running_loop(), max_reply_bytes)


async def turns_of(work: Any) -> int:
    """How many turns of the loop a coroutine takes."""
    count = 0
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0)
        count += 1
    task.result()
    return count


def listed(count: int) -> ListGroupsResponse:
    return ListGroupsResponse(groups=[ListedGroup(group_id=f"group-{number}") for number in range(count)])


@in_loop
async def test_a_request_for_few_things_never_waits() -> None:
    pace = pacing().pace(a_call())

    async def work() -> None:
        for _ in range(FIRST_ITEMS - 1):
            await pace.spend()

    assert await turns_of(work()) == 1


@in_loop
async def test_many_things_are_counted_in_slices_and_in_order() -> None:
    pace = pacing().pace(a_call())
    counted: list[dict[int, int]] = []

    async def work() -> None:
        counted.append(await pace.count(number % 7 for number in range(70_000)))

    assert await turns_of(work()) > 30
    assert counted == [dict.fromkeys(range(7), 10_000)]
    assert list(counted[0]) == list(range(7))


@in_loop
async def test_in_one_turn_of_the_loop_one_slice_is_done_of_all_long_requests() -> None:
    shared = pacing()
    done: list[int] = []

    async def work(number: int) -> None:
        pace = shared.pace(a_call())
        for _ in range(5):
            await pace.turn()
            done.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(3)]
    most = 0
    while not all(task.done() for task in tasks):
        before = len(done)
        await asyncio.sleep(0)
        most = max(most, len(done) - before)
    assert most == 1
    # Each in its turn.
    assert done == [0, 1, 2] * 5


@in_loop
async def test_who_does_not_wait_any_longer_keeps_nobody_from_a_turn() -> None:
    shared = pacing()
    first, second = (asyncio.create_task(shared.turn()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert first.cancelled()
    await turns()
    await shared.turn()


@in_loop
async def test_work_for_a_client_that_has_gone_ends_unless_it_changes_something() -> None:
    shared, call = pacing(), a_call()
    await shared.pace(call).turn()
    cast(Line, call.connection).is_open = False
    with pytest.raises(ClientGoneError):
        await shared.pace(call).turn()
    await shared.pace(call, to_the_end=True).turn()


@in_loop
async def test_a_long_reply_is_written_in_slices_to_the_same_bytes() -> None:
    call, response = a_call(), listed(5000)
    pace = pacing().pace(call)
    assert await pace.reply(response) is response, "nothing was long so far"
    await pace.turn()
    written: list[Written] = []

    async def write() -> None:
        reply = await pace.reply(response)
        assert isinstance(reply, Written)
        written.append(reply)

    assert await turns_of(write()) > 20
    [reply] = written
    assert reply.response is response
    assert b"".join(reply.chunks) == b"".join(write_response(call, response, 5))


@in_loop
async def test_a_reply_over_the_limit_is_given_up_before_it_is_there() -> None:
    pace = pacing(max_reply_bytes=10_000).pace(a_call())
    await pace.turn()
    with pytest.raises(ReplyTooLargeError, match=r"ListGroups would have more than 10000 bytes.*fewer"):
        await pace.reply(listed(5000))
    assert isinstance(await pace.reply(listed(10)), Written)


@in_loop
async def test_few_threads_are_at_work_on_requests_at_the_same_time() -> None:
    shared, gate = pacing(), threading.Semaphore(0)
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        gate.acquire()
        return number

    tasks = [asyncio.create_task(shared.in_thread(work, number)) for number in range(5)]
    await until(lambda: len(begun) == THREADS)
    await turns()
    assert begun == [0, 1]
    gate.release(5)
    assert await asyncio.gather(*tasks) == [0, 1, 2, 3, 4]


@in_loop
async def test_a_gate_lets_in_what_fits_in_the_order_of_arrival_and_one_alone_in_any_case() -> None:
    gate = Gate(100)
    inside: list[int] = []

    async def visit(size: int) -> None:
        await gate.enter(size)
        inside.append(size)

    await visit(500)
    waiting = [asyncio.create_task(visit(size)) for size in (60, 41, 1)]
    await turns()
    assert inside == [500]
    gate.leave(500)
    await turns()
    # The last would fit, but it is not its turn.
    assert inside == [500, 60]
    gate.leave(60)
    await asyncio.gather(*waiting)
    assert inside == [500, 60, 41, 1]


@in_loop
async def test_a_gate_forgets_who_went_away() -> None:
    gate = Gate(100)
    await gate.enter(100)
    gone = asyncio.create_task(gate.enter(90))
    late = asyncio.create_task(gate.enter(90))
    await turns()
    gone.cancel()
    await turns()
    gate.leave(100)
    await late
    # Let in, and cancelled before it noticed: its place is free again.
    next_ = asyncio.create_task(gate.enter(90))
    await turns()
    gate.leave(90)
    next_.cancel()
    with pytest.raises(asyncio.CancelledError):
        await next_
    await gate.enter(100)


def test_an_item_that_has_no_room_leaves_it_to_smaller_ones() -> None:
    room = Room(100)
    assert room.take(60)
    assert not room.take(41)
    assert room.take(40)
    assert not room.take(1)
