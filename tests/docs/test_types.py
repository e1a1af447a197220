"""Every example of the guides passes `mypy --strict`, as a user's editor would check it."""

import os
import subprocess
import sys
from pathlib import Path

from tools.guides import ROOT, guides


def test_every_example_of_the_guides_passes_mypy_strict(tmp_path: Path) -> None:
    files = [
        (f"{guide.name.replace('-', '_').lower()}__{name}", code)
        for guide in guides()
        for name, code in guide.programs(everything=True).items()
    ]
    for name, code in files:
        (tmp_path / name).write_text(code, encoding="utf-8")
    # With the project's settings and its cache: `make check` has filled it.
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file", "pyproject.toml"]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    paths = [str(tmp_path / name) for name, _ in files]
    done = subprocess.run([*command, *paths], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(files) > 15
