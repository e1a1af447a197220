"""Turns of the engine: what comes together is settled together, and what was received stays until then."""

import asyncio
import math
import socket

import pytest

from penstock.broker.engine import engine_of, plain
from penstock.broker.engine.turn import Turn
from penstock.machines.producers import Producers
from penstock.protocol.batch import split
from penstock.protocol.error_codes import ErrorCode
from penstock.storage.data_directory import DataDirectory
from penstock.storage.files.memory import MemoryFiles
from tests.broker.engine.stage import manual_turn
from tests.broker.engine.test_transport import Receiver, closed, connected
from tests.broker.harness import batch
from tests.waiting import in_loop, until


class Keeping(Receiver):
    """Keeps views of what it received, and what they hold when the turn is settled."""

    def __init__(self, turn: Turn, size: int = 1000) -> None:
        super().__init__(turn)
        self.receive_bytes = size
        self.views: list[memoryview] = []
        self.settled: list[bytes] = []

    def received(self, data: memoryview) -> None:
        assert self.turn.is_held
        assert self.turn.views_stay
        if not self.views:
            self.turn.cork(self)
        self.views.append(data)

    def send_outbox(self) -> None:
        self.settled += [bytes(view) for view in self.views]
        self.views.clear()


class CountedTurn(Turn):
    settled = 0

    def settle(self) -> None:
        self.settled += 1
        super().settle()


@in_loop
async def test_what_several_clients_send_in_one_turn_is_settled_once_and_stays_until_then() -> None:
    turn = CountedTurn(asyncio.get_running_loop(), lambda: 0)
    receivers = [Keeping(turn) for _ in range(5)]
    with (
        connected(receivers[0]) as (_, _, a),
        connected(receivers[1]) as (_, _, b),
        connected(receivers[2]) as (_, _, c),
    ):
        for number, far in enumerate((a, b, c)):
            far.send(b"%d" % number * 1000)
        await until(lambda: all(receiver.settled for receiver in receivers[:3]))
        assert turn.settled == 1
        assert [receiver.settled for receiver in receivers[:3]] == [[b"%d" % number * 1000] for number in range(3)]
        for receiver in receivers[:3]:
            receiver.transport.abort()
            await closed(receiver)


@in_loop
async def test_a_turn_that_receives_much_is_settled_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plain, "SETTLED_BYTES", 1500)
    turn = CountedTurn(asyncio.get_running_loop(), lambda: 0)
    receivers = [Keeping(turn) for _ in range(3)]
    with (
        connected(receivers[0]) as (_, _, a),
        connected(receivers[1]) as (_, _, b),
        connected(receivers[2]) as (_, _, c),
    ):
        for number, far in enumerate((a, b, c)):
            far.send(b"%d" % number * 1000)
        await until(lambda: all(receiver.settled for receiver in receivers))
        assert turn.settled == 2
        assert [receiver.settled for receiver in receivers] == [[b"%d" % number * 1000] for number in range(3)]
        for receiver in receivers:
            receiver.transport.abort()
            await closed(receiver)


@in_loop
async def test_brokers_on_one_loop_have_turns_of_their_own() -> None:
    loop = asyncio.get_running_loop()
    one, other = CountedTurn(loop, lambda: 0), CountedTurn(loop, lambda: 0)
    first, second = Keeping(one), Keeping(other)
    with connected(first) as (_, _, a), connected(second) as (_, _, b):
        a.send(b"x")
        await until(lambda: first.settled)
        assert (one.settled, other.settled) == (1, 0)
        b.send(b"y")
        await until(lambda: second.settled)
        assert (one.settled, other.settled) == (1, 1)
        for receiver in (first, second):
            receiver.transport.abort()
            await closed(receiver)


@in_loop
async def test_a_client_that_is_closed_by_another_one_s_request_is_not_read_in_that_turn() -> None:
    turn = Turn(asyncio.get_running_loop(), lambda: 0)
    first, second = Receiver(turn), Receiver(turn)

    def close_both(data: memoryview) -> None:
        first.transport.abort()
        second.transport.abort()

    first.received = second.received = close_both  # type: ignore[method-assign]
    with connected(first) as (_, _, a), connected(second) as (_, _, b):
        a.send(b"x")
        b.send(b"y")
        await closed(first)
        await closed(second)
        assert not first.failures + second.failures


# What the data path knows of a partition


class Waiter:
    def __init__(self, deadline: float = math.inf) -> None:
        self.deadline = deadline
        self.outcomes: list[int | ErrorCode] = []

    def appended(self, base_offset: int, log_start: int) -> None:
        self.outcomes.append(base_offset)

    def refused(self, code: ErrorCode, message: str, base_offset: int = -1) -> None:
        self.outcomes.append(code)


class Refusing(plain.Partition):
    def refusal(self, wait_for_all: bool = False, *, is_written: bool = False) -> tuple[ErrorCode, str]:
        return ErrorCode.NOT_ENOUGH_REPLICAS, "not now"


class Setting:
    def __init__(self) -> None:
        self.turn, _ = manual_turn()
        self.directory = DataDirectory("/data", MemoryFiles())
        self.log = self.directory.log("orders", 0)
        self.partition = Refusing("orders", bytes(16), 0, self.log, turn=self.turn, leader_epoch=3)

    def append(self, data: bytearray, *, wait_for_all: bool = False, deadline: float = math.inf) -> Waiter:
        [(header, view)] = split(data)
        waiter = Waiter(deadline)
        self.partition.append(header, view, wait_for_all=wait_for_all, waiter=waiter, now_ms=0)
        return waiter


def test_nothing_is_committed_but_by_the_rules_unless_they_leave_it_to_the_write() -> None:
    setting = Setting()
    one, all_ = setting.append(batch(b"a")), setting.append(batch(b"b"), wait_for_all=True)
    setting.turn.settle()
    assert (one.outcomes, all_.outcomes, setting.partition.high_watermark) == ([0], [], 0)
    setting.partition.advance(2)
    assert (all_.outcomes, setting.partition.high_watermark) == ([1], 2)
    setting.partition.advance(1)
    assert setting.partition.high_watermark == 2
    setting.partition.commits_on_write = True
    at_once = setting.append(batch(b"c"), wait_for_all=True)
    setting.turn.settle()
    assert (at_once.outcomes, setting.partition.high_watermark) == ([2], 3)


def test_what_the_rules_do_not_let_in_is_refused_with_their_reason_and_duplicates_are_answered() -> None:
    setting = Setting()
    first = batch(b"a", producer=(7, 0, 0))
    setting.append(bytearray(first))
    setting.turn.settle()
    setting.partition.takes_all = False
    assert setting.append(batch(b"b"), wait_for_all=True).outcomes == [ErrorCode.NOT_ENOUGH_REPLICAS]
    taken = setting.append(batch(b"b"))
    setting.turn.settle()
    assert taken.outcomes == [1]
    setting.partition.takes_appends = False
    assert setting.append(batch(b"c")).outcomes == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert setting.append(batch(b"c", producer=(7, 0, 1))).outcomes == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert setting.append(bytearray(first)).outcomes == [0]
    setting.partition.takes_appends = True
    again = setting.append(batch(b"c", producer=(7, 0, 1)))
    setting.turn.settle()
    assert again.outcomes == [2], "what was refused left no trace in the producer's window"


def test_of_a_new_producer_no_batch_overtakes_one_that_was_refused() -> None:
    setting = Setting()
    setting.partition.takes_all = False
    first, second = batch(b"a", producer=(7, 0, 0)), batch(b"b", producer=(7, 0, 1))
    assert setting.append(bytearray(first), wait_for_all=True).outcomes == [ErrorCode.NOT_ENOUGH_REPLICAS]
    # The second one was sent before the answer to the first.
    setting.partition.takes_all = True
    assert setting.append(bytearray(second), wait_for_all=True).outcomes == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    taken = [setting.append(first, wait_for_all=True), setting.append(second, wait_for_all=True)]
    setting.turn.settle()
    setting.partition.advance(2)
    assert [each.outcomes for each in taken] == [[0], [1]]


def test_a_batch_after_one_that_was_refused_gets_its_error_and_is_not_called_out_of_order() -> None:
    """With the error of sequence numbers librdkafka begins a new epoch, and what is in the log comes twice."""
    setting = Setting()
    setting.append(batch(b"a", producer=(7, 0, 0)))
    setting.turn.settle()
    setting.partition.takes_all = False
    for sequence in (1, 2, 5):
        refused = setting.append(batch(b"b", producer=(7, 0, sequence)), wait_for_all=True)
        assert refused.outcomes == [ErrorCode.NOT_ENOUGH_REPLICAS]
    setting.partition.takes_all = True
    late = setting.append(batch(b"b", producer=(7, 0, 5)), wait_for_all=True)
    assert late.outcomes == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_whoever_waits_is_refused_when_the_rules_say_so_and_what_was_written_stays() -> None:
    setting = Setting()
    waiter = setting.append(batch(b"a"), wait_for_all=True)
    setting.turn.settle()
    setting.partition.refuse_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leads")
    assert waiter.outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert not setting.partition.has_waiters
    setting.partition.advance(1)
    assert waiter.outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert setting.log.end_offset == 1


def test_with_too_few_replicas_those_with_a_deadline_are_refused_and_the_others_wait_on() -> None:
    setting = Setting()
    first, hurried = (
        setting.append(batch(b"a"), wait_for_all=True),
        setting.append(batch(b"b"), wait_for_all=True, deadline=9),
    )
    setting.turn.settle()
    # These are written when there are too few already.
    staged, hurried_too = (
        setting.append(batch(b"c"), wait_for_all=True),
        setting.append(batch(b"d"), wait_for_all=True, deadline=9),
    )
    setting.partition.takes_all = False
    setting.partition.refuse_hurried(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "too few")
    setting.turn.settle()
    assert hurried.outcomes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    assert hurried_too.outcomes == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert (first.outcomes, staged.outcomes) == ([], [])
    setting.partition.advance(4)
    assert (first.outcomes, staged.outcomes) == ([0], [2])
    assert (len(hurried.outcomes), len(hurried_too.outcomes)) == (1, 1)


def test_after_the_log_was_cut_appends_go_on_at_its_end() -> None:
    setting = Setting()
    for value in (b"a", b"b", b"c"):
        setting.append(batch(value))
    setting.turn.settle()
    setting.partition.advance(2)
    setting.directory.flusher.flush()
    setting.log.truncate(1)
    setting.partition.truncated(1, Producers())
    assert setting.partition.high_watermark == 1
    waiter = setting.append(batch(b"d"))
    setting.turn.settle()
    assert waiter.outcomes == [1]


def test_on_another_loop_there_is_no_engine() -> None:
    async def look() -> bool:
        return engine_of(asyncio.get_running_loop()) is None

    assert asyncio.run(look())


@in_loop
async def test_a_descriptor_that_is_used_again_belongs_to_the_new_client_alone() -> None:
    turn = Turn(asyncio.get_running_loop(), lambda: 0)
    first = Receiver(turn)
    with connected(first) as (transport, _, _):
        number = transport.fd
        transport.abort()
        await closed(first)
    again = Receiver(turn)
    with connected(again) as (transport, _, far):
        assert transport.fd == number
        far.send(b"x")
        await until(lambda: again.data == [b"x"])
        transport.abort()
        await closed(again)
    assert not first.data
    assert isinstance(far, socket.socket)
