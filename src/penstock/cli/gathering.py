"""Records on their way to a topic: gathered into batches for each partition, sent in order, bounded in memory."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from penstock.protocol.records import NewRecord

# Half of what a topic takes by default, which leaves room for what we estimate too low.
BATCH_BYTES = 512 * 1024
MAX_BYTES = 16 * 1024 * 1024
# What a record takes in a batch besides its key, value and headers, at most.
OVERHEAD_BYTES = 25

Send = Callable[[int, list[NewRecord]], Awaitable[None]]
"""Writes a batch to a partition; returns when that is done."""


class Gatherer:
    """One batch of a partition is under way at a time, so that its order is kept; the next one fills meanwhile.

    After a batch has failed nothing more is sent; those under way come to their end, and whoever waits is told.
    """

    def __init__(self, send: Send, *, batch_bytes: int = BATCH_BYTES, max_bytes: int = MAX_BYTES) -> None:
        self._send = send
        self.batch_bytes = batch_bytes
        """Of the batches that are begun from now on."""
        self._max_bytes = max_bytes
        self._lanes: dict[int, _Lane] = {}
        self._bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: Exception | None = None

    def add(self, partition: int, record: NewRecord) -> None:
        """Takes it in any case: ask `room` from time to time."""
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = _Lane(partition)
        size = size_of(record)
        if not lane.batches or lane.batches[-1].size_bytes + size > self.batch_bytes:
            lane.batches.append(_Batch())
        batch = lane.batches[-1]
        batch.records.append(record)
        batch.size_bytes += size
        self._bytes += size
        if len(lane.batches) > 1 and not lane.is_busy:
            self._start(lane)

    def flush(self) -> None:
        """Send also what fills no batch."""
        for lane in self._lanes.values():
            if lane.batches:
                lane.is_due = True
                if not lane.is_busy:
                    self._start(lane)

    async def room(self) -> None:
        """Wait until more may be added."""
        while self._bytes > self._max_bytes and self._failure is None:
            self.flush()
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        if self._failure is not None:
            await self.finish()

    async def finish(self) -> None:
        """Send everything; the first failure is raised."""
        self.flush()
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._failure is not None:
            raise self._failure

    async def cancel(self) -> None:
        """Give up what is under way."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, lane: "_Lane") -> None:
        if self._failure is None:
            lane.is_busy = True
            task = asyncio.create_task(self._drain(lane))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _drain(self, lane: "_Lane") -> None:
        try:
            # The last batch is still being filled, unless it is due.
            while (len(lane.batches) > 1 or (lane.batches and lane.is_due)) and self._failure is None:
                lane.is_due = lane.is_due and len(lane.batches) > 1
                batch = lane.batches.popleft()
                await self._send(lane.partition, batch.records)
                self._bytes -= batch.size_bytes
        except Exception as error:
            self._failure = self._failure or error
        finally:
            lane.is_busy = False


@dataclass(slots=True)
class _Batch:
    records: list[NewRecord] = field(default_factory=list)
    size_bytes: int = 0


@dataclass(slots=True)
class _Lane:
    partition: int
    batches: deque[_Batch] = field(default_factory=deque)
    is_busy: bool = False
    is_due: bool = False


def size_of(record: NewRecord) -> int:
    size = len(record.value or b"") + len(record.key or b"") + OVERHEAD_BYTES
    if record.headers:
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
    return size
