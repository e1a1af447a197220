"""How often lines are written that clients can cause at will."""

import gc
import logging

import pytest

from penstock.broker.log_rates import BURST, LogRate, RatedLog

LOGGER = "penstock.test.rates"


class Owner:
    pass


def written(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    return [(record.message, getattr(record, "left_out", 0)) for record in caplog.records if record.name == LOGGER]


def test_a_few_lines_at_once_then_one_a_second() -> None:
    rate = LogRate()
    assert [rate.admit(100.0) for _ in range(BURST + 5)] == [0] * BURST + [None] * 5
    assert rate.admit(100.9) is None
    assert rate.admit(101.0) == 6
    assert rate.admit(101.0) is None
    assert rate.admit(102.5) == 1


def test_after_a_quiet_time_there_is_room_for_a_burst_and_no_more() -> None:
    rate = LogRate()
    for _ in range(BURST):
        rate.admit(0.0)
    assert [rate.admit(1e9) for _ in range(BURST + 1)] == [0] * BURST + [None]


def test_an_hour_of_a_flood_is_a_burst_and_a_line_a_second() -> None:
    rate = LogRate()
    outcomes = [rate.admit(number / 100) for number in range(360_000)]
    lines = [left_out for left_out in outcomes if left_out is not None]
    assert len(lines) <= BURST + 3600
    assert sum(lines) + len(lines) + outcomes[::-1].index(lines[-1]) == 360_000


def test_a_clock_that_goes_back_takes_no_room_away() -> None:
    rate = LogRate()
    assert rate.admit(100.0) == 0
    assert [rate.admit(50.0) for _ in range(BURST)] == [0] * (BURST - 1) + [None]


def test_each_kind_of_each_owner_has_its_own_rate(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    log = RatedLog(logging.getLogger(LOGGER), clock=lambda: 5.0)
    one, other = Owner(), Owner()
    for _ in range(1000):
        log.info("closed", owner=one, kind="error", extra={})
    log.info("closed", owner=one, kind="idle", extra={})
    log.info("closed", owner=other, kind="error", extra={})
    log.info("failed", owner=one, kind="error", extra={})
    assert written(caplog)[BURST:] == [("closed", 0), ("closed", 0), ("failed", 0)]


def test_the_next_line_says_how_many_were_left_out(caplog: pytest.LogCaptureFixture) -> None:
    now = 5.0
    log = RatedLog(logging.getLogger(LOGGER), clock=lambda: now)
    owner = Owner()
    for _ in range(1000):
        log.error("failed", owner=owner, extra={"api": "Fetch"})
    now += 1
    log.error("failed", owner=owner, extra={"api": "Fetch"})
    assert written(caplog)[BURST:] == [("failed", 1000 - BURST)]
    assert vars(caplog.records[-1])["api"] == "Fetch"


def test_a_line_has_its_error_and_the_place_that_wrote_it(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("impossible")
    RatedLog(logging.getLogger(LOGGER)).error("failed", owner=Owner(), extra={}, exc_info=error)
    [record] = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert record.funcName == "test_a_line_has_its_error_and_the_place_that_wrote_it"


def test_lines_below_the_level_use_up_no_room(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    log = RatedLog(logging.getLogger(LOGGER), clock=lambda: 5.0)
    owner = Owner()
    for _ in range(1000):
        log.info("closed", owner=owner, extra={})
    caplog.set_level(logging.INFO, LOGGER)
    log.info("closed", owner=owner, extra={})
    assert written(caplog) == [("closed", 0)]


def test_what_is_known_of_an_owner_ends_with_it() -> None:
    log = RatedLog(logging.getLogger(LOGGER))
    owner = Owner()
    log.error("failed", owner=owner, extra={})
    assert len(log._rates) == 1
    del owner
    gc.collect()
    assert len(log._rates) == 0
