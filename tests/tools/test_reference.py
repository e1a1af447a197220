"""The reference that is written from the tables of configs."""

from pathlib import Path

import pytest

from penstock.broker.config.broker_table import BROKER_CONFIGS
from penstock.broker.config.topic_table import TOPIC_CONFIGS
from tools import reference


def test_the_committed_page_is_what_the_tables_say() -> None:
    assert reference.TARGET.read_text() == reference.render(), "run: python -m tools.reference"


def test_every_config_has_its_line() -> None:
    broker_rows, topic_rows = 0, 0
    for line in reference.render().splitlines():
        if line.startswith("| `"):
            name = line.split("`")[1]
            broker_rows += name in BROKER_CONFIGS
            topic_rows += name in TOPIC_CONFIGS
    both = len(BROKER_CONFIGS.keys() & TOPIC_CONFIGS.keys())
    internal = sum(key.internal for key in TOPIC_CONFIGS.values())
    assert broker_rows == len(BROKER_CONFIGS) + both
    assert topic_rows == len(TOPIC_CONFIGS) + both - internal


def test_every_row_of_a_table_has_the_cells_of_its_head() -> None:
    cells = 0
    for line in reference.render().splitlines():
        count = line.replace("\\|", "").count("|")
        if line.startswith("| Name"):
            cells = count
        elif line.startswith("|"):
            assert count == cells, line


def test_a_page_that_is_not_up_to_date_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reference, "TARGET", tmp_path / "reference" / "configs.md")
    assert reference.main(["--check"]) == 1
    assert "run: python -m tools.reference" in capsys.readouterr().out
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0
