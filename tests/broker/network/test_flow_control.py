"""The budget, with connections that only remember what they were told."""

from penstock.broker.network.flow_control import Budget


class Connection:
    def __init__(self) -> None:
        self.resumed = 0
        self.stopped = 0

    def resume_reading(self) -> None:
        self.resumed += 1

    def stop_reading(self) -> None:
        self.stopped += 1


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


def test_when_the_budget_is_used_up_that_is_told_once_until_there_is_room_again() -> None:
    told: list[int] = []
    budget, connection = Budget(100), Connection()
    budget.used_up = lambda: told.append(budget.used_bytes)
    for _ in range(2):
        budget.add(100)
        assert not budget.has_room(connection)
        assert not budget.has_room(connection)
        budget.remove(100)
        assert budget.has_room(connection)
    assert told == [100, 100]


# Large requests that have not come to their end


def test_large_requests_share_a_part_of_the_budget_and_the_largest_a_smaller_one() -> None:
    budget = Budget(100 << 20)
    first, largest, large, newest = (Connection() for _ in range(4))
    budget.gathered(first, 40 << 20)
    budget.gathered(largest, 24 << 20)
    budget.gathered(large, 500_000)
    assert all(budget.may_gather(it) for it in (first, largest, large))
    budget.gathered(largest, 26 << 20)
    # It is told to those that read.
    assert (first.stopped, largest.stopped, large.stopped) == (1, 1, 1)
    assert budget.may_gather(first), "the first is always read on"
    assert not budget.may_gather(largest)
    assert budget.may_gather(large)
    budget.gathered(first, 90 << 20)
    assert budget.may_gather(large), "what the first has is its own"
    budget.gathered(largest, 50 << 20)
    assert first.stopped == 2
    assert not budget.may_gather(large)
    budget.gathered(newest, 100_000)
    assert not budget.may_gather(newest)
    # When the first one has come to its end there is room.
    budget.gathered(first, 0)
    assert (largest.resumed, large.resumed, newest.resumed) == (1, 1, 1)
    assert all(budget.may_gather(it) for it in (largest, large, newest))


def test_a_connection_with_one_large_request_after_another_goes_to_the_end_of_the_line() -> None:
    budget, busy, other = Budget(4 << 20), Connection(), Connection()
    budget.gathered(busy, 3 << 20)
    budget.gathered(other, 2 << 20)
    assert budget.may_gather(busy)
    assert not budget.may_gather(other)
    budget.gathered(busy, 2 << 20)
    assert other.resumed == 1
    assert budget.may_gather(other)
    assert not budget.may_gather(busy)


def test_a_large_request_waits_for_the_budget_too_unless_it_is_the_first() -> None:
    budget, first, second = Budget(100 << 20), Connection(), Connection()
    for connection in (first, second):
        budget.gathered(connection, 200_000)
    budget.add(100 << 20)
    assert budget.may_gather(first)
    assert not budget.may_gather(second)
    budget.remove(100 << 20)
    assert second.resumed == 1
    assert budget.may_gather(second)


def test_a_connection_that_is_gone_is_told_nothing_and_holds_nothing() -> None:
    budget, first, gone = Budget(4 << 20), Connection(), Connection()
    budget.gathered(first, 3 << 20)
    budget.gathered(gone, 2 << 20)
    budget.add(4 << 20)
    assert not budget.may_gather(gone)
    assert not budget.has_room(gone)
    budget.forget(gone)
    assert budget.unfinished_bytes == 3 << 20
    budget.gathered(first, 0)
    budget.remove(4 << 20)
    assert gone.resumed == 0
    assert budget.unfinished_bytes == 0


def test_connections_are_read_in_small_pieces_while_much_is_unfinished_or_unanswered() -> None:
    budget, connection = Budget(100), Connection()
    assert not budget.is_tight
    budget.add(50)
    assert budget.is_tight
    budget.remove(50)
    budget.gathered(connection, 25)
    assert budget.is_tight
