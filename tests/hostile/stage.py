"""A real broker with an honest client at work, beside which a test attacks.

The honest client writes a value, reads it back and compares, from the beginning to the end of the block: a wrong
answer fails the test. What an attack costs the others is measured in counts and bytes, never in time:

    async with beside_an_honest_client() as stage:
        attacker = await stage.attacker()
        async with stage.measured() as cost:
            attacker.send_bytes(...)
            await stage.honest.answers_more(20)
        assert cost.longest_turn_calls < 50_000
        assert cost.turns_between_answers < 50
        assert cost.peak_bytes < 1 << 20

Attacks that take long have a small form in `make test`; `make soak` sets SOAK_HOSTILE=1, and `scale(10, soak=1000)`
is the larger number then.
"""

import asyncio
import os
import struct
import sys
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from penstock.protocol.error_codes import ErrorCode
from penstock.storage.files import Files
from tests.broker.harness import Client, Node, batch, records_of, running, until

HONEST_TOPIC = "honest"


def scale(count: int, *, soak: int) -> int:
    """How much of an attack: the small number in `make test`, the large one in `make soak`."""
    return soak if os.environ.get("SOAK_HOSTILE") else count


@dataclass(slots=True)
class Cost:
    """What happened in the broker's process between the beginning and the end of `Stage.measured`."""

    longest_turn_calls: int = 0
    """Calls of functions, Python's and C's, in the one turn of the loop that made the most of them."""
    turns: int = 0
    """Turns of the loop: at least as many as there were slices."""
    turns_between_answers: int = 0
    """Turns of the loop between two answers to the honest client, at the most."""
    answers: int = 0
    """Answers that the honest client got."""
    peak_bytes: int = 0
    """Memory at its highest, above what there was at the beginning; only with `memory=True`."""


class Honest:
    """Writes a value, reads it back, compares, and begins anew."""

    def __init__(self, client: Client, turn: Callable[[], int]) -> None:
        self._client = client
        self._turn = turn
        self._task: asyncio.Task[None] | None = None
        self.answers = 0
        self.longest_wait_turns = 0

    def start(self) -> None:
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Raises what the client found wrong."""
        assert self._task is not None
        if not self._task.done():
            self._task.cancel()
        try:
            await self._task
        except asyncio.CancelledError:
            pass

    async def answers_more(self, count: int) -> None:
        """Wait for so many more right answers."""
        assert self._task is not None
        task, wanted = self._task, self.answers + count
        await until(lambda: self.answers >= wanted or task.done())
        if task.done():
            task.result()

    async def _work(self) -> None:
        number, answered_at = 0, self._turn()
        while True:
            value = b"%d" % number
            written = await self._client.produce(HONEST_TOPIC, batch(value))
            assert written.error_code == ErrorCode.NONE, ErrorCode(written.error_code).name
            data = await self._client.fetch(HONEST_TOPIC, written.base_offset)
            assert data.error_code == ErrorCode.NONE, ErrorCode(data.error_code).name
            [record] = records_of(data)
            assert (record.offset, record.value) == (written.base_offset, value)
            number += 1
            self.answers += 1
            self.longest_wait_turns = max(self.longest_wait_turns, self._turn() - answered_at)
            answered_at = self._turn()


class Stage:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.honest: Honest
        self._turns = 0
        self._calls = 0
        self._longest_turn_calls = 0

    async def attacker(self, **options: Any) -> Client:
        return await self.node.connect(**options)

    @asynccontextmanager
    async def measured(self, *, calls: bool = True, memory: bool = False) -> AsyncIterator[Cost]:
        """What the block costs the others. The figures are there when it has ended; counting slows everything down."""
        cost = Cost()
        honest = self.honest
        # The first answer may have waited for what came before.
        await honest.answers_more(1)
        honest.longest_wait_turns, answers, turns = 0, honest.answers, self._turns
        self._longest_turn_calls = 0
        before = 0
        if memory:
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
        if calls:
            sys.setprofile(self._count)
        try:
            yield cost
            cost.turns = self._turns - turns
            await honest.answers_more(1)
        finally:
            sys.setprofile(None)
            if memory:
                cost.peak_bytes = tracemalloc.get_traced_memory()[1] - before
                tracemalloc.stop()
            cost.longest_turn_calls = self._longest_turn_calls
            cost.turns_between_answers = honest.longest_wait_turns
            cost.answers = honest.answers - answers

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            self._calls += 1

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Count the loop's turns from now on."""
        run_once = loop._run_once  # type: ignore[attr-defined]

        def turn() -> None:
            self._turns += 1
            self._calls = 0
            run_once()
            self._longest_turn_calls = max(self._longest_turn_calls, self._calls)

        loop._run_once = turn  # type: ignore[attr-defined]

    def turn(self) -> int:
        return self._turns


@asynccontextmanager
async def beside_an_honest_client(
    configs: dict[str, str] | None = None, *, files: Files | None = None, folder: str | None = None
) -> AsyncIterator[Stage]:
    async with running(configs, files=files, folder=folder) as node:
        stage = Stage(node)
        stage.watch(asyncio.get_running_loop())
        client = await node.connect(client_id="honest")
        await client.create_topic(HONEST_TOPIC)
        stage.honest = Honest(client, stage.turn)
        stage.honest.start()
        try:
            await stage.honest.answers_more(1)
            yield stage
            await stage.honest.answers_more(1)
        finally:
            await stage.honest.stop()


async def skim(client: Client) -> int:
    """Take a reply without keeping it; returns the bytes of its frame."""
    reader = client._reader
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    left = length
    while left:
        data = await reader.read(min(left, 1 << 16))
        if not data:
            raise ConnectionResetError("the broker has closed the connection")
        left -= len(data)
    return 4 + int(length)
