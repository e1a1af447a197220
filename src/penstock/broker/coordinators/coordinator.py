"""A coordinator runs a machine on one partition of an internal topic: it loads the machine from the log, appends what
the machine decides, and answers once that is committed."""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Generic, Protocol

from penstock.broker.log_rates import RatedLog
from penstock.broker.partitions.partition import Partition
from penstock.machines.decision_queue import Answer, DecisionQueue, Encoded, Instant, M, MachineDecision, Undecided
from penstock.protocol.batch import read_header, split
from penstock.protocol.compression import Codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError
from penstock.protocol.records import NewRecord, build, iterate
from penstock.protocol.schema import Message
from penstock.storage.errors import StorageError

log = logging.getLogger(__name__)
rated_log = RatedLog(log)

LOAD_BYTES: Final = 256 * 1024
# Records that are loaded in one turn of the loop.
RECORDS_AT_ONCE: Final = 200
# The largest decision, unless a kind of machine has another limit.
MAX_BATCH_BYTES: Final = 1024 * 1024
# After an append that failed none is tried for this time: each failure costs a reload, and all waiters their place.
REST_MS: Final = 1000


class Waiter(Protocol):
    """The caller of a request. It is the token by which the machine knows the caller."""

    def __hash__(self) -> int: ...

    def reply(self, response: Message) -> None: ...

    def when_gone(self, forget: Callable[[Any], None]) -> None:
        """Have `forget` called if this caller does not wait any longer."""


class Asking(Protocol):
    @property
    def token(self) -> Any: ...


@dataclass(slots=True, frozen=True)
class MachineKind(Generic[M]):
    """What distinguishes the machines of one internal topic from those of another."""

    make: Callable[[], M]
    encode: Callable[[Any], Encoded]
    # Returns None for a record that means nothing to this version and may be skipped.
    decode: Callable[[bytes | None, bytes | None], Any]
    refuse: Callable[[Any, ErrorCode], Message]
    codec: Codec = Codec.NONE
    max_batch_bytes: int = MAX_BATCH_BYTES
    # Requests whose callers wait for the log for no longer than this.
    impatient: frozenset[type] = frozenset()
    patience_ms: float = math.inf


class State(Enum):
    LOADING = auto()
    ACTIVE = auto()
    # The log takes nothing more, or cannot be read: that needs an operator.
    OFFLINE = auto()
    STOPPED = auto()


_REFUSALS: Final = {
    State.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    State.OFFLINE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    State.STOPPED: ErrorCode.NOT_COORDINATOR,
}


class Coordinator(Generic[M]):
    """`start`, then `submit` until `stop`. `turn_ended` is called after each turn that may have changed anything."""

    def __init__(
        self,
        partition: Partition,
        kind: MachineKind[M],
        *,
        now: Callable[[], Instant],
        loaded: Callable[["Coordinator[M]"], None],
        turn_ended: Callable[["Coordinator[M]"], None],
    ) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader.leader_epoch
        self.state = State.LOADING
        self._kind = kind
        self._now = now
        self._loaded = loaded
        self._turn_ended = turn_ended
        self._loop = asyncio.get_running_loop()
        self._queue: DecisionQueue[M] | None = None
        self._loading: asyncio.Task[None] | None = None
        self._may_have_more = asyncio.Event()
        self._turn_is_scheduled = False
        self._rests_until_ms: int | None = None

    # Life

    def start(self) -> None:
        """Load what the log holds. An empty one is loaded when this returns."""
        self.state = State.LOADING
        if self.partition.log.start_offset == self.partition.log.end_offset:
            self._activate(self._kind.make())
        else:
            self._loading = asyncio.create_task(self._load(), name=f"penstock-load-{self.partition.name}")

    def stop(self) -> "asyncio.Task[None] | None":
        """Refuse all callers: another broker leads now. Returns what has to end before the log is closed."""
        self._refuse_all(State.STOPPED)
        self._may_have_more.set()
        return self._loading

    def end_waits(self) -> None:
        """Take no more requests and end all waits for other callers; what waits for the log still gets its answer."""
        self.state = State.STOPPED
        if self._queue is not None:
            self._send(self._queue.end_waits(ErrorCode.NOT_COORDINATOR))

    @property
    def machine(self) -> M | None:
        """The machine, to be read only; None unless it is loaded."""
        return self._queue.machine if self._queue is not None and self.state is State.ACTIVE else None

    @property
    def refusal(self) -> ErrorCode:
        """The error for requests while there is no machine."""
        return _REFUSALS.get(self.state, ErrorCode.NONE)

    @property
    def parked(self) -> int:
        """Requests that wait for something other than the log."""
        return self._queue.parked if self._queue is not None else 0

    @property
    def uncommitted(self) -> int:
        """Decisions that the log has not committed yet."""
        return self._queue.uncommitted if self._queue is not None else 0

    # Requests, time, and what happens elsewhere

    def submit(self, request: Any, caller: Asking, *, new_member_id: str = "") -> None:
        """The caller's token gets the answer: now, when it is committed, or when other callers have done their part."""
        queue = self._queue
        if queue is None or self.state is not State.ACTIVE:
            caller.token.reply(self._kind.refuse(request, self.refusal))
            return
        try:
            answers = queue.submit(
                request, caller, self._now(), may_append=self._may_append(), new_member_id=new_member_id
            )
        except Undecided as error:
            self._undecided(error)
            caller.token.reply(self._kind.refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        except Exception:
            self._start_over()
            raise
        self._send(answers)
        if queue.is_parked(caller.token):
            caller.token.when_gone(queue.forget)
        self._end_turn_later()

    def happened(self, decide: Callable[[M, Any], MachineDecision]) -> bool:
        """Let the machine decide about an event that is no request. False if it cannot now: call again later."""
        queue, now = self._queue, self._now()
        if queue is None or self.state is not State.ACTIVE:
            return False
        try:
            decision = decide(queue.machine, now)
        except Exception as error:
            self._undecided(error)
            return False
        try:
            answers = queue.take(decision, now, may_append=self._may_append())
        except Exception as error:
            self._failed(error)
            return False
        self._send(answers or ())
        self._end_turn_later()
        return answers is not None

    def tick_if_due(self) -> None:
        queue, now = self._queue, self._now()
        deadline = self.next_deadline()
        if queue is None or deadline is None or deadline > now.ms:
            return
        try:
            answers = queue.tick(now, may_append=self._may_append())
        except Exception as error:
            self._failed(error)
            return
        self._send(answers)
        self._end_turn_later()

    def next_deadline(self) -> int | None:
        return self._queue.next_deadline() if self._queue is not None and self.state is State.ACTIVE else None

    def shift_deadlines(self, by_ms: int) -> None:
        """Move all deadlines by the time in which the broker itself did not listen."""
        if self._queue is not None:
            self._queue.machine.shift_deadlines(by_ms)

    # The log

    @property
    def _leads(self) -> bool:
        return self.partition.is_led and self.partition.leader_epoch == self.leader_epoch

    def _may_append(self) -> bool:
        partition = self.partition
        if self._rests_until_ms is not None:
            if self._now().ms < self._rests_until_ms:
                return False
            self._rests_until_ms = None
        return self._leads and partition.may_append() is None

    def _end_turn_later(self) -> None:
        if not self._turn_is_scheduled:
            self._turn_is_scheduled = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        """Append the decisions of a turn, in one batch or as many as they need."""
        self._turn_is_scheduled = False
        queue = self._queue
        try:
            # An append that fails at once leaves nothing to append.
            while queue is not None and queue.has_records:
                self._append(queue)
        except Exception as error:
            self._failed(error)
        self._turn_ended(self)

    def _append(self, queue: DecisionQueue[M]) -> None:
        now_ms = self._now().wall_ms
        records = [NewRecord(value, key, (), now_ms) for key, value in queue.take_records()]
        view = memoryview(build(records, codec=self._kind.codec))
        waiter = _Append(self, queue)
        self.partition.append(read_header(view), view, wait_for_all=True, waiter=waiter, now_ms=now_ms)

    def appended(self, queue: DecisionQueue[M]) -> None:
        """The oldest append of this life of the machine is committed."""
        if queue is not self._queue:
            return
        if not self._leads:
            self.append_failed(queue, "the partition has had another leader since")
            return
        try:
            answers = queue.committed(self._now())
        except Exception as error:
            self._failed(error)
            return
        self._send(answers)

    def append_failed(self, queue: DecisionQueue[M], message: str) -> None:
        """The machine holds decisions that are not in the log: load it anew."""
        if queue is self._queue:
            facts = {"partition": self.partition.name, "error": message}
            rated_log.error("a coordinator starts over", owner=self, extra=facts)
            self._rests_until_ms = self._now().ms + REST_MS
            self._start_over()

    def _undecided(self, error: Exception) -> None:
        """Log a bug that has left the machine as it was: only the caller that met it is refused."""
        facts = {"partition": self.partition.name}
        rated_log.error("a coordinator could not decide", owner=self, extra=facts, exc_info=error)

    def _failed(self, error: Exception) -> None:
        facts = {"partition": self.partition.name}
        rated_log.error("a coordinator failed", owner=self, extra=facts, exc_info=error)
        self._start_over()

    def _start_over(self) -> None:
        """Drop a machine that may differ from its log, and load it from the log again."""
        # Batches that are still to be written are a part of that log.
        self.partition.write_staged(self._now().wall_ms)
        if self.state is State.STOPPED or not self._leads:
            self._refuse_all(State.STOPPED)
        elif self.partition.log.failure is None:
            self._refuse_all(State.LOADING)
            self.start()
        else:
            self._refuse_all(State.OFFLINE)

    def _refuse_all(self, state: State) -> None:
        self.state = state
        queue, self._queue = self._queue, None
        if queue is not None:
            self._send(queue.lost(ErrorCode.NOT_COORDINATOR))

    @staticmethod
    def _send(answers: Iterable[Answer]) -> None:
        for token, response in answers:
            token.reply(response)  # type: ignore[attr-defined]

    # Loading

    async def _load(self) -> None:
        name = self.partition.name
        began = self._loop.time()
        machine = self._kind.make()
        try:
            count = await self._replay(machine)
        except Exception as error:
            is_known = isinstance(error, OSError | StorageError | DecodeError)
            log.error(
                "a coordinator cannot be loaded",
                extra={"partition": name, "error": str(error)},
                exc_info=None if is_known else error,
            )
            self.state = State.OFFLINE if self.state is State.LOADING else self.state
            return
        if self.state is State.LOADING:
            self._activate(machine)
            seconds = round(self._loop.time() - began, 3)
            log.debug("loaded a coordinator", extra={"partition": name, "records": count, "seconds": seconds})

    def _activate(self, machine: M) -> None:
        kind, now = self._kind, self._now()
        queue = DecisionQueue(
            machine,
            kind.encode,
            max_batch_bytes=kind.max_batch_bytes,
            impatient=kind.impatient,
            patience_ms=kind.patience_ms,
        )
        try:
            answers = queue.take(machine.loaded(now), now)
            assert not answers, "nobody can have asked yet"
        except Exception:
            log.exception("a coordinator cannot be loaded", extra={"partition": self.partition.name})
            self.state = State.OFFLINE
            return
        self._queue, self.state = queue, State.ACTIVE
        self._loaded(self)
        self._end_turn_later()

    async def _replay(self, machine: M) -> int:
        """Apply everything in the log once it is committed; returns how many records that was."""
        partition, count = self.partition, 0
        offset = partition.log.start_offset
        while self.state is State.LOADING and offset < partition.log.end_offset:
            data = await self._read(offset)
            if data is None:
                await self._wait_for_more()
                continue
            for header, view in split(data):
                if not header.is_control:
                    for record in iterate(view):
                        if record.offset >= offset and (change := self._kind.decode(record.key, record.value)):
                            machine.apply(change)
                        count += 1
                        if count % RECORDS_AT_ONCE == 0:
                            await asyncio.sleep(0)
                offset = header.next_offset
        return count

    async def _read(self, offset: int) -> memoryview | None:
        found = self.partition.locate(offset, LOAD_BYTES, at_least_one=True)
        if found is None:
            return None
        try:
            if not found.is_ready:
                await self._loop.run_in_executor(None, found.warm)
            return memoryview(found.read())
        finally:
            found.release()

    async def _wait_for_more(self) -> None:
        """Wait until the partition has committed more, or the coordinator stops."""
        self._may_have_more.clear()
        self.partition.fetch_waiters[self] = 0
        await self._may_have_more.wait()
        self.partition.fetch_waiters.pop(self, None)

    def more_to_read(self, place: int) -> None:
        self._may_have_more.set()


@dataclass(slots=True, eq=False)
class _Append:
    """Waits for the batch of a turn."""

    coordinator: Coordinator[Any]
    queue: DecisionQueue[Any]
    # It waits for as long as the partition is led here: also while too few replicas are in sync.
    deadline: float = math.inf

    def appended(self, base_offset: int, log_start: int) -> None:
        self.coordinator.appended(self.queue)

    def refused(self, code: ErrorCode, message: str, base_offset: int = -1) -> None:
        self.coordinator.append_failed(self.queue, message)
