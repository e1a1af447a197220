"""asyncio on a loop whose selector is nested in the engine's: timers, threads, readers and signals as on any other."""

import asyncio
import os
import signal
import socket
import threading

from penstock.broker.engine import EngineLoop, engine_of
from tests.broker.engine.test_transport import Receiver, closed, connected
from tests.waiting import in_loop, until


@in_loop
async def test_timers_and_callbacks_come_in_their_order() -> None:
    loop = asyncio.get_running_loop()
    told: list[str] = []
    done = asyncio.Event()
    loop.call_later(0.02, told.append, "later")
    loop.call_later(0.03, done.set)
    loop.call_later(0.001, told.append, "sooner")
    loop.call_soon(told.append, "now")
    await done.wait()
    assert told == ["now", "sooner", "later"]


@in_loop
async def test_a_thread_wakes_the_loop() -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(done.set))
    thread.start()
    await done.wait()
    thread.join()


@in_loop
async def test_sockets_of_asyncio_are_served_beside_the_engines() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        with connected() as (transport, receiver, client):
            client.send(b"to the engine")
            far.send(b"to asyncio")
            assert await asyncio.get_running_loop().sock_recv(near, 100) == b"to asyncio"
            await until(lambda: receiver.data == [b"to the engine"])
            transport.abort()
            await closed(receiver)


@in_loop
async def test_what_a_client_brings_about_is_done_though_no_timer_is_due() -> None:
    done = asyncio.Event()

    class Telling(Receiver):
        def received(self, data: memoryview) -> None:
            asyncio.get_running_loop().call_soon(done.set)

    loop = asyncio.get_running_loop()
    with connected() as (_, first, _):
        with connected(Telling(first.turn)) as (transport, receiver, far):
            loop.call_soon(far.send, b"x")
            await done.wait()
            transport.abort()
            await closed(receiver)
        first.transport.abort()
        await closed(first)


@in_loop
async def test_signals_reach_the_loop() -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, done.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await done.wait()
    loop.remove_signal_handler(signal.SIGUSR1)


def test_a_closed_loop_leaves_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    loop = EngineLoop()
    assert engine_of(loop) is not None
    loop.close()
    assert len(os.listdir("/proc/self/fd")) == before
