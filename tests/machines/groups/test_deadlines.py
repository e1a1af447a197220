"""Deadlines that are mostly put off before they come."""

import random

from penstock.machines.groups.deadlines import _STALE, Deadlines


class Truth:
    """Groups and when they really are due."""

    def __init__(self) -> None:
        self.true: dict[str, int] = {}
        self.deadlines = Deadlines(self.true.get)

    def move(self, name: str, deadline_ms: int) -> None:
        self.true[name] = deadline_ms
        self.deadlines.note(name, deadline_ms)


def test_the_earliest_is_first() -> None:
    truth = Truth()
    assert truth.deadlines.earliest() is None
    truth.move("a", 30)
    truth.move("b", 10)
    assert truth.deadlines.earliest() == 10
    truth.move("a", 5)
    assert truth.deadlines.earliest() == 5


def test_a_deadline_that_was_put_off_is_not_due() -> None:
    truth = Truth()
    truth.move("a", 10)
    truth.move("a", 30)
    assert truth.deadlines.due(20) == []
    assert truth.deadlines.earliest() == 30
    assert truth.deadlines.due(30) == ["a"]


def test_what_is_due_stays_due_until_it_changes() -> None:
    truth = Truth()
    truth.move("a", 10)
    assert truth.deadlines.due(10) == truth.deadlines.due(11) == ["a"]
    del truth.true["a"]
    assert truth.deadlines.due(12) == []
    assert truth.deadlines.earliest() is None


def test_a_deadline_that_was_moved_back_and_forth_is_due_once() -> None:
    truth = Truth()
    for deadline_ms in (10, 5, 10):
        truth.move("a", deadline_ms)
    assert truth.deadlines.earliest() == 10
    assert truth.deadlines.due(10) == ["a"]


def test_deadlines_that_only_come_earlier_leave_no_heap_of_old_ones() -> None:
    truth = Truth()
    for deadline_ms in range(10_000, 0, -1):
        truth.move("a", deadline_ms)
    assert len(truth.deadlines._heap) <= 2 + _STALE
    assert truth.deadlines.due(1) == ["a"]


def test_groups_that_are_gone_leave_nothing() -> None:
    truth = Truth()
    truth.move("kept", 5)
    for number in range(10_000):
        truth.move(f"g{number}", 10)
        del truth.true[f"g{number}"]
        truth.deadlines.drop(f"g{number}")
    assert truth.deadlines._not_before == {"kept": 5}
    assert len(truth.deadlines._heap) <= 2 + _STALE
    assert truth.deadlines.due(20) == ["kept"]


def test_nothing_to_do_is_no_deadline() -> None:
    truth = Truth()
    truth.deadlines.note("a", None)
    assert truth.deadlines.earliest() is None


def test_all_deadlines_move_together() -> None:
    truth = Truth()
    truth.move("a", 10)
    truth.move("b", 20)
    truth.true.update(a=110, b=120)
    truth.deadlines.shift(100)
    assert truth.deadlines.due(109) == []
    assert truth.deadlines.due(115) == ["a"]


def test_deadlines_agree_with_a_list_of_them() -> None:
    for seed in range(200):
        chance, truth, now = random.Random(seed), Truth(), 0
        for _ in range(100):
            name = chance.choice("abcdef")
            match chance.randrange(4):
                case 0 | 1:
                    truth.move(name, now + chance.randrange(50))
                case 2:
                    truth.true.pop(name, None)
                case _:
                    now += chance.randrange(20)
            due = {name for name, deadline in truth.true.items() if deadline <= now}
            assert sorted(truth.deadlines.due(now)) == sorted(due), f"seed {seed}"
            assert truth.deadlines.earliest() == min(truth.true.values(), default=None), f"seed {seed}"
