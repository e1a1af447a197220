"""The reference that is written from the code: configs, metrics, settings, commands, names."""

import importlib
from dataclasses import fields
from pathlib import Path

import click
import pytest

from penstock.broker.config.broker_table import BROKER_CONFIGS
from penstock.broker.config.topic_table import TOPIC_CONFIGS
from penstock.broker.metrics.catalogue import BROKER_FAMILIES, GROUP_FAMILIES, PARTITION_FAMILIES, TOPIC_FAMILIES
from penstock.cli.main import penstock
from penstock.client.cluster.security import SECURITY_SETTINGS
from penstock.client.settings import ConsumerSettings, ProducerSettings
from tools import reference
from tools.reference import brokers, clients, commands, names


@pytest.mark.parametrize("name", reference.PAGES)
def test_the_committed_page_is_what_the_tables_say(name: str) -> None:
    page = reference.FOLDER / name
    assert page.read_text() == reference.PAGES[name](), "run: python -m tools.reference"


def test_every_config_has_its_line() -> None:
    broker_rows, topic_rows = 0, 0
    for line in brokers.render_configs().splitlines():
        if line.startswith("| `"):
            name = line.split("`")[1]
            broker_rows += name in BROKER_CONFIGS
            topic_rows += name in TOPIC_CONFIGS
    both = len(BROKER_CONFIGS.keys() & TOPIC_CONFIGS.keys())
    internal = sum(key.internal for key in TOPIC_CONFIGS.values())
    assert broker_rows == len(BROKER_CONFIGS) + both
    assert topic_rows == len(TOPIC_CONFIGS) + both - internal


def test_every_metric_has_its_line() -> None:
    names = [line.split("`")[1] for line in brokers.render_metrics().splitlines() if line.startswith("| `")]
    broker = [item.head.name for items in BROKER_FAMILIES.values() for item in items]
    logs = [item.head.name for item in (*TOPIC_FAMILIES, *PARTITION_FAMILIES)]
    assert names == broker + logs + [item.head.name for item in GROUP_FAMILIES]


def test_every_setting_of_a_client_has_its_line_and_says_what_it_is() -> None:
    page = clients.render_settings()
    for name in {each.name for kind in (ProducerSettings, ConsumerSettings) for each in fields(kind)} - {"security"}:
        [line] = [
            line for line in page.splitlines() if line.startswith(f"| `{clients.dotted(name)}`") and "." in line[-3:]
        ]
        assert line
    assert all(f"`{name}`" in page for name in SECURITY_SETTINGS)


def test_every_command_has_its_section_with_every_option() -> None:
    page = commands.render_commands()
    root = click.Context(penstock, info_name="penstock")
    found = [
        (context, each) for context, each in commands.commands(root, penstock) if not isinstance(each, click.Group)
    ]
    assert len(found) > 15
    for context, command in found:
        section = page.partition(f"\n## {context.command_path}\n")[2].partition("\n## ")[0]
        assert section, context.command_path
        for option in command.params:
            assert option.param_type_name == "argument" or max(option.opts, key=len) in section, option


def test_every_public_name_has_its_line() -> None:
    page = names.render_names()
    for package in names.PACKAGES:
        section = page.partition(f"\n## {package}\n")[2].partition("\n## ")[0]
        for name in importlib.import_module(package).__all__:
            assert f"### {package}.{name}\n" in section or f"| `{name}" in section, name


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
