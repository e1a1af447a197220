"""Shows in the guide to faults what `make chaos` has measured: `python -m tools.chaos.page` writes it there, as does a
run."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Final

from tools.chaos.clients.work import BESIDE
from tools.chaos.faults import FAULTS
from tools.chaos.progress import ROOT
from tools.chaos.report import complaints, course, gone, times
from tools.chaos.round import Result

GUIDE: Final = ROOT / "docs/guides/faults.md"
RESULTS: Final = ROOT / "benchmarks/results/chaos.json"
BEGIN: Final = "<!-- Written by `make chaos`, and by `python -m tools.chaos.page`. -->"
END: Final = "<!-- Until here. -->"
WIDTH: Final = 120
HEAD: Final = (
    "| fault | rounds | writes back, s: median | worst | pause, s: median | worst | `acks=1` lost | `os` lost |",
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
)
_WRITTEN_WITH: Final = {"acks1": "`acks=1`", "os": "`acks=all` and `penstock.flush=os`"}


def main() -> None:
    GUIDE.write_text(with_results(GUIDE.read_text(), load(RESULTS)))


def load(path: Path) -> list[Result]:
    return [Result(**one) for one in json.loads(path.read_text())]


def with_results(guide: str, results: Sequence[Result]) -> str:
    """The guide with what belongs between its marks."""
    before, found, rest = guide.partition(BEGIN)
    _, ended, after = rest.partition(END)
    assert found, f"{BEGIN} is missing in {GUIDE}"
    assert ended, f"{END} is missing in {GUIDE}"
    return f"{before}{BEGIN}\n\n{_measured(results)}\n{END}{after}"


def _measured(results: Sequence[Result]) -> str:
    rows = [_row(fault, [one for one in results if one.fault == fault]) for fault in FAULTS]
    wrong = [f"- {line}" for one in results for line in complaints(one)]
    parts = [_filled(course(results)), [*HEAD, *(row for row in rows if row)], _filled(_lost(results)), wrong]
    return "\n".join("\n".join([*part, ""]) for part in parts if part)


def _row(fault: str, results: Sequence[Result]) -> str:
    if not results:
        return ""
    lost = (gone(results, topic) for topic in BESIDE)
    return f"| `{fault}`: {FAULTS[fault].what} | {' | '.join([str(len(results)), *times(results), *lost])} |"


def _lost(results: Sequence[Result]) -> str:
    """What less than acks=all with flushes has cost, and by which faults."""
    sentences = []
    for topic in BESIDE:
        losing = [one.fault for one in results if one.beside.get(topic, [0, 0])[1]]
        told = f"Of messages acknowledged with {_WRITTEN_WITH[topic]}, {gone(results, topic)} were lost"
        sentences.append(f"{told}, by {_listed(losing)}." if losing else f"{told}.")
    return " ".join(sentences)


def _listed(faults: Iterable[str]) -> str:
    *others, last = [f"`{fault}`" for fault in FAULTS if fault in set(faults)]
    return f"{', '.join(others)} and {last}" if others else last


def _filled(text: str) -> list[str]:
    return [fill(text, WIDTH, break_on_hyphens=False)]


if __name__ == "__main__":
    main()
