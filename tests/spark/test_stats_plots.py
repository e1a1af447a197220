"""Pictures: they are there, and something is on them."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.image import imread

from penstock.spark.statistics import HourStats
from penstock.spark.stats_plots import draw_plots
from tests.spark.counted import EMPTY, HOUR_MS, NOON_MS, ORDERS, made


def colours(path: Path) -> int:
    """How many different pixels; an empty sheet has one."""
    picture = imread(path)
    assert picture.shape[:2] == (540, 1080)
    return len({tuple(pixel) for pixel in picture.reshape(-1, picture.shape[2])[::7].tolist()})


def test_all_pictures_are_drawn(tmp_path: Path) -> None:
    paths = draw_plots(made(), tmp_path / "pictures")
    assert [path.name for path in paths] == ["traffic.png", "sizes.png", "partitions.png", "latency.png"]
    assert all(colours(path) > 10 for path in paths)


def test_several_topics_share_a_picture_whatever_they_are_called(tmp_path: Path) -> None:
    whole = made(ORDERS)
    second = replace(ORDERS, topic="_$x_$", latency_ms=None, latency_bars=())
    hours = (*whole.hours, *(replace(each, topic="_$x_$") for each in whole.hours))
    paths = draw_plots(replace(whole, topics=(second, ORDERS), hours=hours), tmp_path)
    assert len(paths) == 4
    assert all(colours(path) > 10 for path in paths)


def test_without_latencies_there_is_no_picture_of_them_and_without_messages_none_at_all(tmp_path: Path) -> None:
    silent = replace(ORDERS, latency_ms=None, latency_bars=())
    assert [path.name for path in draw_plots(made(silent), tmp_path)] == ["traffic.png", "sizes.png", "partitions.png"]
    assert draw_plots(made(EMPTY), tmp_path / "none") == []


def test_latencies_are_drawn_of_the_busiest_topics_that_have_some(tmp_path: Path) -> None:
    others = [
        replace(ORDERS, topic=f"busy-{number}", messages=100, latency_ms=None, latency_bars=()) for number in range(8)
    ]
    paths = draw_plots(made(*others, ORDERS), tmp_path)
    assert [path.name for path in paths] == ["traffic.png", "sizes.png", "partitions.png", "latency.png"]
    assert colours(paths[-1]) > 10


@pytest.mark.parametrize(
    "hours_ms",
    [
        pytest.param([NOON_MS * 1000 // HOUR_MS * HOUR_MS], id="microseconds, and nothing else"),
        pytest.param([NOON_MS, 2**63 // HOUR_MS * HOUR_MS], id="the last of all"),
        pytest.param([NOON_MS, 253_402_297_200_000, 253_402_300_800_000], id="the last that a date has, and the next"),
        pytest.param([NOON_MS, 252_000_000_000_000], id="one so late that its margin has no date"),
    ],
)
def test_an_hour_that_no_date_has_stops_no_picture(tmp_path: Path, hours_ms: list[int]) -> None:
    hours = tuple(HourStats("orders", 0, each, 5, 50, 10, 10) for each in hours_ms)
    paths = draw_plots(replace(made(ORDERS), hours=hours), tmp_path)
    assert len(paths) == 4
    assert all(colours(path) > 10 for path in paths)
