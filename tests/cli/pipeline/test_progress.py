"""Progress of pipelines, which is seen on a terminal only."""

import sys

import pytest

from penstock.cli.pipeline.progress import PipelineProgress, parts_for


def test_nothing_is_shown_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    with PipelineProgress("messages") as shown:
        shown.show("archiving", 5, 10)
    assert capsys.readouterr().err == ""


def test_on_a_terminal_rows_and_what_is_left_are_shown_for_each_stage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    with PipelineProgress("messages") as shown:
        shown.show("archiving", 0, 2500)
        shown.show("archiving", 600, 2500)
        shown.show("archiving", 1200, 2500)
        shown.show("checking", 2500, 2500)
    told = capsys.readouterr()
    assert told.out == ""
    assert "archiving" in told.err
    assert "1,200 messages" in told.err
    assert "1,300 left" in told.err
    assert "messages/s" in told.err
    assert "checking" in told.err


@pytest.mark.parametrize("width", [40, 64, 80, 100, 120, 200])
def test_progress_takes_one_line_for_each_stage_however_narrow_the_terminal_is(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    with PipelineProgress("messages") as shown:
        for done in (0, 500_000, 1_000_000):
            shown.show("archiving", done, 3_000_000)
    told = capsys.readouterr().err
    assert "2,000,000 left" in told
    assert "\u2026" not in told, "nothing is cut off"
    assert {"stage", "percent", "left"} <= parts_for(width)
