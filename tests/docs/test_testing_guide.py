"""Every block of the guide on testing is a test file of a user, and passes."""

import os
import sys
from pathlib import Path

import pytest

from tests.docs.running import blocks

pytest_plugins = ["pytester"]

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "testing.md"


def test_the_test_files_of_the_guide_pass(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    # The command lies beside the interpreter.
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    files = {f"test_block_{number}": block.code for number, block in enumerate(blocks(GUIDE), 1)}
    tests = sum(code.count("def test_") for code in files.values())
    assert all("def test_" in code for code in files.values())
    pytester.makepyfile(**files)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=tests)
