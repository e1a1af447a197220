"""`penstock pipeline stats`."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from penstock.cli.main import penstock
from penstock.cli.pipeline.stats import show_stats, tell
from penstock.testing import Broker
from tests.cli.pipelines import call, fill, spark
from tests.spark.counted import ORDERS, made

__all__ = ["spark"]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as made:
        made.create_topic("orders", 2)
        made.create_topic("payments")
        fill(made, "orders", 100)
        fill(made, "orders", 50, 1)
        fill(made, "payments", 10)
        yield made


@pytest.mark.usefixtures("spark")
def test_topics_are_counted_to_tables_files_pictures_and_a_topic(broker: Broker, tmp_path: Path) -> None:
    folders = ["--parquet", str(tmp_path / "counts"), "--plots", str(tmp_path / "plots")]
    output, _ = call(broker, "pipeline", "stats", "orders", "payments", *folders, "--publish")
    lines = [line.split() for line in output.splitlines()]
    assert ["orders", "150", "280", "B", "0", "150"] in lines
    assert ["payments", "10", "10", "B", "0", "10"] in lines
    assert "latency of orders, payments: not known" in output
    assert "2 messages sent to penstock.stats" in output
    assert pq.read_table(tmp_path / "counts" / "topics.parquet")["messages"].to_pylist() == [150, 10]
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"traffic.png", "sizes.png", "partitions.png"}
    output, _ = call(broker, "pipeline", "stats", "penstock.stats", "--last", "1h", "-O", "json")
    (told,) = json.loads(output)
    assert (told["messages"], {each["key"] for each in told["top_keys"]}) == (2, {"orders", "payments"})


@pytest.mark.usefixtures("spark")
def test_what_goes_wrong_is_told_in_a_sentence(broker: Broker, tmp_path: Path) -> None:
    _, errors = call(broker, "pipeline", "stats", "order", exit_code=1)
    assert "did you mean 'orders'?" in errors
    _, errors = call(broker, "pipeline", "stats", "orders", "--lake", str(tmp_path), exit_code=1)
    assert "archive the topic first" in errors


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "Missing argument 'TOPIC...'"),
        (["orders", "--last", "soon"], "'soon' is no time: write one as 1h, 90s or 1d12h"),
        (["orders", "--last", "1h", "--since", "-2h"], "--last and --since both say where to begin"),
        (["orders", "payments", "--lake", "/lake"], "write it as TOPIC=/lake"),
    ],
)
def test_options_are_checked_before_spark_starts(args: list[str], message: str) -> None:
    result = CliRunner().invoke(penstock, ["pipeline", "stats", *args])
    assert result.exit_code == 2
    assert message in result.stderr


def test_tables_have_what_matters_first(capsys: pytest.CaptureFixture[str]) -> None:
    show_stats(made(ORDERS), top=1)
    assert capsys.readouterr().out == SHOWN


def test_topics_whose_latency_is_not_known_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    untimed = replace(ORDERS, latency_ms=None, latency_bars=())
    show_stats(made(untimed, replace(untimed, topic="payments")), top=1)
    assert "\nlatency of orders, payments: not known, for messages carry one time only" in capsys.readouterr().out


def test_what_was_counted_is_printed_even_if_it_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(click.ClickException, match=r"not everything is written: .*file"):
        tell(made(ORDERS), top=1, output="table", plots=str(tmp_path / "file"))
    assert capsys.readouterr().out == SHOWN
    with pytest.raises(click.ClickException, match="not everything is written"):
        tell(made(ORDERS), top=1, output="json", parquet=str(tmp_path / "file"))
    assert json.loads(capsys.readouterr().out)[0]["topic"] == "orders"


def test_nothing_but_json_is_printed_if_that_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tell(made(ORDERS), top=1, output="json", parquet=str(tmp_path))
    assert json.loads(capsys.readouterr().out)[0]["messages"] == 30
    assert (tmp_path / "topics.parquet").exists()


def test_hours_that_no_date_has_are_numbers_and_come_before_all_others(capsys: pytest.CaptureFixture[str]) -> None:
    whole = made(ORDERS)
    late = [replace(whole.hours[-1], hour_ms=hour_ms) for hour_ms in (999_999_997_200_000, 1_699_999_999_999_200_000)]
    show_stats(replace(whole, hours=(*whole.hours, *late)), top=3)
    table = capsys.readouterr().out.partition("hours (UTC)")[2].splitlines()[2:5]
    assert [line.split("  ")[0] for line in table] == [
        "1699999999999200000 ms",
        "999999997200000 ms",
        "2023-11-14T23:00",
    ]


def test_faults_without_a_place_are_faults_none_the_less(capsys: pytest.CaptureFixture[str]) -> None:
    whole = made(ORDERS)
    show_stats(replace(whole, audits=tuple(replace(each, findings=()) for each in whole.audits)), top=3)
    assert "no duplicate and no gap" not in capsys.readouterr().out
    show_stats(replace(whole, audits=whole.audits[1:]), top=3)
    assert "no duplicate and no gap among 10 numbered messages" in capsys.readouterr().out


SHOWN = """\
TOPIC   MESSAGES    BYTES  KEYS  WITHOUT KEY
orders        30  2.9 KiB     2           10

sizes in bytes
TOPIC   MIN  MEAN  P50  P95  P99  MAX
orders   10   100   90  300  400  420

latency in ms, from the producer's time to the broker's
TOPIC   MIN  MEAN  P50  P95  P99  MAX
orders    0    12    8   40   45   50

2 messages of orders came before they were sent: compare clocks

partitions, the hottest first (1 of 2)
PARTITION  MESSAGES    BYTES  TIMES MEAN
        0        20  2.0 KiB  1.33

hours (UTC), the latest first (1 of 2)
HOUR              MESSAGES  BYTES   RATE
2023-11-14T23:00         6  500 B  0.0/s

keys, the most frequent first (1 of 2)
KEY  MESSAGES    BYTES  SHARE
ada        15  1.5 KiB  50.0 %

sequence numbers of producers, by partition (1 of 2)
PARTITION  NUMBERED  UNNUMBERED  PRODUCERS  DUPLICATES  GAPS  REMOVED  MISSING
        0        18           2          1           3     4        0        0

duplicates and gaps
PARTITION  KIND       PRODUCER ID  EPOCH  OFFSET  SEQUENCE  COUNT
        0  duplicate            7      0      12         9      3
"""
