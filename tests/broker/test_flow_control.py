"""The cork and the budget, with connections that only remember what they were told."""

import asyncio

from penstock.broker.flow_control import Budget, Cork
from tests.broker.harness import in_loop, turns


class Connection:
    def __init__(self) -> None:
        self.sent = 0
        self.resumed = 0

    def send_outbox(self) -> None:
        self.sent += 1

    def resume_reading(self) -> None:
        self.resumed += 1


@in_loop
async def test_a_connection_sends_once_however_many_replies_it_has() -> None:
    cork, connection = Cork(asyncio.get_running_loop()), Connection()
    for _ in range(3):
        cork.add(connection)
    assert connection.sent == 0
    cork.release()
    assert connection.sent == 1
    cork.release()
    assert connection.sent == 1


@in_loop
async def test_replies_that_nobody_releases_leave_at_the_end_of_the_turn() -> None:
    cork, connection = Cork(asyncio.get_running_loop()), Connection()
    cork.add(connection)
    await turns()
    assert connection.sent == 1


@in_loop
async def test_a_reply_that_comes_while_others_are_sent_is_not_forgotten() -> None:
    cork = Cork(asyncio.get_running_loop())

    class Chatty(Connection):
        def send_outbox(self) -> None:
            super().send_outbox()
            if self.sent == 1:
                cork.add(self)

    connection = Chatty()
    cork.add(connection)
    cork.release()
    await turns()
    assert connection.sent == 2


def test_a_budget_has_room_until_it_is_used_up() -> None:
    budget, connection = Budget(100), Connection()
    budget.add(99)
    assert budget.has_room(connection)
    budget.add(1)
    assert not budget.has_room(connection)


def test_who_was_turned_away_is_told_once_when_there_is_room() -> None:
    budget, first, second = Budget(100), Connection(), Connection()
    budget.add(150)
    assert not budget.has_room(first)
    assert not budget.has_room(second)
    budget.remove(10)
    assert (first.resumed, second.resumed) == (0, 0)
    budget.remove(100)
    assert (first.resumed, second.resumed) == (1, 1)
    budget.remove(40)
    assert (first.resumed, second.resumed) == (1, 1)
    assert budget.used_bytes == 0


@in_loop
async def test_what_a_read_has_brought_is_seen_to_before_its_replies_leave() -> None:
    told: list[str] = []

    class Telling(Connection):
        def send_outbox(self) -> None:
            told.append("sent")

    cork = Cork(asyncio.get_running_loop(), lambda: told.append("end of read"))
    cork.hold()
    assert cork.is_held
    cork.add(Telling())
    cork.release()
    assert told == ["end of read", "sent"]
    assert not cork.is_held
    cork.release()
    assert told == ["end of read", "sent"]
