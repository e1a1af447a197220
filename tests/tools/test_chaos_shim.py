"""The shim sees what storage does to a disk: each fault is tried on the calls of `RealFiles`, in another process."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.chaos.shim import Shim, ShimError, build

WRITE = """
import os, sys, time
from penstock.storage.files import RealFiles, write_all
files, folder = RealFiles(), sys.argv[1]
"""
DAY_MS = 24 * 3600 * 1000


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if sys.platform != "linux" or shutil.which("cc") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("the shim needs Linux and a C compiler")
    return build(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def shim(library: Path, tmp_path: Path) -> Shim:
    (tmp_path / "disk").mkdir()
    return Shim(library, tmp_path / "control", tmp_path / "disk")


def run(shim: Shim | None, folder: Path, code: str) -> str:
    """What the code prints, with the shim."""
    environment = {**os.environ, **(shim.environment if shim else {})}
    command = [sys.executable, "-c", WRITE + code, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


APPEND = """
fd = files.open(folder + "/log", write=True, create=True)
try:
    write_all(files, fd, [b"a" * 3000, b"b" * 3000], files.size(fd))
    print("written")
except OSError as error:
    print(error.errno, files.size(fd), files.free_bytes(folder))
"""


def test_a_full_disk_lets_files_grow_to_the_end_of_their_block_and_no_further(shim: Shim, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    assert run(shim, disk, APPEND) == "written"
    shim.set("is_full", 1)
    assert run(shim, disk, APPEND) == "28 8192 0"
    assert shim.get("refused_writes") == 1
    assert run(shim, tmp_path, APPEND) == "written", "another disk has room"
    shim.heal()
    assert run(shim, disk, APPEND) == "written"


@pytest.mark.parametrize("sync", ["files.sync(fd)", "files.sync_directory(folder)", "files.sync_filesystem(fd)"])
def test_a_sync_fails_as_often_as_it_is_told_to(sync: str, shim: Shim, tmp_path: Path) -> None:
    code = f"""
fd = files.open(folder + "/log", write=True, create=True)
for _ in range(2):
    try:
        {sync}
        print("synced")
    except OSError as error:
        print(error.errno)
"""
    shim.set("failing_syncs", 1)
    assert run(shim, tmp_path, code) == "synced\nsynced", "another disk is sound"
    assert run(shim, tmp_path / "disk", code) == "5\nsynced"
    assert shim.get("failed_syncs") == 1


def test_a_slow_disk_takes_its_time_for_a_sync(shim: Shim, tmp_path: Path) -> None:
    shim.set("sync_delay_ms", 200)
    code = """
fd = files.open(folder + "/log", write=True, create=True)
before = time.monotonic()
files.sync(fd)
print(time.monotonic() - before >= 0.2)
"""
    assert run(shim, tmp_path / "disk", code) == "True"
    assert shim.get("delayed_syncs") == 1


@pytest.mark.parametrize("days", [-3, 40])
def test_the_wall_clock_jumps_and_the_other_one_does_not(days: int, shim: Shim, tmp_path: Path) -> None:
    shim.set("clock_offset_ms", days * DAY_MS)
    code = "print(time.time_ns() // 1_000_000, int(time.time() * 1000), time.monotonic_ns() // 1_000_000)"
    moved, also_moved, unmoved = map(int, run(shim, tmp_path / "disk", code).split())
    told = run(None, tmp_path, code).split()
    true, still = int(told[0]), int(told[2])
    assert abs(moved - true - days * DAY_MS) < 60_000
    assert abs(also_moved - moved) < 60_000
    assert abs(unmoved - still) < 60_000


def test_a_source_that_does_not_compile_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "wrong.c"
    wrong.write_text("nonsense")
    monkeypatch.setattr("tools.chaos.shim.SOURCE", wrong)
    with pytest.raises(ShimError, match=r"wrong\.c"):
        build(tmp_path)
