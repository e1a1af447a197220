"""Where to begin, as it is written and as it is meant."""

import time

import click
import pytest

from penstock.cli.positions import Kind, Position, PositionType, parse_duration, parse_position, parse_time


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", Position(Kind.BEGINNING)),
        ("end", Position(Kind.END)),
        ("0", Position(Kind.OFFSET, 0)),
        ("42", Position(Kind.OFFSET, 42)),
        ("-5", Position(Kind.FROM_END, 5)),
        ("@1767225600000", Position(Kind.TIME, 1_767_225_600_000)),
        ("@2026-01-01T00:00:00Z", Position(Kind.TIME, 1_767_225_600_000)),
        ("@2026-01-01T01:00:00.250+01:00", Position(Kind.TIME, 1_767_225_600_250)),
        ("earliest", Position(Kind.BEGINNING)),
        ("latest", Position(Kind.END)),
        ("-10s", Position(Kind.TIME, 1_767_225_590_000)),
        ("-1h30m", Position(Kind.TIME, 1_767_220_200_000)),
        ("-100000d", Position(Kind.TIME, 0)),
    ],
)
def test_what_can_be_written(text: str, position: Position) -> None:
    assert parse_position(text, now_ms=1_767_225_600_000) == position


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("1d", 86_400_000),
        ("2h", 7_200_000),
        ("5m", 300_000),
        ("90s", 90_000),
        ("20ms", 20),
        ("1d2h3m4s5ms", 93_784_005),
    ],
)
def test_durations_have_units(text: str, duration_ms: int) -> None:
    assert parse_duration(text) == duration_ms


@pytest.mark.parametrize("text", ["", "1", "h", "1h1d", "1w", "1.5h", "-1h", "1 h"])
def test_what_is_no_duration(text: str) -> None:
    assert parse_duration(text) is None


def test_so_long_ago_is_counted_from_now() -> None:
    before = time.time_ns() // 1_000_000
    position = parse_position("-1h")
    after = time.time_ns() // 1_000_000
    assert position.kind is Kind.TIME
    assert before <= position.value + 3_600_000 <= after


@pytest.mark.parametrize("text", ["", "-", "--5", "start", "1.5", "+3", "@", "@yesterday", "٣", "1h", "-1x", "-h"])
def test_what_cannot(text: str) -> None:
    with pytest.raises(ValueError, match=r"is (none of|neither)"):
        parse_position(text)


def test_a_date_without_a_zone_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert parse_time("2026-01-01") == 1_767_225_600_000 + 5 * 3_600_000
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("position", "at_time", "offset"),
    [
        (Position(Kind.BEGINNING), None, 10),
        (Position(Kind.END), None, 20),
        (Position(Kind.OFFSET, 15), None, 15),
        (Position(Kind.OFFSET, 5), None, 10),
        (Position(Kind.OFFSET, 25), None, 20),
        (Position(Kind.FROM_END, 3), None, 17),
        (Position(Kind.FROM_END, 30), None, 10),
        (Position(Kind.FROM_END, 0), None, 20),
        (Position(Kind.TIME, 1), 12, 12),
        (Position(Kind.TIME, 1), -1, 20),
        (Position(Kind.TIME, 1), 5, 10),
    ],
)
def test_what_it_means_in_a_partition_from_10_to_20(position: Position, at_time: int | None, offset: int) -> None:
    assert position.offset(10, 20, at_time) == offset


def test_kinds_that_make_no_sense_are_refused() -> None:
    kinds = PositionType(Kind.OFFSET, Kind.END)
    assert kinds.convert("7", None, None) == Position(Kind.OFFSET, 7)
    with pytest.raises(click.BadParameter, match="makes no sense here: write an offset or end"):
        kinds.convert("-7", None, None)
    with pytest.raises(click.BadParameter, match="none of"):
        kinds.convert("seven", None, None)
