"""The dashboard has the structure that Grafana reads, and asks for what brokers show. No Grafana takes part."""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.tools.rules import misused, promtool
from tools import monitoring
from tools.monitoring.dashboard import COLUMNS, HEADS, ROWS, Panel, metrics

PANELS = [panel for panels in ROWS.values() for panel in panels]


@pytest.fixture(scope="module")
def shown() -> Any:
    return json.loads((monitoring.FOLDER / "penstock.grafana.json").read_text())


@pytest.mark.parametrize("name", monitoring.FILES)
def test_the_committed_file_is_what_the_tables_say(name: str) -> None:
    assert (monitoring.FOLDER / name).read_text() == monitoring.FILES[name](), "run: python -m tools.monitoring"


def test_a_file_that_is_not_up_to_date_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(monitoring, "FOLDER", tmp_path / "monitoring")
    assert monitoring.main(["--check"]) == 1
    assert "run: python -m tools.monitoring" in capsys.readouterr().out
    assert monitoring.main([]) == 0
    assert monitoring.main(["--check"]) == 0


def test_it_is_of_a_schema_that_grafana_still_reads(shown: Any) -> None:
    assert shown["schemaVersion"] >= 39
    assert {"title", "uid", "templating", "time", "panels"} <= shown.keys()
    # An id is given by the Grafana that imports it.
    assert "id" not in shown


def test_its_rows_are_in_the_order_in_which_one_looks(shown: Any) -> None:
    assert [panel["title"] for panel in shown["panels"] if panel["type"] == "row"] == list(ROWS)


def test_every_panel_has_an_id_of_its_own_and_queries(shown: Any) -> None:
    ids = [panel["id"] for panel in shown["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in shown["panels"]:
        if panel["type"] != "row":
            refs = [target["refId"] for target in panel["targets"]]
            assert refs
            assert len(set(refs)) == len(refs)
            assert all(target["expr"] for target in panel["targets"])
            assert panel["description"]


def test_no_panel_lies_on_another_or_beyond_the_edge(shown: Any) -> None:
    def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
        return (
            one["x"] < other["x"] + other["w"]
            and other["x"] < one["x"] + one["w"]
            and one["y"] < other["y"] + other["h"]
            and other["y"] < one["y"] + one["h"]
        )

    places = [panel["gridPos"] for panel in shown["panels"]]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= COLUMNS for place in places)
    assert [pair for pair in combinations(places, 2) if overlap(*pair)] == []


def test_data_source_cluster_and_brokers_can_be_chosen(shown: Any) -> None:
    variables = {each["name"]: each for each in shown["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance"]
    used = {name for name in re.findall(r"\$\{?(\w+)", json.dumps(shown)) if not name.startswith("__")}
    assert used == set(variables)
    for name in ("job", "instance"):
        assert metrics(variables[name]["definition"]) == ["penstock_build_info"]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_panels_read_what_the_catalogue_has_with_its_labels(panel: Panel) -> None:
    for query in panel.queries:
        assert misused(query.expr) == []
        assert query.expr.count("(") == query.expr.count(")")
        labels = {label for name in metrics(query.expr) for label in HEADS[name].labels} | {"job", "instance"}
        assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= labels


def test_promtool_can_read_every_query(shown: Any, tmp_path: Path) -> None:
    queries = [target["expr"] for panel in shown["panels"] for target in panel.get("targets", ())]
    rules = [
        {"record": f"query:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(queries)
    ]
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(path))


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_counters_are_shown_by_their_growth(panel: Panel) -> None:
    for query in panel.queries:
        for name in metrics(query.expr):
            if HEADS[name].kind != "gauge":
                assert re.search(rf"(rate|increase)\({name}", query.expr), query.expr
