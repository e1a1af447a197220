"""The demo, as `make demo` runs it."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from penstock.spark.java import JavaNotFoundError
from tools import pipeline_demo
from tools.pipeline_demo import PipelineDemo, missing_for_spark

ROOT = Path(__file__).parent.parent.parent

# It takes a minute, and three beside other work: Spark and a dozen brokers start one after the other.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the demo prints in a narrow terminal, and the folder that its temporary files go to."""
    folder = tmp_path_factory.mktemp("demo")
    return run_demo(folder, columns=80), folder


def run_demo(folder: Path, *, columns: int) -> str:
    command = [sys.executable, "-m", "tools.demo"]
    environment = {**os.environ, "TMPDIR": str(folder), "COLUMNS": str(columns)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=540, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_demo_takes_every_step(demo: tuple[str, Path]) -> None:
    steps = ["Write", "Read", "Find", "Truncate the end", "Truncate the history", "Crash", "Stop and start", "Count"]
    places = [demo[0].find(f"\n{step} ") for step in steps]
    assert -1 not in places
    assert places == sorted(places)


def test_the_demo_serves_a_real_client_and_keeps_everything_over_a_restart(demo: tuple[str, Path]) -> None:
    places = [demo[0].find(f"\n{step} ") for step in ("Serve", "Send", "Consume", "Share", "Look", "Restart", "Write")]
    assert -1 not in places
    assert places == sorted(places)
    assert "2,000 messages a second, acks=all" in demo[0]
    assert re.search(r"6,000 acknowledged, half within [\d.]+ ms, 99 % within [\d.]+ ms:", demo[0])
    assert re.search(r"readings-0/\d{20}\.log +[\d,]+", demo[0])
    assert "All 6,000 messages are there." in demo[0]


def test_the_demo_shows_who_leads_and_who_is_in_sync_before_during_and_after_the_kill_of_a_leader(
    demo: tuple[str, Path],
) -> None:
    shown = demo[0].partition("\nGrow ")[2].partition("\nWrite ")[0]
    before, _, rest = shown.partition("\nKill ")
    during, _, after = rest.partition("\nReturn ")
    assert [roles(before, broker).count("leads") for broker in range(3)] == [2, 2, 2]
    assert [roles(before, broker).count("in sync") for broker in range(3)] == [4, 4, 4]
    assert "leads" not in roles(during, 1)
    assert roles(during, 0).count("leads") + roles(during, 2).count("leads") == 6
    assert roles(after, 1).count("in sync") == 6


def test_the_demo_misses_no_acknowledged_message_when_a_leader_is_killed(demo: tuple[str, Path]) -> None:
    shown = " ".join(demo[0].partition("\nReturn ")[2].partition("\nWrite ")[0].split())
    counted = re.search(r"([\d,]+) messages were sent and ([\d,]+) acknowledged, half of them within \d+ ms", shown)
    assert counted is not None
    assert number(counted[1]) == number(counted[2]) > 1_000
    assert f"All {counted[1]} messages are there, each of them once. Not one is missing." in shown


def roles(shown: str, broker: int) -> list[str]:
    """What a picture says that the broker is to each partition."""
    (line,) = re.findall(rf"^ +{broker}  (.*)$", shown, re.MULTILINE)
    return re.split(r" {2,}", line.strip())


def test_the_demo_shows_segments_and_records(demo: tuple[str, Path]) -> None:
    assert len(re.findall(r"^\d{20}\.log", demo[0], re.MULTILINE)) > 10
    assert '4,321  11-12 16:50  customer-85  {"order":4321,"item":"blade","pieces":32}' in demo[0]
    assert '4,800  11-13 12:00  customer-4  {"order":4800,"item":"valve","pieces":31}' in demo[0]


def test_the_demo_deletes_files_at_both_ends(demo: tuple[str, Path]) -> None:
    assert "and ends at 5,000." in demo[0]
    assert "the log starts at 1,000. Files deleted: 1." in demo[0]
    assert re.search(r"told: offset 1000 is not in the log, which goes from\s+1500 to 5000\.", demo[0])


def test_the_demo_recovers_all_flushed_records_from_a_torn_log(demo: tuple[str, Path]) -> None:
    assert "last stop  not clean" in demo[0]
    assert "All 6,500 flushed records are there." in demo[0]
    scanned, total = re.findall(r"scanned +([\d,]+) of ([\d,]+) bytes", demo[0])[0]
    assert 0 < number(scanned) < number(total)
    cut = re.search(r"cut off +([\d,]+) bytes +\n +because +\d{20}\.log, byte \d+: ", demo[0])
    assert cut is not None
    assert number(cut[1]) > 0


def test_the_demo_reopens_without_a_scan_after_a_clean_stop(demo: tuple[str, Path]) -> None:
    assert re.search(r"last stop  clean +\n  scanned +0 of [\d,]+ bytes", demo[0])


def test_the_demo_ends_with_a_pipeline_that_counts_what_was_sent(demo: tuple[str, Path]) -> None:
    shown = demo[0].partition("\nCount ")[2]
    assert re.search(r"readings +6,000 +[\d.]+ MiB +50 +0", shown)
    assert "no duplicate and no gap among 6,000 numbered messages" in shown
    assert "latency in ms" in shown
    for path in re.findall(r"written: (\S+\.png)", shown):
        assert (ROOT / path).read_bytes().startswith(b"\x89PNG")


def test_without_java_the_demo_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def find_none() -> Path:
        raise JavaNotFoundError("Spark needs Java 17 or 21, and there is none")

    monkeypatch.setattr(pipeline_demo, "find_java", find_none)
    shown = io.StringIO()
    PipelineDemo(str(tmp_path), Console(file=shown, width=80)).run()
    assert "Left out, for it runs on Spark: Spark needs Java 17 or 21, and there is none" in shown.getvalue()


def test_without_pyspark_the_demo_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_demo, "find_spec", lambda name: None if name == "pyspark" else name)
    assert missing_for_spark() == "pyspark missing. Install what pipelines need: pip install 'penstock-mq[spark]'"


def test_the_demo_leaves_nothing_behind(demo: tuple[str, Path]) -> None:
    assert list(demo[1].iterdir()) == []


def test_the_demo_fits_a_narrow_terminal(demo: tuple[str, Path]) -> None:
    assert max(map(len, demo[0].splitlines())) <= 80
    assert "…" not in demo[0], "a table is too wide"


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_the_demo_shows_two_consumers_that_share_a_topic_and_one_that_takes_over(demo: tuple[str, Path]) -> None:
    shared = demo[0].partition("\nShare ")[2].partition("\nLook ")[0]
    assert re.search(r"ada +[0-2](, [0-2])?\s+grace +[0-2](, [0-2])?\s", shared)
    assert "Then ada commits and leaves." in shared
    assert re.search(r"grace +0, 1, 2\s", shared)
    assert "Every message was read once" in shared
