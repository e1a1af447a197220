"""Unpacks the source of another revision, so that its broker can be measured beside that of this checkout."""

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Final

from benchmarks.scratch import CACHE

ROOT: Final = Path(__file__).parent.parent


def short_name(revision: str) -> str:
    """The short hash of a revision, as git knows it."""
    command = ["git", "rev-parse", "--short", revision]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def unpack(revision: str) -> Path:
    """The folder `src` of a revision."""
    name = short_name(revision)
    folder = CACHE / "versions" / name
    if not folder.exists():
        archive = subprocess.run(["git", "archive", name, "src"], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")
    return folder / "src"
