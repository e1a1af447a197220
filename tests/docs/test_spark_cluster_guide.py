"""The guide to clusters, executed as it stands: a cluster of its own, a program, two commands.
`make test-spark-cluster` alone runs this."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing import Broker
from tools.fixtures.kafka import free_ports
from tools.guides import ADDRESS, blocks

pytestmark = [
    pytest.mark.skipif("PENSTOCK_TEST_SPARK_CLUSTER" not in os.environ, reason="make test-spark-cluster runs it"),
    pytest.mark.timeout(600),
]

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "spark-cluster.md"


def test_the_commands_and_the_code_of_the_guide_run(tmp_path: Path) -> None:
    pieces = [each for each in blocks(GUIDE) if "cluster" in each.marks]
    assert [each.language for each in pieces] == ["sh", "python", "sh", "sh"]
    start, program, *commands = (each.code for each in pieces)
    script = "\n".join(
        ["set -euo pipefail", "trap 'kill $(jobs -p); wait' EXIT", start, f"python - <<'END'\n{program}END", *commands]
    )
    with Broker() as broker:
        script = script.replace(ADDRESS, broker.bootstrap).replace("7077", str(free_ports(1)[0]))
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK", "JAVA_HOME"))
        }
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        # What JVMs write that outlive a test goes nowhere.
        with (tmp_path / "errors").open("w+") as errors:
            ran = subprocess.run(
                ["bash", "-c", script],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                check=False,
            )
            errors.seek(0)
            assert ran.returncode == 0, errors.read()[-5000:]
    assert "1,000 messages added to" in ran.stdout
    assert "clicks" in ran.stdout.partition("messages added to")[2]
