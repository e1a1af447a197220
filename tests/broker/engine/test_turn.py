"""What happens at the end of a turn, in which order, and that nothing of it is forgotten."""

import pytest

from penstock.broker.engine.turn import Turn
from penstock.machines.flush_urgency import Urgency
from penstock.storage.log.segment import CutBackError
from tests.broker.engine.stage import ManualLoop, manual_turn


class Connection:
    def __init__(self, told: list[str] | None = None) -> None:
        self.sent = 0
        self.told = [] if told is None else told

    def send_outbox(self) -> None:
        self.sent += 1
        self.told.append("sent")


class Partition:
    def __init__(self, turn: Turn, told: list[str], *, urgency: Urgency = Urgency.NONE) -> None:
        self.turn = turn
        self.told = told
        self.urgency = urgency
        self.failure: BaseException | None = None
        self.error: Exception | None = None
        self.errors: list[Exception] = []

    def write_staged(self, now_ms: int) -> None:
        if self.error is not None:
            raise self.error
        self.told.append(f"written at {now_ms}")

    def broke(self, error: Exception) -> None:
        self.errors.append(error)


@pytest.fixture
def made() -> tuple[Turn, ManualLoop]:
    return manual_turn(lambda: 7)


def test_a_connection_sends_once_however_many_replies_it_has(made: tuple[Turn, ManualLoop]) -> None:
    turn, _ = made
    connection = Connection()
    for _ in range(3):
        turn.cork(connection)
    assert connection.sent == 0
    turn.settle()
    turn.settle()
    assert connection.sent == 1


def test_what_comes_outside_of_any_read_is_settled_at_the_end_of_the_loops_turn(made: tuple[Turn, ManualLoop]) -> None:
    turn, loop = made
    told: list[str] = []
    turn.cork(Connection(told))
    turn.stage(Partition(turn, told))
    turn.look_later(lambda: told.append("looked"))
    assert len(loop.soon) == 1
    loop.run()
    assert told == ["written at 7", "looked", "sent"]
    turn.cork(Connection(told))
    loop.run()
    assert told[3:] == ["sent"]


def test_while_requests_are_read_nothing_is_written_or_sent_and_no_callback_is_scheduled(
    made: tuple[Turn, ManualLoop],
) -> None:
    turn, loop = made
    told: list[str] = []
    turn.hold(views_stay=True)
    assert turn.views_stay
    turn.cork(Connection(told))
    turn.stage(Partition(turn, told))
    assert not told
    assert not loop.soon
    turn.settle()
    assert told == ["written at 7", "sent"]
    assert not turn.is_held
    assert not turn.views_stay


def test_a_reply_that_comes_while_others_are_sent_is_not_forgotten(made: tuple[Turn, ManualLoop]) -> None:
    turn, loop = made

    class Chatty(Connection):
        def send_outbox(self) -> None:
            super().send_outbox()
            if self.sent == 1:
                turn.cork(self)

    connection = Chatty()
    turn.cork(connection)
    turn.settle()
    loop.run()
    assert connection.sent == 2


def test_what_a_look_brings_about_belongs_to_the_same_turn(made: tuple[Turn, ManualLoop]) -> None:
    turn, loop = made
    told: list[str] = []
    connection = Connection(told)

    def look() -> None:
        told.append("looked")
        turn.stage(Partition(turn, told))
        turn.cork(connection)
        if told.count("looked") == 1:
            turn.look_later(look)

    turn.hold(views_stay=True)
    turn.look_later(look)
    turn.settle()
    assert told == ["looked", "written at 7", "looked", "written at 7", "sent"]
    assert not loop.soon


def test_the_flusher_is_told_once_how_urgent_the_most_urgent_of_the_partitions_is(
    made: tuple[Turn, ManualLoop],
) -> None:
    turn, _ = made
    woken: list[Urgency] = []
    turn.wake_flusher = woken.append
    none, reader, producer = Urgency
    for found in ([none], [none, reader, none], [reader, producer, none]):
        for urgency in found:
            turn.stage(Partition(turn, [], urgency=urgency))
        turn.settle()
    turn.settle()
    assert woken == [none, reader, producer]


def test_an_error_of_one_costs_the_others_nothing(made: tuple[Turn, ManualLoop]) -> None:
    turn, _ = made
    told: list[str] = []

    class Broken(Connection):
        def send_outbox(self) -> None:
            raise RuntimeError

    def look() -> None:
        raise RuntimeError

    bad = Partition(turn, told)
    bad.error = RuntimeError("a bug")
    turn.stage(bad)
    turn.stage(Partition(turn, told))
    turn.look_later(look)
    turn.look_later(lambda: told.append("looked"))
    turn.cork(Broken())
    turn.cork(Connection(told))
    turn.settle()
    assert told == ["written at 7", "looked", "sent"]
    assert bad.errors == [bad.error]


def test_a_disk_that_neither_takes_a_write_nor_undoes_it_has_failed() -> None:
    broken: list[OSError] = []
    turn, _ = manual_turn(disk_broke=broken.append)
    partition = Partition(turn, [])
    partition.failure = CutBackError("gone")
    turn.stage(partition)
    turn.settle()
    assert broken == [partition.failure]
