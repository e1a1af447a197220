"""One process of a broker."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.supervisor.child import Child
from penstock.supervisor.left_processes import birth_of
from tests.supervisor.scripted import NEVER_STOPS, REFUSES, SERVES, command
from tests.waiting import in_loop


@asynccontextmanager
async def child(script: str, number: int = 0) -> AsyncIterator[Child]:
    made = await Child.spawn(number, command(script, number))
    try:
        yield made
    finally:
        made.kill()
        await made.wait()


@in_loop
async def test_it_reports_when_it_is_ready_and_stops_when_it_is_told_to() -> None:
    async with child(SERVES, 2) as broker:
        broker.begin()
        told = await broker.readiness()
        assert told is not None
        assert (told.node_id, told.address) == (2, "127.0.0.1:9094")
        broker.stop()
        assert await broker.wait() == 0
        broker.stop()


@in_loop
async def test_it_does_not_begin_before_it_is_told_to() -> None:
    async with child("begin(); ready(0)") as broker:
        broker.stop()
        assert await broker.wait() == -signal.SIGTERM
        assert await broker.readiness() is None


@in_loop
async def test_one_that_refuses_its_start_is_never_ready() -> None:
    async with child(REFUSES) as broker:
        broker.begin()
        assert await broker.readiness() is None
        assert await broker.wait() == 1


@in_loop
async def test_its_identity_is_that_of_the_process() -> None:
    async with child(SERVES, 1) as broker:
        assert broker.identity is not None
        assert (broker.identity.node_id, broker.identity.pid) == (1, broker.pid)
        assert broker.identity.birth == birth_of(broker.pid)


@in_loop
async def test_signals_of_the_terminal_do_not_reach_it() -> None:
    async with child(SERVES) as broker:
        assert os.getsid(broker.pid) == broker.pid != os.getsid(0)


@in_loop
async def test_one_that_does_not_stop_can_be_killed() -> None:
    async with child(NEVER_STOPS) as broker:
        broker.begin()
        await broker.readiness()
        broker.stop()
        broker.kill()
        assert await broker.wait() == -signal.SIGKILL


@pytest.mark.usefixtures("capfdbinary")
@in_loop
async def test_what_it_prints_otherwise_never_stops_it() -> None:
    script = "begin(); print('x' * 300_000); ready(0); print('y' * 300_000); sys.exit(5)"
    async with child(script) as broker:
        broker.begin()
        assert await broker.readiness() is not None
        assert await broker.wait() == 5
