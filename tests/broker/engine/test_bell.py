"""Threads that ring, on a loop with an engine and on one without."""

import asyncio
import threading

from penstock.broker.engine.bell import Bell
from penstock.broker.engine.turn import Turn
from tests.waiting import in_every_loop, in_loop, until


class Connection:
    sent = 0

    def send_outbox(self) -> None:
        self.sent += 1


def in_thread(bell: Bell, rings: int = 1) -> None:
    def ring() -> None:
        for _ in range(rings):
            bell.ring()

    thread = threading.Thread(target=ring)
    thread.start()
    thread.join()


@in_every_loop
async def test_a_ring_is_heard_and_what_it_brings_about_is_settled() -> None:
    loop, connection, heard = asyncio.get_running_loop(), Connection(), list[int]()
    turn = Turn(loop, lambda: 0)

    def rung() -> None:
        heard.append(threading.get_ident())
        turn.cork(connection)

    bell = Bell(loop, turn, rung)
    for number in range(1, 4):
        in_thread(bell)
        await until(lambda number=number: connection.sent == number)  # type: ignore[misc]
    assert heard == [threading.get_ident()] * 3
    bell.close()


@in_loop
async def test_where_there_is_an_engine_a_ring_needs_no_callback_of_the_loop() -> None:
    loop, connection = asyncio.get_running_loop(), Connection()
    turn = Turn(loop, lambda: 0)
    bell = Bell(loop, turn, lambda: turn.cork(connection))
    in_thread(bell, rings=5)
    await until(lambda: connection.sent)
    assert connection.sent == 1
    bell.close()


@in_loop
async def test_an_error_of_a_callback_harms_no_other() -> None:
    loop, heard = asyncio.get_running_loop(), list[str]()
    turn = Turn(loop, lambda: 0)

    def fail() -> None:
        raise RuntimeError

    bad, good = Bell(loop, turn, fail), Bell(loop, turn, lambda: heard.append("good"))
    in_thread(bad)
    in_thread(good)
    await until(lambda: heard)
    bad.close()
    good.close()


@in_loop
async def test_a_bell_may_be_closed_twice() -> None:
    loop = asyncio.get_running_loop()
    bell = Bell(loop, Turn(loop, lambda: 0), lambda: None)
    bell.close()
    bell.close()
