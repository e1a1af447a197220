"""The reference that is written from the tables of configs and of metrics."""

from pathlib import Path

import pytest

from penstock.broker.config.broker_table import BROKER_CONFIGS
from penstock.broker.config.topic_table import TOPIC_CONFIGS
from penstock.broker.metrics.catalogue import BROKER_FAMILIES, GROUP_FAMILIES, PARTITION_FAMILIES, TOPIC_FAMILIES
from tools import reference


@pytest.mark.parametrize("name", reference.PAGES)
def test_the_committed_page_is_what_the_tables_say(name: str) -> None:
    page = reference.FOLDER / name
    assert page.read_text() == reference.PAGES[name](), "run: python -m tools.reference"


def test_every_config_has_its_line() -> None:
    broker_rows, topic_rows = 0, 0
    for line in reference.render_configs().splitlines():
        if line.startswith("| `"):
            name = line.split("`")[1]
            broker_rows += name in BROKER_CONFIGS
            topic_rows += name in TOPIC_CONFIGS
    both = len(BROKER_CONFIGS.keys() & TOPIC_CONFIGS.keys())
    internal = sum(key.internal for key in TOPIC_CONFIGS.values())
    assert broker_rows == len(BROKER_CONFIGS) + both
    assert topic_rows == len(TOPIC_CONFIGS) + both - internal


def test_every_metric_has_its_line() -> None:
    names = [line.split("`")[1] for line in reference.render_metrics().splitlines() if line.startswith("| `")]
    broker = [item.head.name for items in BROKER_FAMILIES.values() for item in items]
    logs = [item.head.name for item in (*TOPIC_FAMILIES, *PARTITION_FAMILIES)]
    assert names == broker + logs + [item.head.name for item in GROUP_FAMILIES]


@pytest.mark.parametrize("name", reference.PAGES)
def test_every_row_of_a_table_has_the_cells_of_its_head(name: str) -> None:
    cells = 0
    for line in reference.PAGES[name]().splitlines():
        count = line.replace("\\|", "").count("|")
        if line.startswith("| Name"):
            cells = count
        elif line.startswith("|"):
            assert count == cells, line


def test_a_page_that_is_not_up_to_date_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reference, "FOLDER", tmp_path / "reference")
    assert reference.main(["--check"]) == 1
    assert "run: python -m tools.reference" in capsys.readouterr().out
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0
    (tmp_path / "reference" / "metrics.md").unlink()
    assert reference.main(["--check"]) == 1
