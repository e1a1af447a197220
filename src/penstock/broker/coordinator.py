"""A durable machine at work on one partition of an internal topic: loaded from its log, appended to it, and answering
when that is committed."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Generic, Protocol

from penstock.broker.partition import Partition
from penstock.machines.durable import Answer, Decision, Durable, Instant, M
from penstock.protocol.batch import read_header, split
from penstock.protocol.compression import Codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError
from penstock.protocol.records import NewRecord, build, iterate
from penstock.protocol.schema import Message
from penstock.storage.errors import StorageError

log = logging.getLogger(__name__)

LOAD_BYTES: Final = 256 * 1024
# Others get their turn after so many records.
RECORDS_AT_ONCE: Final = 200
# After an append that failed none is tried for so long: each failure costs a reload, and everybody their place.
REST_MS: Final = 1000


class Waiter(Protocol):
    """Whoever asked. It is the token by which the machine knows it."""

    def __hash__(self) -> int: ...

    def reply(self, response: Message) -> None: ...

    def when_gone(self, forget: Callable[[Any], None]) -> None:
        """Let somebody know if this one does not wait any longer."""


class Asking(Protocol):
    @property
    def token(self) -> Any: ...


@dataclass(slots=True, frozen=True)
class Kind(Generic[M]):
    """What distinguishes the machines of one internal topic from those of another."""

    make: Callable[[], M]
    encode: Callable[[Any], tuple[bytes, bytes | None]]
    # None: a record that means nothing to this version and may be skipped.
    decode: Callable[[bytes | None, bytes | None], Any]
    refuse: Callable[[Any, ErrorCode], Message]
    codec: Codec = Codec.NONE


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
    """`start`, then `submit` until `stop`. `turn_ended` is told after each turn in which anything may have changed."""

    def __init__(
        self,
        partition: Partition,
        kind: Kind[M],
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
        self._durable: Durable[M] | None = None
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
        """It is another's now: refuse everybody. Returns what has to be awaited before the log may be closed."""
        self._refuse_all(State.STOPPED)
        self._may_have_more.set()
        return self._loading

    def end_waits(self) -> None:
        """Take no more requests and let nobody wait for others; what waits for the log still gets its answer."""
        self.state = State.STOPPED
        if self._durable is not None:
            self._send(self._durable.end_waits(ErrorCode.NOT_COORDINATOR))

    @property
    def machine(self) -> M | None:
        """To be looked at; None unless it is loaded."""
        return self._durable.machine if self._durable is not None and self.state is State.ACTIVE else None

    @property
    def refusal(self) -> ErrorCode:
        """What requests are answered with that find no machine."""
        return _REFUSALS.get(self.state, ErrorCode.NONE)

    @property
    def parked(self) -> int:
        """Requests that wait for something other than the log."""
        return self._durable.parked if self._durable is not None else 0

    @property
    def uncommitted(self) -> int:
        """Decisions that the log has not committed yet."""
        return self._durable.uncommitted if self._durable is not None else 0

    # Requests, time, and what happens elsewhere

    def submit(self, request: Any, caller: Asking, *, new_member_id: str = "") -> None:
        """The caller's token gets the answer: now, when it is committed, or when others have done their part."""
        durable = self._durable
        if durable is None or self.state is not State.ACTIVE:
            caller.token.reply(self._kind.refuse(request, self.refusal))
            return
        try:
            answers = durable.submit(
                request, caller, self._now(), may_append=self._may_append(), new_member_id=new_member_id
            )
        except Exception:
            self._start_over()
            raise
        self._send(answers)
        if durable.is_parked(caller.token):
            caller.token.when_gone(durable.forget)
        self._end_turn_later()

    def happened(self, decide: Callable[[M, Any], Decision]) -> bool:
        """Let the machine decide about something that is no request. False if it cannot now, and has to be asked
        again."""
        durable, now = self._durable, self._now()
        if durable is None or self.state is not State.ACTIVE:
            return False
        try:
            answers = durable.take(decide(durable.machine, now), now, may_append=self._may_append())
        except Exception as error:
            self._failed(error)
            return False
        self._send(answers or ())
        self._end_turn_later()
        return answers is not None

    def tick_if_due(self) -> None:
        durable, now = self._durable, self._now()
        deadline = self.next_deadline()
        if durable is None or deadline is None or deadline > now.ms:
            return
        try:
            answers = durable.tick(now, may_append=self._may_append())
        except Exception as error:
            self._failed(error)
            return
        self._send(answers)
        self._end_turn_later()

    def next_deadline(self) -> int | None:
        return self._durable.next_deadline() if self._durable is not None and self.state is State.ACTIVE else None

    def shift_deadlines(self, by_ms: int) -> None:
        """The broker itself did not listen for so long."""
        if self._durable is not None:
            self._durable.machine.shift_deadlines(by_ms)

    # The log

    def _may_append(self) -> bool:
        partition = self.partition
        if self._rests_until_ms is not None:
            if self._now().ms < self._rests_until_ms:
                return False
            self._rests_until_ms = None
        return partition.is_open and partition.may_append() is None

    def _end_turn_later(self) -> None:
        if not self._turn_is_scheduled:
            self._turn_is_scheduled = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        """The decisions of a turn share a batch."""
        self._turn_is_scheduled = False
        durable = self._durable
        if durable is not None and durable.has_records:
            try:
                self._append(durable)
            except Exception as error:
                self._failed(error)
        self._turn_ended(self)

    def _append(self, durable: Durable[M]) -> None:
        now_ms = self._now().wall_ms
        encode = self._kind.encode
        records = []
        for record in durable.take_records():
            key, value = encode(record)
            records.append(NewRecord(value, key, (), now_ms))
        view = memoryview(build(records, codec=self._kind.codec))
        waiter = _Append(self, durable)
        self.partition.append(read_header(view), view, wait_for_all=True, waiter=waiter, now_ms=now_ms)

    def appended(self, durable: Durable[M]) -> None:
        """The oldest append of this life of the machine is committed."""
        if durable is not self._durable:
            return
        if self.partition.leader.leader_epoch != self.leader_epoch:
            self.append_failed(durable, "the partition has had another leader since")
            return
        try:
            answers = durable.committed(self._now())
        except Exception as error:
            self._failed(error)
            return
        self._send(answers)

    def append_failed(self, durable: Durable[M], message: str) -> None:
        """What the machine holds for true is not in the log."""
        if durable is self._durable:
            log.error("a coordinator starts over", extra={"partition": self.partition.name, "error": message})
            self._rests_until_ms = self._now().ms + REST_MS
            self._start_over()

    def _failed(self, error: Exception) -> None:
        log.error("a coordinator failed", extra={"partition": self.partition.name}, exc_info=error)
        self._start_over()

    def _start_over(self) -> None:
        """A machine that may not be what its log says is thrown away, and made anew from that."""
        # What is still to be written is a part of that log.
        self.partition.write_staged(self._now().wall_ms)
        if self.state is State.STOPPED:
            self._refuse_all(State.STOPPED)
        elif self.partition.is_open and self.partition.log.failure is None:
            self._refuse_all(State.LOADING)
            self.start()
        else:
            self._refuse_all(State.OFFLINE)

    def _refuse_all(self, state: State) -> None:
        self.state = state
        durable, self._durable = self._durable, None
        if durable is not None:
            self._send(durable.lost(ErrorCode.NOT_COORDINATOR))

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
        durable, now = Durable(machine), self._now()
        try:
            answers = durable.take(machine.loaded(now), now)
            assert not answers, "nobody can have asked yet"
        except Exception:
            log.exception("a coordinator cannot be loaded", extra={"partition": self.partition.name})
            self.state = State.OFFLINE
            return
        self._durable, self.state = durable, State.ACTIVE
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
        """Until the partition has committed more, or we stop."""
        self._may_have_more.clear()
        self.partition.fetch_waiters[self] = None
        await self._may_have_more.wait()
        self.partition.fetch_waiters.pop(self, None)

    def more_to_read(self) -> None:
        self._may_have_more.set()


@dataclass(slots=True, eq=False)
class _Append:
    """Who waits for the batch of a turn."""

    coordinator: Coordinator[Any]
    durable: Durable[Any]

    def appended(self, base_offset: int, log_start: int) -> None:
        self.coordinator.appended(self.durable)

    def refused(self, code: ErrorCode, message: str) -> None:
        self.coordinator.append_failed(self.durable, message)
