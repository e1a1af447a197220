"""promtool, and what our expressions may name."""

import os
import re
import shutil
import subprocess

import pytest

from penstock.broker.metrics.exposition import Head
from tools.monitoring.alarms import COMMITTED, LAG
from tools.monitoring.dashboard import HEADS, metrics

ADDED_BY_PROMETHEUS = {"job", "instance", "le"}


def promtool(*arguments: str) -> None:
    """Has it check something; the test fails with what it says."""
    found = shutil.which("promtool")
    if found is None:
        # Where nobody looks at what was skipped, rules that were not checked are a failure.
        (pytest.fail if os.environ.get("CI") else pytest.skip)("promtool is missing: tools/setup_debian.sh promtool")
    done = subprocess.run([found, *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def misused(expr: str) -> list[str]:
    """Names and labels in an expression that no metric has."""
    problems = [name for name in metrics(expr) if name not in HEADS]
    heads: list[Head] = [HEADS[name] for name in metrics(expr) if name in HEADS]
    known = {label for head in heads for label in head.labels} | ADDED_BY_PROMETHEUS
    if LAG in expr or COMMITTED in expr:
        known |= {"group", "topic"}
    for name, matchers in re.findall(r"(\w+)\{([^}]*)\}", expr):
        own = {*ADDED_BY_PROMETHEUS, *(HEADS[metrics(name)[0]].labels if metrics(name) else ())}
        problems += [f"{name}: {label}" for label in re.findall(r"(\w+)\s*=", matchers) if label not in own]
    for labels in re.findall(r"\b(?:by|on|group_right|group_left) ?\(([^)]*)\)", expr):
        problems += [label for label in re.findall(r"\w+", labels) if label not in known]
    return problems
