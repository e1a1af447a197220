"""The data path in plain Python: the clients' sockets in an epoll of its own, turns that serve them, and what both the
data path and the rules know of a partition.

It decides nothing. Who leads, what is committed, what is refused, when to flush, roll and delete is said from outside,
between turns: the rules set attributes, and call `advance`, `refuse_waiting` and `refuse_hurried`. While a partition is
led here, this alone moves the end of its log and its producers' windows, inside a turn.
"""

import asyncio
import logging
import math
import os
import select
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from penstock.broker.engine.transport import SocketTransport
from penstock.broker.engine.turn import Turn
from penstock.machines.flush_urgency import Urgency, flush_urgency
from penstock.machines.producers import Producers, Rejected
from penstock.protocol.batch import BatchHeader
from penstock.protocol.error_codes import ErrorCode
from penstock.storage.log.log import Log

log = logging.getLogger(__name__)

# A turn that has received so much is settled, and goes on: what is written while the processor still has it near costs
# half.
SETTLED_BYTES: Final = 512 * 1024
# What is received at a time comes on top of that.
ARENA_BYTES: Final = SETTLED_BYTES + 1024 * 1024
# Connections that are served in one turn.
MOST_EVENTS: Final = 256
# NamedTuple's own constructor costs three times as much.
_new = tuple.__new__
# Where what was received does not stay, batches below this size are copied, and larger ones written at once.
GATHER_BELOW_BYTES: Final = 64 * 1024


class Receiver(Protocol):
    """What a transport brings its bytes to: an asyncio protocol that is handed what was received."""

    turn: Turn

    @property
    def receive_bytes(self) -> int:
        """How much to receive at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def connection_lost(self, error: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def received(self, data: memoryview) -> None:
        """The bytes stay where they are until the turn is settled."""

    def failed(self, error: Exception) -> None:
        """A bug of ours: the connection is to be closed."""


class Engine:
    """Serves the clients of all brokers on one loop, inside the loop's `select`."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._poll = self._epoll.poll
        self._nested = -1
        self._transports: dict[int, SocketTransport] = {}
        self._arena = memoryview(bytearray(ARENA_BYTES))
        self._filled = 0
        self._turns: list[Turn] = []
        self._bells: dict[int, tuple[Turn, Callable[[], None]]] = {}

    def nest(self, fd: int) -> None:
        """Watch asyncio's own epoll as well."""
        self._nested = fd
        self._epoll.register(fd, select.EPOLLIN)

    def close(self) -> None:
        self._epoll.close()

    def connect(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, receiver: Receiver) -> SocketTransport:
        """Serve a client; the socket does not block."""
        return SocketTransport(self, loop, sock, receiver)

    def watch(self, transport: SocketTransport, before: int, events: int) -> None:
        """A socket that is watched for nothing is not even watched for errors: there would be no end of them."""
        fd = transport.fd
        if not events:
            del self._transports[fd]
            self._epoll.unregister(fd)
        elif before:
            self._epoll.modify(fd, events)
        else:
            self._transports[fd] = transport
            self._epoll.register(fd, events)

    def add_bell(self, turn: Turn, rung: Callable[[], None]) -> int:
        """A descriptor by which threads call `rung`, in a turn like what clients send."""
        fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(fd, select.EPOLLIN)
        self._bells[fd] = turn, rung
        return fd

    def remove_bell(self, fd: int) -> None:
        del self._bells[fd]
        self._epoll.unregister(fd)
        os.close(fd)

    def run(self, timeout: float | None) -> bool:
        """Serve the clients that have sent something, or wait for that. Returns whether asyncio has something to do."""
        is_asyncios = False
        try:
            events = self._poll(timeout, MOST_EVENTS)
        except InterruptedError:
            return True
        transports = self._transports
        for fd, event in events:
            transport = transports.get(fd)
            if transport is not None:
                try:
                    if event == select.EPOLLIN:
                        self._receive(transport)
                    else:
                        self._serve(transport, event)
                except Exception as error:
                    transport.receiver.failed(error)
            elif fd == self._nested:
                is_asyncios = True
            elif fd in self._bells:
                self._answer_bell(fd)
        if self._turns:
            self._settle()
        return is_asyncios

    def _serve(self, transport: SocketTransport, event: int) -> None:
        """There is room to send, or the connection is broken, which whichever call comes first will say."""
        if event & select.EPOLLOUT or not transport.is_reading():
            transport.writable()
        if transport.is_reading() and event & ~select.EPOLLOUT:
            self._receive(transport)

    def _answer_bell(self, fd: int) -> None:
        turn, rung = self._bells[fd]
        os.eventfd_read(fd)
        self._take_part(turn)
        try:
            rung()
        except Exception:
            log.exception("a callback failed")

    def _take_part(self, turn: Turn) -> None:
        if not turn.is_held:
            turn.hold(views_stay=True)
            self._turns.append(turn)

    def _receive(self, transport: SocketTransport) -> None:
        receiver = transport.receiver
        begin = self._filled
        try:
            count = transport.receive_into(self._arena[begin : begin + receiver.receive_bytes])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            transport.lost(error)
            return
        if not count:
            transport.ended()
            return
        self._filled = end = begin + count
        self._take_part(receiver.turn)
        receiver.received(self._arena[begin:end])
        if end >= SETTLED_BYTES:
            self._settle()

    def _settle(self) -> None:
        turns, self._turns = self._turns, []
        for turn in turns:
            turn.settle()
        self._filled = 0


class AppendWaiter(Protocol):
    """The producer of a batch, which gets one call when the append has ended. After its deadline, by the loop's time,
    it does not want to wait for other replicas any longer; one without a deadline (infinity) waits for as long as the
    partition is led here."""

    @property
    def deadline(self) -> float: ...

    def appended(self, base_offset: int, log_start: int) -> None: ...

    def refused(self, code: ErrorCode, message: str, base_offset: int = -1) -> None:
        """`base_offset` is where the batch was written, if it was: others may have it, and commit it yet."""


class FetchWaiter(Protocol):
    def more_to_read(self, place: int) -> None: ...


class Staged(NamedTuple):
    """A batch that has its place in the log, and is written in this turn."""

    base_offset: int
    end_offset: int
    wait_for_all: bool
    waiter: AppendWaiter
    is_idempotent: bool
    size: int


class Partition:
    """A partition that is led here, as the data path sees it. What else there is to it is added by a subclass, which
    says what happens when a write fails, something breaks, or the log has rolled."""

    def __init__(self, topic: str, topic_id: bytes, index: int, log: Log, *, turn: Turn, leader_epoch: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.producers = Producers()
        # The rules set these. While it takes appends it may do without those that wait for all replicas, or without the
        # unconfirmed, which wait for no more than the write.
        self.leader_epoch = leader_epoch
        self.takes_appends = True
        self.takes_all = True
        self.takes_unconfirmed = True
        self.commits_on_write = False
        self.high_watermark = 0
        # Fetches that wait for more, each with the place that this partition has among those that it waits for.
        self.fetch_waiters: dict[FetchWaiter, int] = {}
        self._turn = turn
        # What is to be written in this turn, as the log takes it, and who waits for that.
        self._batches: list[tuple[BatchHeader, memoryview]] = []
        self._staged: list[Staged] = []
        self._staged_end = log.end_offset
        # Those who wait for what is written to be committed, in the order of their offsets.
        self._waiting: deque[tuple[int, int, AppendWaiter]] = deque()
        # These count since the start; the metrics of a topic are the sums of its partitions'.
        self.appended_records = 0
        self.appended_batches = 0
        self.appended_bytes = 0
        self.fetched_bytes = 0

    # A subclass says what these do

    def refusal(self, wait_for_all: bool = False, *, is_written: bool = False) -> tuple[ErrorCode, str]:
        """Why nothing is taken now, or nothing that waits for all replicas; of what is in the log already, why it is
        not waited for."""
        raise NotImplementedError

    def write_failed(self, staged: list[Staged], error: Exception, now_ms: int) -> None:
        """Some or all of these may not have been written. Each of them is answered, or its waiter refused."""
        raise NotImplementedError

    def broke(self, error: Exception, unanswered: Iterable[AppendWaiter] = ()) -> None:
        """Something raised an error that is a fault of ours. Whoever waits is refused."""
        raise NotImplementedError

    def wrote(self, size: int) -> None:
        """So many bytes were written."""

    # Appending: `append` fixes the order, `write_staged` writes, `advance` commits

    def append(
        self, header: BatchHeader, view: memoryview, *, wait_for_all: bool, waiter: AppendWaiter, now_ms: int
    ) -> None:
        """Take a checked batch. The waiter is called when it is written, or committed if it waits for all."""
        offset, is_idempotent = self._staged_end, header.producer_id >= 0
        if (
            not self.takes_appends
            or not (self.takes_all if wait_for_all else self.takes_unconfirmed)
            or (is_idempotent and not self.producers.take_next(header, offset, now_ms))
        ):
            if self._is_answered(header, wait_for_all=wait_for_all, waiter=waiter, now_ms=now_ms):
                return
            # A write that failed meanwhile has taken the end back.
            offset = self._staged_end
            if is_idempotent:
                self.producers.appended(header, offset, now_ms)
        turn = self._turn
        is_written_now = False
        if not turn.views_stay:
            is_written_now = len(view) >= GATHER_BELOW_BYTES
            if not is_written_now:
                # A copy, since the receive buffer is used again before the end of the turn.
                view = memoryview(bytearray(view))
        self._staged_end = end = offset + header.last_offset_delta + 1
        self._batches.append((header, view))
        self._staged.append(_new(Staged, (offset, end, wait_for_all, waiter, is_idempotent, len(view))))
        if is_written_now:
            self.write_staged(now_ms)
        if len(self._staged) <= 1:
            # This is called once for the batches of a turn, and for a large one too: then the flusher is woken.
            turn.stage(self)

    def _is_answered(self, header: BatchHeader, *, wait_for_all: bool, waiter: AppendWaiter, now_ms: int) -> bool:
        """Answer a batch that is in the log already, or may not come into it; False if it is to be appended."""
        seen = self.producers.check(header) if header.producer_id >= 0 else None
        is_taken = self.takes_appends and (self.takes_all if wait_for_all else self.takes_unconfirmed)
        if isinstance(seen, Rejected):
            # While nothing is taken, a batch is out of order only because those before it were refused: with their
            # error a producer sends all of them again, and with this one it may begin a new epoch and double them.
            waiter.refused(*((seen.code, seen.message) if is_taken else self.refusal(wait_for_all)))
        elif seen is not None:
            if seen.base_offset >= self.log.end_offset:
                # The original is of this turn: only once it is written is there anything to be a duplicate of.
                self.write_staged(now_ms)
                if self.log.failure is not None:
                    # It never will be.
                    waiter.refused(*self.refusal(wait_for_all))
                    return True
                return self._is_answered(header, wait_for_all=wait_for_all, waiter=waiter, now_ms=now_ms)
            self._answer(seen.base_offset, seen.base_offset + header.last_offset_delta + 1, wait_for_all, waiter)
        elif not is_taken:
            if header.producer_id >= 0:
                self.producers.refused(header)
            waiter.refused(*self.refusal(wait_for_all))
        else:
            return False
        return True

    def write_staged(self, now_ms: int) -> None:
        """Write the batches of this turn with one call, and answer those who wait for no more than that."""
        if not self._staged:
            return
        batches, staged = self._batches, self._staged
        self._batches, self._staged = [], []
        try:
            base_offset = self.log.append(batches, leader_epoch=self.leader_epoch, now_ms=now_ms)
            assert base_offset == staged[0].base_offset
        except Exception as error:
            self.write_failed(staged, error, now_ms)
        else:
            self.written(staged)

    def written(self, staged: list[Staged]) -> None:
        """These are in the log."""
        size = sum([item.size for item in staged])
        self.appended_bytes += size
        self.appended_batches += len(staged)
        self.appended_records += staged[-1].end_offset - staged[0].base_offset
        if self.commits_on_write:
            self.advance(self.log.end_offset)
        unanswered = iter(staged)
        try:
            for base_offset, end_offset, wait_for_all, waiter, _, _ in unanswered:
                if not wait_for_all or end_offset <= self.high_watermark:
                    waiter.appended(base_offset, self.log.start_offset)
                else:
                    self._answer(base_offset, end_offset, wait_for_all, waiter)
        except Exception as error:
            self.broke(error, [item.waiter for item in unanswered])
            return
        self.wrote(size)

    def _answer(self, base_offset: int, end_offset: int, wait_for_all: bool, waiter: AppendWaiter) -> None:
        if not wait_for_all or end_offset <= self.high_watermark:
            waiter.appended(base_offset, self.log.start_offset)
        elif self.log.failure is not None:
            # No flush will ever reach this offset.
            waiter.refused(*self.refusal(wait_for_all))
        elif not self.takes_all and waiter.deadline < math.inf:
            waiter.refused(*self.refusal(wait_for_all, is_written=True), base_offset)
        else:
            self._waiting.append((end_offset, base_offset, waiter))

    @property
    def has_waiters(self) -> bool:
        """Whether a producer waits for what is written to be committed."""
        return bool(self._waiting)

    @property
    def urgency(self) -> Urgency:
        """How urgent it is to flush what is not flushed yet."""
        if not self._waiting and not self.fetch_waiters:
            return Urgency.NONE
        return flush_urgency(
            high_watermark=self.high_watermark,
            end_offset=self.log.end_offset,
            has_producers=self.has_waiters,
            has_readers=bool(self.fetch_waiters),
        )

    @property
    def failure(self) -> BaseException | None:
        return self.log.failure

    def advance(self, offset: int) -> None:
        """Records before this offset are committed: those who waited for that are answered, and readers may go on."""
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        waiting, log_start = self._waiting, self.log.start_offset
        try:
            while waiting and waiting[0][0] <= offset:
                _, base_offset, waiter = waiting.popleft()
                waiter.appended(base_offset, log_start)
        except Exception as error:
            self.broke(error)
        if self.fetch_waiters:
            self.wake_fetches()

    def end_overdue(self, now: float) -> None:
        """Refuse those who have waited too long. What they wait for may be committed all the same, later."""
        overdue = [entry for entry in self._waiting if entry[2].deadline <= now]
        if overdue:
            gone = {id(entry) for entry in overdue}
            self._waiting = deque(entry for entry in self._waiting if id(entry) not in gone)
            message = "not all in-sync replicas had the records in time: they may have them later"
            self.refuse([waiter for _, _, waiter in overdue], ErrorCode.REQUEST_TIMED_OUT, message)

    def refuse_hurried(self, code: ErrorCode, message: str) -> None:
        """Nothing is committed for now: those that have a deadline are refused at once, and others wait on."""
        hurried = [entry for entry in self._waiting if entry[2].deadline < math.inf]
        self._waiting = deque(entry for entry in self._waiting if entry[2].deadline == math.inf)
        for _, base_offset, waiter in hurried:
            self._refuse(waiter, code, message, base_offset)

    def refuse_waiting(self, code: ErrorCode, message: str, others: Iterable[AppendWaiter] = ()) -> None:
        """Nothing more is committed: producers that wait for that are refused, and learn where the batch was written.
        `others` wait for what was not."""
        # Whether a disk that failed has what was written is not known.
        is_there = code != ErrorCode.KAFKA_STORAGE_ERROR
        written = [(waiter, base_offset if is_there else -1) for _, base_offset, waiter in self._waiting]
        self._waiting.clear()
        self.refuse(others, code, message)
        for waiter, base_offset in written:
            self._refuse(waiter, code, message, base_offset)

    def refuse(self, waiters: Iterable[AppendWaiter], code: ErrorCode, message: str) -> None:
        for waiter in waiters:
            self._refuse(waiter, code, message)

    def _refuse(self, waiter: AppendWaiter, code: ErrorCode, message: str, base_offset: int = -1) -> None:
        try:
            waiter.refused(code, message, base_offset)
        except Exception:
            # The other waiters still have to be called.
            log.exception("a refusal could not be sent", extra={"partition": f"{self.topic}-{self.index}"})

    def truncated(self, end_offset: int, producers: Producers) -> None:
        """The log was cut between two turns, and nothing waits for it any more. `producers` is what is left of them."""
        assert not self._staged, "a turn is settled before the log is cut"
        assert not self._waiting, "whoever waits is refused before the log is cut"
        self._staged_end = end_offset
        self.high_watermark = min(self.high_watermark, end_offset)
        self.producers = producers

    def unstage(self) -> list[AppendWaiter]:
        """Forget what was to be written in this turn; returns those who wait for it."""
        staged, self._staged, self._batches = self._staged, [], []
        self._staged_end = self.log.end_offset
        return [item.waiter for item in staged]

    def wake_fetches(self) -> None:
        waiting, self.fetch_waiters = self.fetch_waiters, {}
        for waiter, place in waiting.items():
            waiter.more_to_read(place)
