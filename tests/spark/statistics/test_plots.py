"""Pictures: they are there, something is on them, and their scales and titles say what it is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from penstock.spark.statistics.plots import MAX_TOPICS, _plain, differ, draw_plots, has_peaks, spread, step_edges
from penstock.spark.statistics.run import Bar, Stats, TopicStats
from penstock.spark.statistics.times import TimeStats
from tests.spark.counted import EMPTY, HOUR_MS, NOON_MS, ORDERS, made

DAY_MS = 24 * HOUR_MS


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure]:
    """The figures by the names of their files, which are not written."""
    found: dict[str, Figure] = {}

    def keep(figure: Figure, path: Path) -> None:
        found[path.name] = figure

    monkeypatch.setattr(Figure, "savefig", keep)
    return found


def colours(path: Path) -> int:
    """How many different pixels; an empty sheet has one."""
    picture = imread(path)
    return len({tuple(pixel) for pixel in picture.reshape(-1, picture.shape[2])[::7].tolist()})


def topic(name: str, messages: int, **more: Any) -> TopicStats:
    ratio = messages / ORDERS.messages
    bars = tuple(replace(each, messages=max(1, round(each.messages * ratio))) for each in ORDERS.size_bars)
    changed: dict[str, Any] = {"topic": name, "messages": messages, "size_bars": bars}
    return replace(ORDERS, **(changed | more))


def stats(*topics: TopicStats, span_ms: int = HOUR_MS) -> Stats:
    """Topics whose messages came evenly, in a hundred moments of the time."""
    times = [
        TimeStats(each.topic, NOON_MS + span_ms * number // 100 // 1000 * 1000, 1000, max(1, each.messages // 100))
        for each in topics
        for number in range(100)
    ]
    at_ms = NOON_MS + span_ms
    return replace(made(*topics), times=tuple(times), cluster="kafka-1:9092", at_ms=at_ms)


def texts(figure: Figure) -> str:
    """The title and the line below it."""
    return " | ".join(each.get_text().strip() for each in figure.texts)


def test_all_pictures_are_drawn(tmp_path: Path) -> None:
    paths = draw_plots(made(), tmp_path / "pictures")
    assert [path.name for path in paths] == ["traffic.png", "sizes.png", "partitions.png", "latency.png"]
    assert all(colours(path) > 10 for path in paths)


@pytest.mark.parametrize(
    ("span_ms", "title", "times"),
    [
        (10_000, "Messages per second", "2023-11-14 22:00:00 to 22:00:10 UTC"),
        (HOUR_MS, "Messages per 30 seconds", "2023-11-14 22:00:00 to 22:59:25 UTC"),
        (40 * DAY_MS, "Messages per 12 hours", "2023-11-14 22:00 to 2023-12-24 12:24 UTC"),
    ],
)
def test_the_title_has_the_width_of_a_bar_the_total_the_time_and_the_cluster(
    tmp_path: Path, figures: dict[str, Figure], span_ms: int, title: str, times: str
) -> None:
    draw_plots(stats(topic("orders", 12_300), span_ms=span_ms), tmp_path)
    told = f"12,300 messages  ·  {times}  ·  cluster kafka-1:9092"
    assert texts(figures["traffic.png"]) == f"{title}: orders | {told} | UTC | messages"
    assert all(told in texts(each) for each in figures.values())


def test_topics_of_similar_sizes_are_stacked(tmp_path: Path, figures: dict[str, Figure]) -> None:
    draw_plots(stats(topic("a", 1000), topic("b", 2000), topic("c", 20_000)), tmp_path)
    (axes,) = figures["traffic.png"].axes
    assert axes.get_yscale() == "linear"
    bottoms = [min(bar.get_y() for bar in bars) for bars in axes.containers]
    assert bottoms == [0, 10, 30]
    (legend,) = figures["traffic.png"].legends
    assert [each.get_text() for each in legend.get_texts()] == ["a  (1,000)", "b  (2,000)", "c  (20,000)"]


def test_topics_of_very_different_sizes_have_panels_with_one_logarithmic_scale(
    tmp_path: Path, figures: dict[str, Figure]
) -> None:
    draw_plots(stats(*(topic(f"t{power}", 100 * 10**power) for power in range(5))), tmp_path)
    panels = figures["traffic.png"].axes
    assert [each.get_title(loc="left") for each in panels] == [f"t{power}  ({100 * 10**power:,})" for power in range(5)]
    assert {each.get_yscale() for each in panels} == {"log"}
    assert len({each.get_ylim() for each in panels}) == 1
    assert panels[0].get_ylim()[0] < 1
    assert panels[0].get_ylim()[1] > 10_000
    assert {each.get_yscale() for each in figures["sizes.png"].axes} == {"log"}
    assert {each.get_yscale() for each in figures["partitions.png"].axes} == {"linear"}


def test_a_peak_makes_the_scale_of_one_topic_logarithmic(tmp_path: Path, figures: dict[str, Figure]) -> None:
    calm = stats(topic("orders", 12_300))
    draw_plots(calm, tmp_path)
    assert figures["traffic.png"].axes[0].get_yscale() == "linear"
    draw_plots(replace(calm, times=(*calm.times, TimeStats("orders", NOON_MS, 1000, 1_000_000))), tmp_path)
    assert figures["traffic.png"].axes[0].get_yscale() == "log"
    assert has_peaks([1, 1, 101])
    assert not has_peaks([1, 1, 100])
    assert not has_peaks([0])


def test_sizes_that_differ_much_have_a_logarithmic_axis(tmp_path: Path, figures: dict[str, Figure]) -> None:
    draw_plots(stats(topic("orders", 30)), tmp_path)
    assert figures["sizes.png"].axes[0].get_xscale() == "linear"
    wide = topic("orders", 30, size_bars=(Bar(0, 1, 5), Bar(10, 11, 5), Bar(90_000, 100_000, 5)))
    draw_plots(stats(wide), tmp_path)
    assert figures["sizes.png"].axes[0].get_xscale() == "log"
    assert differ([1, 51], 50)
    assert not differ([0, 1, 50], 50)


@pytest.mark.parametrize("is_log", [False, True])
def test_a_histogram_has_every_message_once(is_log: bool) -> None:
    bars = [Bar(0, 1, 5), Bar(10, 11, 7), Bar(400.0, 421.0, 9)]
    heights = spread(bars, step_edges(0, 421, is_log=is_log))
    assert sum(heights) == pytest.approx(21 if not is_log else 16 + 5 * 0.5, abs=2.6)
    assert max(heights) >= 5


def test_numbers_have_separators_and_no_powers_of_ten() -> None:
    assert [_plain(each) for each in (0, 0.25, 1, 1_500, 10_000_000)] == ["0", "0.25", "1", "1,500", "10,000,000"]


def test_of_many_topics_the_busiest_are_drawn_and_the_title_says_so(tmp_path: Path, figures: dict[str, Figure]) -> None:
    draw_plots(stats(*(topic(f"t{number}", 1000 + number) for number in range(MAX_TOPICS + 2))), tmp_path)
    assert "the 8 busiest of 10 topics" in texts(figures["traffic.png"])


def test_several_topics_share_a_picture_whatever_they_are_called(tmp_path: Path) -> None:
    second = replace(ORDERS, topic="_$x_$", latency_ms=None, latency_bars=())
    paths = draw_plots(stats(second, ORDERS), tmp_path)
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
    paths = draw_plots(stats(*others, ORDERS), tmp_path)
    assert [path.name for path in paths] == ["traffic.png", "sizes.png", "partitions.png", "latency.png"]
    assert colours(paths[-1]) > 10


@pytest.mark.parametrize(
    ("times_ms", "count"),
    [
        pytest.param([NOON_MS * 1000], 3, id="microseconds, and nothing else"),
        pytest.param([NOON_MS, 2**63 // HOUR_MS * HOUR_MS], 4, id="the last of all"),
        pytest.param([253_402_300_798_000, 253_402_300_800_000], 4, id="the last that a date has, and the next"),
        pytest.param([0], 4, id="1970"),
        pytest.param([NOON_MS, 252_000_000_000_000], 4, id="one so late that its margin has no date"),
    ],
)
def test_a_time_that_no_date_has_stops_no_picture(tmp_path: Path, times_ms: list[int], count: int) -> None:
    times = tuple(TimeStats("orders", each, 1000, 5) for each in times_ms)
    paths = draw_plots(replace(made(ORDERS), times=times), tmp_path)
    assert len(paths) == count
    assert all(colours(path) > 10 for path in paths)
