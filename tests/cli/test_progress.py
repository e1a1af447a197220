"""Progress, which is seen on a terminal and after a moment only."""

import sys

import pytest

from penstock.cli import progress
from penstock.cli.progress import Progress


def test_nothing_is_shown_where_no_terminal_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0)
    with Progress("sending", total=10) as shown:
        shown.advance(5, 1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("total", [10, None])
def test_on_a_terminal_it_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, total: int | None
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0)
    monkeypatch.setattr(progress, "BETWEEN_SECONDS", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with Progress("sending", total=total) as shown, Progress("copying", total=total, unit="replicas") as other:
        shown.advance(5, 1200)
        shown.advance(5, 34)
        other.advance(5, 7)
    told = capsys.readouterr()
    assert told.out == ""
    assert "sending" in told.err
    assert "1,234 messages" in told.err
    assert "7 replicas" in told.err


def test_what_is_over_at_once_needs_none(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Progress("sending", total=10) as shown:
        shown.advance(10, 10)
    assert capsys.readouterr().err == ""


def test_nobody_has_to_see_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Progress("sending", wanted=False) as shown:
        shown.advance(1, 1)
    assert capsys.readouterr().err == ""


def test_no_line_that_moves_is_shown_where_escapes_are_not_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    with Progress("sending") as shown:
        shown.advance(1, 1)
    assert capsys.readouterr().err == ""
