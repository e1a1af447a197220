"""When a broker that ended is started again."""

from penstock.supervisor.restarts import (
    FIRST_SECONDS,
    LONGEST_SECONDS,
    MANY_REFUSALS,
    REFUSED,
    STEADY_SECONDS,
    Restarts,
)

KILLED = -9


def test_each_crash_in_a_row_doubles_the_wait_up_to_the_longest() -> None:
    restarts = Restarts()
    waits = [restarts.ended(KILLED, served_seconds=1.0) for _ in range(8)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_SECONDS, LONGEST_SECONDS]


def test_a_broker_that_crashes_for_years_is_still_started() -> None:
    restarts = Restarts(in_a_row=100_000)
    assert restarts.ended(KILLED, served_seconds=None) == LONGEST_SECONDS


def test_a_broker_that_has_served_for_a_while_is_started_as_after_its_first_crash() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.ended(KILLED, served_seconds=None)
    assert restarts.ended(KILLED, served_seconds=STEADY_SECONDS) == FIRST_SECONDS
    assert restarts.ended(KILLED, served_seconds=STEADY_SECONDS - 1) == 2 * FIRST_SECONDS


def test_a_broker_that_refuses_its_start_many_times_is_hopeless() -> None:
    restarts = Restarts()
    for _ in range(MANY_REFUSALS - 1):
        restarts.ended(REFUSED, served_seconds=None)
        assert not restarts.is_hopeless
    restarts.ended(REFUSED, served_seconds=None)
    assert restarts.is_hopeless


def test_a_crash_is_no_refusal_and_neither_is_a_failure_after_the_start() -> None:
    restarts = Restarts()
    for _ in range(2 * MANY_REFUSALS):
        restarts.ended(KILLED, served_seconds=None)
        restarts.ended(REFUSED, served_seconds=0.0)
    assert not restarts.is_hopeless


def test_a_start_that_worked_gives_hope_again() -> None:
    restarts = Restarts()
    for _ in range(MANY_REFUSALS):
        restarts.ended(REFUSED, served_seconds=None)
    restarts.ended(KILLED, served_seconds=3.0)
    assert not restarts.is_hopeless
