"""The names and paths that users have written into their programs and settings: they stay, wherever modules move."""

import importlib
import logging
import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]

PACKAGES = {
    "penstock.client": (
        "Producer Consumer Admin Message MessageId RecordMetadata NewMessage BatchResult BatchError SendFuture "
        "TopicPartition NewTopic Deduplicator BYTES STRING JSON Json ClientError BrokerError MissingMessageError "
        "CorruptBatchError PushError BufferFullError SettingsError SerializationError "
        "ClientStats ProducerStats ConsumerStats ConnectionEvent TimedOutError NoBrokerError UnknownTopicError"
    ),
    "penstock.client.sync": "Producer Consumer Admin Sending",
    "penstock.testing": "Broker Clock Cluster Fault Faults Node",
    "penstock.spark": "session archive replay read stats SETTINGS publish_progress progress TopicProgress find_java",
}
"""What a package exports, all of it: who adds a name adds it here."""

NAMES = {
    # By name in documentation and settings.
    "penstock.client.settings": "ClientSettings ConsumerSettings ProducerSettings SettingsError",
    "penstock.spark.daemon": "",
    "penstock.cli.main": "main",
    "penstock.cli.pipeline": "pipeline",
    "penstock.testing.plugin": "penstock_broker penstock_topic penstock_broker_factory penstock_cluster",
    "penstock.spark.statistics.files": "write_tables",
    "penstock.spark.statistics.plots": "draw_plots",
    "penstock.spark.statistics.topic": "publish_stats",
    "pyspark_penstock": "DefaultSource",
    # Former addresses.
    "penstock.client.batch_results": "NewMessage SentRows FailedRows BatchResult BatchError",
    "penstock.spark.stats_files": "write_tables",
    "penstock.spark.stats_plots": "draw_plots",
    "penstock.spark.stats_topic": "publish_stats",
}

FUNCTIONS = ("session", "archive", "replay", "read", "stats", "publish_progress", "progress", "find_java")


def imports_in(page: Path) -> set[tuple[str, str]]:
    """What a page's code imports of ours: (module, name), and (module, "") for an import of the module itself."""
    text = page.read_text(encoding="utf-8")
    found = {
        (module, name.strip().partition(" ")[0])
        for module, names in re.findall(r"from (penstock[\w.]*) import ([\w, ]+)", text)
        for name in names.split(",")
    }
    return found | {(module, "") for module in re.findall(r"(?<!\w)import (penstock[\w.]*)", text)}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_exports_what_it_has_exported(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(module.__all__) == sorted(PACKAGES[package].split())
    for name in module.__all__:
        assert hasattr(module, name), name


@pytest.mark.parametrize("module", NAMES)
def test_a_module_is_where_users_import_it_from(module: str) -> None:
    imported = importlib.import_module(module)
    for name in NAMES[module].split():
        assert hasattr(imported, name), name


def test_what_stands_at_a_former_address_is_what_stands_at_the_new_one() -> None:
    import penstock.client.batch_results as former
    from penstock.client import NewMessage

    assert former.NewMessage is NewMessage


def test_functions_of_the_pipeline_are_not_shadowed_by_modules() -> None:
    # In a process of its own: importing a submodule puts it in place of the attribute of that name.
    program = f"import penstock.spark as s; print([n for n in {FUNCTIONS!r} if not callable(getattr(s, n))])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_the_guides_import_is_there(page: Path) -> None:
    for module, name in imports_in(page):
        imported = importlib.import_module(module)
        assert not name or hasattr(imported, name), f"{page.name}: from {module} import {name}"


def test_imports_are_found_in_the_guides() -> None:
    everything = {each for page in PAGES for each in imports_in(page)}
    assert ("penstock.client", "Producer") in everything
    assert ("penstock.spark.statistics.plots", "draw_plots") in everything
    assert ("penstock.cli.pipeline", "") in everything


def test_the_format_of_spark_is_called_penstock() -> None:
    from pyspark_penstock import DefaultSource

    assert DefaultSource.name() == "penstock"


def test_the_file_that_spark_submit_is_given_runs_the_commands() -> None:
    from penstock.cli import pipeline

    assert pipeline.__file__ is not None
    ran = subprocess.run([sys.executable, pipeline.__file__, "--help"], capture_output=True, text=True, check=True)
    assert all(command in ran.stdout for command in ("archive", "replay", "stats"))


def test_the_setting_of_spark_names_a_module_that_is_there() -> None:
    from penstock.spark import SETTINGS

    assert SETTINGS["spark.python.daemon.module"] == "penstock.spark.daemon"


def test_the_sink_logs_below_the_logger_that_the_guide_names() -> None:
    from penstock.spark.sink import sink

    named = logging.getLogger("penstock.spark.sink")
    assert sink.log is named or sink.log.parent is named


def test_the_command_and_the_pytest_plugin_are_called_penstock() -> None:
    [script] = {each.value for each in entry_points(group="console_scripts", name="penstock")}
    [plugin] = {each.value for each in entry_points(group="pytest11", name="penstock")}
    assert script == "penstock.cli.main:main"
    assert plugin == "penstock.testing.plugin"


def test_messages_and_docs_install_the_distribution_by_its_name() -> None:
    # PyPI has another project named penstock.
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] == "penstock-mq"
    texts = [*PAGES, *ROOT.glob("docs/decisions/*.md"), *ROOT.glob("src/**/*.py"), *ROOT.glob("tools/**/*.py")]
    wrong = re.compile(r"pip install ['\"]?penstock(?!-mq)|penstock\[(?:arrow|numba|security|spark)\]")
    assert [path.name for path in texts if wrong.search(path.read_text(encoding="utf-8"))] == []
