"""A durable machine at work: on a partition of a real broker, with a machine that does no more than count."""

import errno
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.broker.coordinators.coordinator import RECORDS_AT_ONCE, REST_MS, Coordinator, MachineKind, State
from penstock.broker.partitions.partition import Partition
from penstock.machines.decision_queue import MAX_UNCOMMITTED
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.groups import HeartbeatResponse
from tests.broker.harness import FakeClock, GatedFiles, Node, batch, in_loop, records_of, running, turns, until
from tests.broker.partitions.images import sole_replica
from tests.machines.counter import (
    TIMEOUT_MS,
    Add,
    AddEach,
    Ask,
    At,
    By,
    Counter,
    Fail,
    Ping,
    WaitFor,
    decode,
    encode,
)

# Internal by its name: the last of a disk's space is for such topics.
TOPIC = "__counts"
KIND = MachineKind(make=Counter, encode=encode, decode=decode, refuse=Counter.refuse)


class Asker:
    """Somebody who asks and takes note of the answer. It must not come twice."""

    def __init__(self) -> None:
        self.sum: int | None = None
        self.error: ErrorCode | None = None
        self.forget: Callable[[Any], None] | None = None

    def reply(self, response: Message) -> None:
        assert isinstance(response, HeartbeatResponse)
        assert not self.is_answered
        if response.error_code:
            self.error = ErrorCode(response.error_code)
        else:
            self.sum = response.throttle_time_ms

    def when_gone(self, forget: Callable[[Any], None]) -> None:
        self.forget = forget

    @property
    def is_answered(self) -> bool:
        return self.sum is not None or self.error is not None


class Bench:
    """A coordinator under test, and the broker around it."""

    def __init__(self, node: Node, clock: FakeClock) -> None:
        self.node = node
        self.clock = clock
        self.loads = 0
        self.turns = 0
        self.coordinator = self.make()

    @property
    def partition(self) -> Partition:
        return self.node.partition(TOPIC)

    @property
    def counter(self) -> Counter:
        assert self.coordinator.machine is not None
        return self.coordinator.machine

    def make(self, kind: MachineKind[Counter] = KIND) -> Coordinator[Counter]:
        return Coordinator(
            self.partition,
            kind,
            now=lambda: At(self.clock.monotonic_ms(), self.clock.now_ms()),
            loaded=self._loaded,
            turn_ended=self._turn_ended,
        )

    def ask(self, request: object) -> Asker:
        asker = Asker()
        self.coordinator.submit(request, By(asker))
        return asker

    async def answered(self, request: object) -> Asker:
        asker = self.ask(request)
        await until(lambda: asker.is_answered)
        return asker

    def _loaded(self, coordinator: Coordinator[Counter]) -> None:
        self.loads += 1

    def _turn_ended(self, coordinator: Coordinator[Counter]) -> None:
        self.turns += 1


@asynccontextmanager
async def bench(files: GatedFiles | None = None, *, start: bool = True) -> AsyncIterator[Bench]:
    clock = FakeClock()
    async with running(files=files, clock=clock) as node:
        await (await node.connect()).create_topic(TOPIC)
        made = Bench(node, clock)
        if start:
            made.coordinator.start()
        yield made
        if files is not None:
            files.gate.set()
        loading = made.coordinator.stop()
        if loading is not None:
            await loading


async def stored(node: Node) -> list[tuple[bytes | None, bytes | None]]:
    """What the log holds, as clients read it."""
    data = await (await node.connect()).fetch(TOPIC)
    return [(record.key, record.value) for record in records_of(data)]


@in_loop
async def test_a_reply_comes_when_its_records_are_flushed_and_not_before() -> None:
    files = GatedFiles()
    async with bench(files) as it:
        files.gate.clear()
        asker = it.ask(Add(3))
        await until(lambda: files.waiting)
        await turns()
        assert it.counter.sum == 3
        assert not asker.is_answered
        files.gate.set()
        await until(lambda: asker.is_answered)
        assert asker.sum == 3
        assert await stored(it.node) == [(b"added", b"3")]


@in_loop
async def test_the_decisions_of_one_turn_are_one_batch() -> None:
    async with bench() as it:
        askers = [it.ask(Add(1)) for _ in range(10)]
        await until(lambda: all(asker.is_answered for asker in askers))
        assert [asker.sum for asker in askers] == list(range(1, 11))
        assert len(list(it.partition.log.headers(0))) == 1


@in_loop
async def test_a_question_waits_for_what_it_would_reveal_and_a_ping_does_not() -> None:
    files = GatedFiles()
    async with bench(files) as it:
        files.gate.clear()
        it.ask(Add(3))
        await until(lambda: files.waiting)
        question, ping = it.ask(Ask()), it.ask(Ping())
        assert ping.sum == 0
        await turns()
        assert not question.is_answered
        files.gate.set()
        await until(lambda: question.is_answered)
        assert question.sum == 3


@in_loop
async def test_an_empty_log_is_loaded_at_once_and_a_full_one_is_not() -> None:
    async with bench() as it:
        assert it.coordinator.state is State.ACTIVE
        for _ in range(3):
            await it.answered(Add(1))
        it.coordinator.stop()
        it.coordinator = it.make()
        it.coordinator.start()
        assert it.coordinator.state is State.LOADING
        assert it.coordinator.machine is None
        assert it.ask(Ask()).error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await until(lambda: it.coordinator.state is State.ACTIVE)
        assert (await it.answered(Ask())).sum == 3
        assert it.counter.loaded_at == At(it.clock.monotonic_ms(), it.clock.now_ms())
        assert it.loads == 2


@in_loop
async def test_loading_lets_others_have_their_turn() -> None:
    async with bench() as it:
        for _ in range(5):
            askers = [it.ask(Add(1)) for _ in range(RECORDS_AT_ONCE)]
            await until(lambda askers=askers: all(asker.is_answered for asker in askers))  # type: ignore[misc]
        it.coordinator.stop()
        it.coordinator = it.make()
        it.coordinator.start()
        seen = 0
        while it.coordinator.state is State.LOADING:
            await turns(1)
            seen += 1
        assert seen >= 5
        assert it.counter.sum == 5 * RECORDS_AT_ONCE


@in_loop
async def test_loading_waits_until_all_of_the_log_is_committed() -> None:
    files = GatedFiles()
    async with bench(files) as it:
        await it.answered(Add(1))
        files.gate.clear()
        it.ask(Add(2))
        await until(lambda: it.partition.log.end_offset == 2)
        it.coordinator.stop()
        it.coordinator = it.make()
        it.coordinator.start()
        await until(lambda: it.partition.fetch_waiters)
        assert it.coordinator.state is State.LOADING
        files.gate.set()
        await until(lambda: it.coordinator.state is State.ACTIVE)
        assert it.counter.sum == 3
        assert not it.partition.fetch_waiters


@in_loop
async def test_a_stop_while_loading_waits_for_nothing() -> None:
    files = GatedFiles()
    async with bench(files) as it:
        await it.answered(Add(1))
        files.gate.clear()
        it.ask(Add(2))
        await until(lambda: it.partition.log.end_offset == 2)
        it.coordinator.stop()
        it.coordinator = it.make()
        it.coordinator.start()
        await until(lambda: it.partition.fetch_waiters)
        loading = it.coordinator.stop()
        assert loading is not None
        await loading
        assert it.coordinator.state is State.STOPPED
        assert it.ask(Ping()).error == ErrorCode.NOT_COORDINATOR


@in_loop
async def test_records_that_mean_nothing_to_this_version_are_skipped() -> None:
    async with bench(start=False) as it:
        client = await it.node.connect()
        await client.produce(TOPIC, batch(b"unheard of", b"of no type"))
        it.coordinator.start()
        await until(lambda: it.coordinator.state is State.ACTIVE)
        assert it.counter.sum == 0


@in_loop
async def test_a_log_that_cannot_be_read_is_for_the_operator(caplog: pytest.LogCaptureFixture) -> None:
    def unreadable(key: bytes | None, value: bytes | None) -> None:
        raise ValueError("written by a later version")

    async with bench() as it:
        await it.answered(Add(1))
        it.coordinator.stop()
        it.coordinator = it.make(MachineKind(Counter, encode, unreadable, Counter.refuse))
        with caplog.at_level(logging.ERROR):
            it.coordinator.start()
            await until(lambda: it.coordinator.state is State.OFFLINE)
        assert "cannot be loaded" in caplog.text
        assert it.ask(Ping()).error == ErrorCode.COORDINATOR_NOT_AVAILABLE


@in_loop
async def test_an_append_that_fails_drops_the_machine_and_reloads_it() -> None:
    async with bench(GatedFiles()) as it:
        await it.answered(Add(1))
        waiting = it.ask(WaitFor(100))
        it.node.memory.fail("pwritev", 1, OSError(errno.ENOSPC, "disk full"))
        failed = await it.answered(Add(5))
        assert failed.error == ErrorCode.NOT_COORDINATOR
        assert waiting.error == ErrorCode.NOT_COORDINATOR
        await until(lambda: it.coordinator.state is State.ACTIVE)
        assert (await it.answered(Ask())).sum == 1
        assert it.ask(Add(1)).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        it.clock.advance(REST_MS)
        it.node.broker.services.disk.check()
        assert (await it.answered(Add(1))).sum == 2


@in_loop
async def test_a_failed_sync_takes_the_coordinator_offline_with_its_log() -> None:
    files = GatedFiles()
    async with bench(files) as it:
        await it.answered(Add(1))
        files.failing = OSError(errno.EIO, "input/output error")
        failed = await it.answered(Add(1))
        assert failed.error == ErrorCode.NOT_COORDINATOR
        assert it.coordinator.state is State.OFFLINE
        assert it.ask(Ping()).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        files.failing = None


@in_loop
async def test_a_machine_that_raises_while_it_changes_is_dropped_and_reloaded() -> None:
    files = GatedFiles()
    async with bench(files) as it:
        await it.answered(Add(1))
        # Of this turn and not written yet: it is in the log all the same when that is read again.
        early = it.ask(Add(2))
        await turns(1)
        late = it.ask(Add(4))
        with pytest.raises(RuntimeError, match="on purpose"):
            it.ask(Fail(later=True))
        assert early.error == late.error == ErrorCode.NOT_COORDINATOR
        await until(lambda: it.coordinator.state is State.ACTIVE)
        assert it.counter.sum == 3


@pytest.mark.parametrize("broken", [Fail(), Add(-1)], ids=["decide", "encode"])
def test_what_cannot_be_decided_or_written_is_refused_to_its_caller_alone(
    broken: object, caplog: pytest.LogCaptureFixture
) -> None:
    @in_loop
    async def run() -> None:
        async with bench() as it:
            await it.answered(Add(1))
            waiting, adding = it.ask(WaitFor(3)), it.ask(Add(1))
            with caplog.at_level(logging.ERROR):
                assert it.ask(broken).error == ErrorCode.UNKNOWN_SERVER_ERROR
            assert "could not decide" in caplog.text
            await until(lambda: adding.is_answered)
            assert (await it.answered(Add(1))).sum == waiting.sum == 3
            assert it.loads == 1

    run()


@in_loop
async def test_what_is_too_large_for_a_batch_is_refused_to_its_caller_alone() -> None:
    async with bench() as it:
        it.coordinator.stop()
        it.coordinator = it.make(MachineKind(Counter, encode, decode, Counter.refuse, max_batch_bytes=1_000))
        it.coordinator.start()
        adding = it.ask(Add(1))
        assert it.ask(AddEach((1,) * 100)).error == ErrorCode.MESSAGE_TOO_LARGE
        await until(lambda: adding.is_answered)
        assert (await it.answered(AddEach((1,) * 100, split=True))).sum == 101
        sizes = [header.size for header in it.partition.log.headers(0)]
        assert len(sizes) > 4
        assert max(sizes) <= 1_000
        assert it.loads == 2
        assert len(await stored(it.node)) == 101


@in_loop
async def test_beyond_the_backlog_requests_are_refused_until_the_log_has_caught_up() -> None:
    files = GatedFiles()
    async with bench(files) as it:
        await it.answered(Add(1))
        files.gate.clear()
        askers = [it.ask(Add(1)) for _ in range(MAX_UNCOMMITTED)]
        await until(lambda: files.waiting)
        assert it.ask(Add(1)).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert it.ask(Ping()).sum == 0
        files.gate.set()
        await until(lambda: all(asker.is_answered for asker in askers))
        assert (await it.answered(Add(1))).sum == MAX_UNCOMMITTED + 2


@in_loop
async def test_time_that_is_up_is_noticed_when_the_clock_is_looked_at() -> None:
    async with bench() as it:
        asker = it.ask(WaitFor(50))
        it.clock.advance(TIMEOUT_MS - 1)
        it.coordinator.tick_if_due()
        await turns()
        assert not asker.is_answered
        it.clock.advance(1)
        it.coordinator.tick_if_due()
        await until(lambda: asker.is_answered)
        assert asker.sum == 100


@in_loop
async def test_a_stalled_log_costs_nobody_any_time() -> None:
    files = GatedFiles()
    async with bench(files) as it:
        await it.answered(Add(1))
        waiting = it.ask(WaitFor(50))
        files.gate.clear()
        stalled = it.ask(Add(1))
        await until(lambda: files.waiting)
        it.clock.advance(60_000)
        it.coordinator.tick_if_due()
        files.gate.set()
        await until(lambda: stalled.is_answered)
        it.coordinator.tick_if_due()
        await turns()
        assert not waiting.is_answered
        assert it.coordinator.next_deadline() == TIMEOUT_MS + 60_000


@in_loop
async def test_a_caller_who_goes_away_is_forgotten() -> None:
    async with bench() as it:
        gone = it.ask(WaitFor(5))
        assert gone.forget is not None
        gone.forget(gone)
        assert it.counter.waiting == {}
        assert (await it.answered(Add(5))).sum == 5
        assert not gone.is_answered


@in_loop
async def test_the_end_refuses_who_waits_for_others_and_answers_who_waits_for_the_log() -> None:
    files = GatedFiles()
    async with bench(files) as it:
        await it.answered(Add(1))
        waiting = it.ask(WaitFor(50))
        files.gate.clear()
        adding = it.ask(Add(1))
        await until(lambda: files.waiting)
        it.coordinator.end_waits()
        assert waiting.error == ErrorCode.NOT_COORDINATOR
        assert it.ask(Ping()).error == ErrorCode.NOT_COORDINATOR
        assert not adding.is_answered
        files.gate.set()
        await until(lambda: adding.is_answered)
        assert adding.sum == 2


@in_loop
async def test_a_commit_in_another_leader_epoch_counts_for_nothing() -> None:
    files = GatedFiles()
    async with bench(files) as it:
        await it.answered(Add(1))
        files.gate.clear()
        asker = it.ask(Add(1))
        await until(lambda: files.waiting)
        it.partition.leader_epoch += 1
        files.gate.set()
        await until(lambda: asker.is_answered)
        assert asker.error == ErrorCode.NOT_COORDINATOR


@in_loop
async def test_what_happens_elsewhere_is_decided_like_a_request() -> None:
    async with bench() as it:
        assert it.coordinator.happened(lambda machine, now: machine.decide(Add(7), By(Asker()), now))
        await until(lambda: it.partition.high_watermark == 1)
        assert it.counter.sum == 7
        assert not it.coordinator.happened(lambda machine, now: machine.decide(Fail(), By(Asker()), now))
        assert (it.counter.sum, it.loads) == (7, 1)
        it.coordinator.end_waits()
        assert not it.coordinator.happened(lambda machine, now: machine.decide(Add(7), By(Asker()), now))


@in_loop
async def test_a_coordinator_whose_partition_resigns_stops_and_sends_its_callers_away() -> None:
    files = GatedFiles()
    async with bench(files) as it:
        await it.answered(Add(1))
        files.gate.clear()
        partition, waiting = it.partition, it.ask(Add(1))
        await until(lambda: partition.has_waiters)
        partition.resign(it.clock.now_ms())
        assert waiting.error == ErrorCode.NOT_COORDINATOR
        assert it.coordinator.state is State.STOPPED
        assert it.ask(Add(1)).error == ErrorCode.NOT_COORDINATOR
        # In its next epoch the partition has another coordinator: this one is not to write again.
        image = sole_replica(partition.index, partition.leader_epoch + 2)
        partition.lead(image, broker_epoch=1, min_isr=None, now_ms=0)
        assert it.ask(Add(1)).error == ErrorCode.NOT_COORDINATOR
