"""The program, started as a module."""

import subprocess
import sys

from penstock import __version__


def test_the_module_is_the_program() -> None:
    command = [sys.executable, "-P", "-m", "penstock", "--version"]
    assert __version__ in subprocess.run(command, capture_output=True, text=True, check=True).stdout
