"""The command that runs simulations: a range of seeds once, and a report that says what was wrong."""

import argparse
import sys
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from tools.simulate import __main__ as program
from tools.simulate.kinds import KINDS
from tools.simulate.progress import Progress


def call(patch: pytest.MonkeyPatch, *arguments: str) -> int:
    patch.setattr(sys, "argv", ["simulate", *arguments])
    return program.main()


@pytest.mark.parametrize("name", KINDS)
def test_a_range_of_seeds_is_run_reported_and_not_run_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Two blocks, of which the second is not a whole one; of slow schedules few.
    sources, count = KINDS[name].sources, min(KINDS[name].block + 1, 60)
    seeds = f"1:{count}"
    options = [name, "--seeds", seeds, "--processes", "1", "--progress", str(tmp_path), "--results", str(tmp_path)]
    assert call(monkeypatch, *options) == 0
    assert Progress.load(tmp_path / f"{name}.json", sources).schedules == count
    assert f"{count} schedules, 0 of which broke a rule" in (tmp_path / f"simulation-{name}.md").read_text()
    capsys.readouterr()
    assert call(monkeypatch, *options) == 0
    assert f"{count} schedules are done already" in capsys.readouterr().out
    assert Progress.load(tmp_path / f"{name}.json", sources).schedules == count


def test_what_was_done_with_other_code_counts_for_nothing(tmp_path: Path) -> None:
    path, sources = tmp_path / "progress.json", KINDS["replication"].sources
    Progress(path, "other code", done={(1, 50)}, schedules=50).save()
    assert Progress.load(path, sources).schedules == 0
    now = Progress.load(path, sources)
    now.add((1, 50), {**now.counts(), "schedules": 50})
    now.save()
    assert Progress.load(path, sources).missing(1, 100, 50) == [(51, 100)]


@pytest.mark.parametrize("name", KINDS)
def test_the_files_that_decide_how_schedules_go_exist(name: str) -> None:
    for pattern in KINDS[name].sources:
        assert list(Path().glob(pattern)), pattern


def test_a_schedule_that_breaks_a_rule_and_a_state_that_is_missing_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = KINDS["controller"]
    progress = Progress(tmp_path / "progress.json", "", schedules=1000, failed={7: "a rule was broken"})
    assert program.report(kind, progress, Console(), tmp_path) == 1
    told = capsys.readouterr().out
    assert "seed 7: a rule was broken" in told
    assert f"never reached: {kind.states[0]}" in told


@pytest.mark.parametrize("name", KINDS)
def test_a_full_run_must_reach_every_state_and_a_small_one_need_not(name: str, tmp_path: Path) -> None:
    kind, console = KINDS[name], Console(quiet=True)
    first, last = kind.seeds
    assert kind.enough <= last - first + 1
    *others, missed = kind.states
    progress = Progress(tmp_path / "progress.json", "", schedules=kind.enough - 1, states=Counter(others))
    assert program.report(kind, progress, console, tmp_path) == 0
    progress.schedules += 1
    assert program.report(kind, progress, console, tmp_path) == 1
    progress.states[missed] += 1
    assert program.report(kind, progress, console, tmp_path) == 0


def test_a_schedule_is_replayed_as_it_was(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "replication", "--replay", "7") == 0
    told = capsys.readouterr().out
    assert "the faults are over" in told
    assert told.endswith(f"schedule {KINDS['replication'].simulate(7).digest}\n")


@pytest.mark.parametrize("options", [["election"], ["--replay", "7"]])
def test_a_simulation_that_does_not_exist_and_a_replay_of_none_are_refused(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        call(monkeypatch, *options)
    assert "simulation" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "1", "5:1", "a:b"])
def test_what_is_no_range_of_seeds_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="first:last"):
        program.seed_range(text)
