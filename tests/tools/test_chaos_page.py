"""The guide to faults shows the last run of `make chaos`, and speaks of what there is: faults, log lines, alarms."""

import re
from collections import Counter

import pytest

from tools.chaos.faults import FAULTS
from tools.chaos.page import BEGIN, END, GUIDE, RESULTS, load, with_results
from tools.chaos.progress import ROOT
from tools.chaos.round import Result

TEXT = GUIDE.read_text()
ALARMS = (ROOT / "docs/monitoring/penstock.rules.yml").read_text()
SOURCES = [path.read_text() for path in (ROOT / "src/penstock").rglob("*.py")]


def test_the_guide_shows_the_last_run() -> None:
    assert with_results(TEXT, load(RESULTS)) == TEXT, "run: python -m tools.chaos.page"


def test_a_run_makes_the_page_anew_and_leaves_what_stands_around() -> None:
    marks = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    results = [
        Result("1-kill-1", "kill", back_seconds=1.0, pause_seconds=3.0, beside={"acks1": [1000, 2], "os": [900, 0]}),
        Result("1-kill-2", "kill", back_seconds=2.0, pause_seconds=5.0, beside={"acks1": [1000, 0], "os": [900, 0]}),
        Result("1-power-1", "power", beside={"acks1": [10, 1], "os": [10, 0]}),
    ]
    page = with_results(marks, results)
    assert page.startswith(f"before\n{BEGIN}\n")
    assert page.endswith(f"{END}\nafter\n")
    assert "| `kill`: kill -9 of a broker | 2 | 1.5 | 2.0 | 4.0 | 5.0 | 2 of 2,000 | 0 of 1,800 |\n" in page
    assert "| 1 | – | – | – | – | 1 of 10 | 0 of 10 |\n" in page
    told = " ".join(page.split())
    assert "Of messages acknowledged with `acks=1`, 3 of 2,010 were lost, by `kill` and `power`." in told
    assert "`penstock.flush=os`, 0 of 1,810 were lost." in told
    assert with_results(page, results) == page


def test_a_round_in_which_something_was_wrong_is_named() -> None:
    bad = Result("1-wipe-1", "wipe", "leader", 2, anomalies=["lost: 17"])
    page = with_results(f"{BEGIN}\n{END}\n", [bad])
    assert "- round 1-wipe-1 (leader on host 2): lost: 17\n" in page


def test_every_fault_has_one_section() -> None:
    headings = [line for line in TEXT.splitlines() if line.startswith("### ")]
    named = Counter(name for line in headings for name in re.findall(r"`([\w-]+)`", line))
    assert named == dict.fromkeys(FAULTS, 1)


def test_every_alarm_that_the_guide_names_is_one() -> None:
    named = set(re.findall(r"`(Penstock\w+)`", TEXT))
    assert len(named) > 8
    assert named == {name for name in named if f"alert: {name}\n" in ALARMS}


def lines_of_the_log() -> list[str]:
    table = TEXT.partition("| line of a broker's log |")[2].partition("\n\n")[0]
    return [line for row in table.splitlines()[2:] for line in re.findall(r"`([^`]+)`", row.split("|")[1])]


@pytest.mark.parametrize("line", lines_of_the_log())
def test_brokers_log_the_line_that_the_guide_explains(line: str) -> None:
    assert any(f'"{line}' in source for source in SOURCES)
