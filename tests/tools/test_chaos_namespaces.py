"""Without the right to make network namespaces, `make chaos` has some of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.chaos import namespaces
from tools.chaos.network import NetworkError
from tools.chaos.progress import ROOT

BUILD = """
from pathlib import Path
from sys import argv
from tools.chaos.network import both_ways, network
with network(Path(argv[1])) as built:
    built.cut(both_ways(1, 2))
    built.mend()
    print(sorted(path.name for path in Path("/run/netns").iterdir()) == sorted(built.namespaces()))
"""


def own_prefix(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """That of a user, whoever runs this."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    try:
        return namespaces.prefix()
    except NetworkError as error:
        pytest.skip(str(error))


def test_a_user_builds_and_cuts_the_network_in_namespaces_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = [*own_prefix(monkeypatch), sys.executable, "-c", BUILD, str(tmp_path / "network.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_without_any_way_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(namespaces, "OWN", ("false",))
    with pytest.raises(
        NetworkError, match="only root may make network namespaces, and the kernel lets users have none"
    ):
        namespaces.prefix()
    monkeypatch.setattr(namespaces, "OWN", ("there-is-no-such-command",))
    with pytest.raises(NetworkError, match="there-is-no-such-command is not installed"):
        namespaces.prefix()
