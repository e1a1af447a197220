"""The first hour of a new user, as far as it fits into half a minute; `make first-hour` is all of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.first_hour import FirstHour
from tools.guides import ROOT, GuideError

# What pip says where it cannot look for packages.
OFFLINE = ("NewConnectionError", "Temporary failure in name resolution", "Read timed out", "ConnectTimeoutError")


def test_a_clone_is_installed_by_two_commands_and_readme_and_quick_start_work(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "tools.first_hour", "--short"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if any(said in done.stdout for said in OFFLINE):
        pytest.skip(f"pip finds no packages: {done.stdout[-500:]}")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    steps = [line.partition(" s  ")[2] for line in done.stdout.splitlines()]
    assert steps == ["clone", "README: two commands", "README", "quick-start", "all of it"]
    assert list(tmp_path.iterdir()) == []


def test_a_clone_has_what_is_not_committed_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.mkdir()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for name in ("changed", "deleted", "kept"):
        (source / name).write_text("old")
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "first"]):
        subprocess.run([*git, *command], cwd=source, check=True)
    (source / "changed").write_text("new")
    (source / "deleted").unlink()
    (source / "folder").mkdir()
    (source / "folder" / "added").write_text("new")
    monkeypatch.setattr("tools.first_hour.ROOT", source)
    hour = FirstHour(tmp_path)
    hour.clone()
    files = {str(path.relative_to(hour.checkout)) for path in hour.checkout.rglob("*") if ".git" not in path.parts}
    assert files == {"changed", "kept", "folder", "folder/added"}
    assert (hour.checkout / "changed").read_text() == "new"


def test_a_readme_that_does_not_begin_with_two_commands_is_refused(tmp_path: Path) -> None:
    hour = FirstHour(tmp_path)
    hour.checkout.mkdir()
    (hour.checkout / "README.md").write_text("```sh install\ntrue\ntrue\npenstock serve\n```\n")
    with pytest.raises(GuideError, match="begins with two commands"):
        hour.install_from_readme()


def test_the_environment_is_that_of_a_user_without_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = tmp_path / "ours"
    (ours / "bin").mkdir(parents=True)
    (ours / "pyvenv.cfg").touch()
    monkeypatch.setenv("PATH", f"{ours / 'bin'}{os.pathsep}/usr/bin")
    monkeypatch.setenv("PYTHONPATH", "src")
    monkeypatch.setenv("PIP_INDEX_URL", "https://packages.example.org")
    environment = FirstHour(tmp_path).environment(tmp_path)
    assert environment["PATH"] == f"{tmp_path / 'venv' / 'bin'}{os.pathsep}/usr/bin"
    assert "PYTHONPATH" not in environment
    assert environment["PIP_INDEX_URL"] == "https://packages.example.org"
