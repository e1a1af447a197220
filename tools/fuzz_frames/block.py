"""Runs a block of frames on a stage of its own, and notes what was reached, what memory was taken, and what went
wrong."""

import gc
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final

from penstock.broker.handlers import ROUTERS
from penstock.broker.router import route_table
from penstock.protocol.codec import decoder, encoder, stepwise_encoder
from penstock.protocol.schemas.headers import RequestHeader
from tools.fuzz_frames.corpus import seeds
from tools.fuzz_frames.heap import Heap, most_resident_bytes, resident_bytes
from tools.fuzz_frames.honest_client import HarmError
from tools.fuzz_frames.mutating import Frame, make_frame, whole_frame
from tools.fuzz_frames.problems import Problems
from tools.fuzz_frames.stage import Stage
from tools.fuzz_frames.warp_loop import WarpLoop

# What a frame may take while it is dealt with,
BYTES_PER_FRAME_BYTE: Final = 64
BYTES_PER_FRAME: Final = 64 * 1024
# apart from its reply, which is there as objects, as pieces and as bytes at the same time,
BYTES_PER_REPLY_BYTE: Final = 8
# from what it has stored, which here is in memory, twice and as it was written,
BYTES_PER_STORED_BYTE: Final = 3
# and from partitions that it makes: each a log, its files and its place in the image.
BYTES_PER_PARTITION: Final = 32 * 1024
# What a decompressor asks for however little it is given: lz4 two blocks of up to 4 MiB, as the data say, zstd a window
# of 8 MiB. Requests that bring batches, or have them searched by time, may use one. Beyond that, for a larger window,
# what they have really touched counts.
BYTES_PER_DECOMPRESSOR: Final = 9 * 1024 * 1024
DECOMPRESSING: Final = (0, 2)
# CreateTopics and CreatePartitions plan up to 10,000 partitions, though they may be asked not to make them.
BYTES_PER_PLAN: Final = 200 * 10_000
PLANNING: Final = (19, 37)
FRAMES_BETWEEN_CHECKS: Final = 10


@dataclass(slots=True)
class Finding:
    number: int
    api: str
    version: int
    how: str
    what: str
    data: bytes

    @property
    def is_memory(self) -> bool:
        return self.what.startswith("memory:")


@dataclass(slots=True)
class Outcome:
    """Of a block; outcomes of several are added."""

    frames: int = 0
    reached: Counter[tuple[int, int]] = field(default_factory=Counter)
    sent: Counter[tuple[int, int]] = field(default_factory=Counter)
    checks: int = 0
    findings: list[Finding] = field(default_factory=list)
    # The largest part of its allowance that a frame took, and that frame.
    worst: tuple[float, int, str] = (0.0, -1, "")
    slowest: tuple[float, int, str] = (0.0, -1, "")


class Runner:
    """Sends frames one at a time and looks after each. `on_frame` is called with the number of each before it is
    sent."""

    def __init__(self, seed: int, heap: Heap, on_frame: Callable[[int], None] = lambda _: None) -> None:
        self._seed = seed
        self._heap = heap
        self._on_frame = on_frame
        self.outcome = Outcome()
        # What the honest client asks for is not counted.
        self._is_sending = False
        self._stored = 0

    def run(self, numbers: Iterable[int]) -> Outcome:
        return self.run_frames((number, make_frame(self._seed, number)) for number in numbers)

    def run_frames(self, frames: Iterable[tuple[int, Frame]]) -> Outcome:
        problems = Problems()
        loggers = [logging.getLogger(name) for name in ("penstock", "asyncio")]
        for logger in loggers:
            logger.addHandler(problems)
            logger.propagate = False
        loop = WarpLoop()
        loop.set_exception_handler(problems.unhandled)
        try:
            loop.run_until_complete(self._run(loop, problems, frames))
        finally:
            loop.close()
            for logger in loggers:
                logger.removeHandler(problems)
                logger.propagate = True
        return self.outcome

    async def _run(self, loop: WarpLoop, problems: Problems, frames: Iterable[tuple[int, Frame]]) -> None:
        stage = await self._open(loop, problems)
        try:
            await stage.honest.check()
            for count, (number, frame) in enumerate(frames):
                self._on_frame(number)
                is_harmed = await self._send(stage, frame, number, check=count % FRAMES_BETWEEN_CHECKS == 0)
                if is_harmed or stage.is_changed:
                    await stage.close()
                    problems.take()
                    stage = await self._open(loop, problems)
        finally:
            await stage.close()

    async def _open(self, loop: WarpLoop, problems: Problems) -> Stage:
        stage = await Stage.open(loop, self._reached, problems)
        self._stored = stage.files.written
        return stage

    def _reached(self, key: int, version: int) -> None:
        if self._is_sending:
            self.outcome.reached[key, version] += 1

    async def _send(self, stage: Stage, frame: Frame, number: int, *, check: bool) -> bool:
        """Whether there was a finding."""
        outcome = self.outcome
        outcome.frames += 1
        outcome.sent[frame.key, frame.version] += 1
        stage.loop.pass_time(0.001)
        partitions = len(stage.broker.services.partitions)
        # What the frame before it has stored may be flushed only now.
        stored, self._stored = self._stored, stage.files.written
        resident = resident_bytes() if may_decompress(frame) else 0
        gc.collect(1)
        self._heap.begin()
        began = time.perf_counter()
        self._is_sending = True
        try:
            reply_bytes = await stage.send(frame.data)
        except Exception as error:
            stage.problems.found.append(f"the transport got {type(error).__name__}: {error}")
            reply_bytes = 0
        self._is_sending = False
        seconds = time.perf_counter() - began
        taken = self._heap.taken()
        made = max(0, len(stage.broker.services.partitions) - partitions)
        allowed = allowance(frame, reply_bytes, stage.files.written - stored, made)
        if taken > allowed and may_decompress(frame):
            taken = min(taken, most_resident_bytes() - resident)
        name = _NAMES.get(frame.key, str(frame.key))
        outcome.worst = max(outcome.worst, (taken / allowed, number, f"{name} v{frame.version} {taken} of {allowed}"))
        outcome.slowest = max(outcome.slowest, (seconds, number, f"{name} v{frame.version}, {len(frame.data)} bytes"))
        problems = stage.problems.take()
        if taken > allowed:
            problems.append(
                f"memory: {taken} bytes for a frame of {len(frame.data)}, a reply of {reply_bytes} and {made} new "
                f"partitions: {allowed} are allowed"
            )
        if check or problems:
            outcome.checks += 1
            try:
                await stage.honest.check()
            except HarmError as error:
                problems.append(str(error))
            problems += stage.failures()
            problems += stage.problems.take()
        for what in problems:
            outcome.findings.append(Finding(number, name, frame.version, frame.how, what, frame.data))
        return bool(problems)


_NAMES: Final = {key: route.api.name for key, route in route_table(ROUTERS).items()}


def allowance(frame: Frame, reply_bytes: int, stored_bytes: int, partitions: int) -> int:
    return (
        BYTES_PER_FRAME_BYTE * len(frame.data)
        + BYTES_PER_FRAME * frame.requests
        + BYTES_PER_REPLY_BYTE * reply_bytes
        + BYTES_PER_STORED_BYTE * stored_bytes
        + BYTES_PER_PARTITION * partitions
        + BYTES_PER_DECOMPRESSOR * may_decompress(frame)
        + BYTES_PER_PLAN * _may_be(frame, PLANNING)
    )


def may_decompress(frame: Frame) -> bool:
    return _may_be(frame, DECOMPRESSING)


def _may_be(frame: Frame, keys: tuple[int, ...]) -> bool:
    return frame.requests > 1 or frame.key in keys


def warm_up(heap: Heap) -> list[Finding]:
    """Load and compile what the first request of a kind would, so that its memory is not taken for that request's;
    every request of the corpus is sent as it is. Returns what went wrong."""
    import_module("difflib")
    for version in (1, 2):
        decoder(RequestHeader, version)
    for route in route_table(ROUTERS).values():
        for version in range(route.versions.first, route.versions.last + 1):
            decoder(route.api.request, version)
            encoder(route.api.response, version)
            stepwise_encoder(route.api.response, version)
    runner = Runner(0, heap)
    runner.run_frames(
        (-1, Frame(seed.key, seed.version, "whole", whole_frame(seed))) for kind in seeds() for seed in kind
    )
    gc.collect()
    gc.freeze()
    # From now on garbage is looked for between two frames alone, and counts for the frame that left it.
    gc.disable()
    return [finding for finding in runner.outcome.findings if not finding.is_memory]
