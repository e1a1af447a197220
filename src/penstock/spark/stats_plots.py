"""Statistics as pictures: traffic by hour, sizes, shares of partitions, and latencies, a PNG each."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.statistics import Bar, Stats, TopicStats
from penstock.spark.stats_topic import by_hour

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS: Final = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")
SIZE_INCHES: Final = (9.0, 4.5)
DOTS_PER_INCH: Final = 120
MAX_TOPICS: Final = 8
"""In one picture: those with most messages. More are not told apart."""


def draw_plots(stats: Stats, folder: str | Path) -> list[Path]:
    """Write `traffic.png`, `sizes.png`, `partitions.png` and `latency.png` to a folder: those for which there is
    something to show. Returns their paths."""
    names = _busiest([each for each in stats.topics if each.messages])
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    if not names:
        return []
    drawn = [
        _draw(place / "traffic.png", lambda axes: _traffic(axes, stats, names)),
        _draw(place / "sizes.png", lambda axes: _sizes(axes, stats, names)),
        _draw(place / "partitions.png", lambda axes: _partitions(axes, stats, names)),
    ]
    if timed := _busiest([each for each in stats.topics if each.latency_ms is not None]):
        drawn.append(_draw(place / "latency.png", lambda axes: _latency(axes, stats, timed)))
    return drawn


def _busiest(topics: Sequence[TopicStats]) -> list[str]:
    """Those that a picture has room for, in the order in which they come."""
    chosen = {each.topic for each in sorted(topics, key=lambda each: -each.messages)[:MAX_TOPICS]}
    return [each.topic for each in topics if each.topic in chosen]


def _draw(path: Path, fill: "Callable[[Axes], None]") -> Path:
    # Not pyplot: that keeps every figure, and looks for a screen.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    fill(axes)
    figure.savefig(path)
    return path


def _traffic(axes: "Axes", stats: Stats, names: Sequence[str]) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num

    width: Any = timedelta(hours=0.9) / len(names)
    undated = 0
    for number, name in enumerate(names):
        hours = by_hour([each for each in stats.hours if each.topic == name])
        dated = [(hour_ms, messages) for hour_ms, messages, _ in hours if hour_ms <= _LAST_MS]
        undated += sum(messages for hour_ms, messages, _ in hours if hour_ms > _LAST_MS)
        places: Any = [datetime.fromtimestamp(hour_ms / 1000, UTC) + number * width for hour_ms, _ in dated]
        heights = [messages for _, messages in dated]
        axes.bar(places, heights, width, align="edge", color=_colour(number), label=_text(name))
    locator: Any = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    # The margin too has to have dates.
    last: float = date2num(datetime.fromtimestamp(_LAST_MS / 1000, UTC))  # type: ignore[no-untyped-call]
    axes.set_xlim(right=min(axes.get_xlim()[1], last))
    title = "Messages per hour" + (f" (without {undated:,} after the year 9999)" if undated else "")
    axes.set(title=title, ylabel="messages", xlabel="UTC")
    _finish(axes, names)


def _sizes(axes: "Axes", stats: Stats, names: Sequence[str]) -> None:
    for number, name in enumerate(names):
        told = next(each for each in stats.topics if each.topic == name)
        _stairs(axes, told.size_bars, number, name)
    axes.set(title="Sizes of messages", xlabel="bytes of key, value and headers", ylabel="messages")
    _finish(axes, names)


def _partitions(axes: "Axes", stats: Stats, names: Sequence[str]) -> None:
    from matplotlib.ticker import MaxNLocator

    width = 0.8 / len(names)
    for number, name in enumerate(names):
        mine = [each for each in stats.partitions if each.topic == name]
        places = [each.partition + (number - (len(names) - 1) / 2) * width for each in mine]
        axes.bar(places, [each.heat for each in mine], width, color=_colour(number), label=_text(name))
    axes.axhline(1, color="#444444", linewidth=1, linestyle="--")
    axes.set(title="Partitions against the mean of their topic", xlabel="partition", ylabel="messages / mean")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _finish(axes, names)


def _latency(axes: "Axes", stats: Stats, names: Sequence[str]) -> None:
    """How many percent came within which time."""
    for number, told in enumerate(each for each in stats.topics if each.topic in names):
        total, seen = sum(bar.messages for bar in told.latency_bars), 0
        shares = []
        for bar in told.latency_bars:
            seen += bar.messages
            shares.append(100 * seen / total)
        # A latency of 0 ms has no place on a logarithmic axis.
        times = [max(0.5, bar.end - (1 if bar.end - bar.first <= 1 else 0)) for bar in told.latency_bars]
        axes.step([times[0], *times], [0.0, *shares], where="post", color=_colour(number), label=_text(told.topic))
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    for percent in (50, 95, 99):
        axes.axhline(percent, color="#bbbbbb", linewidth=0.8, linestyle=":")
    axes.set(title="From the producer's time to the broker's", xlabel="milliseconds", ylabel="percent of messages")
    _finish(axes, names)


def _stairs(axes: "Axes", bars: Sequence[Bar], number: int, name: str) -> None:
    """A histogram of some 60 equal steps; what a bucket has is spread over those that it covers."""
    first, last = bars[0].first, bars[-1].end
    steps = min(60, max(1, round(last - first)))
    width = (last - first) / steps
    heights = [0.0] * steps
    for bar in bars:
        low, high = (bar.first - first) / width, (bar.end - first) / width
        for step in range(int(low), min(steps, int(high) + 1)):
            covered = min(high, step + 1) - max(low, step)
            if covered > 0:
                heights[step] += bar.messages * covered / (high - low)
    edges = [first + width * step for step in range(steps + 1)]
    axes.stairs(heights, edges, fill=True, alpha=0.6, color=_colour(number), label=_text(name))


def _finish(axes: "Axes", names: Sequence[str]) -> None:
    axes.set_ylim(bottom=0)
    if len(names) > 1:
        axes.legend(frameon=False)
    else:
        axes.set_title(f"{axes.get_title()}: {_text(names[0])}")


def _colour(number: int) -> Any:
    return COLOURS[number % len(COLOURS)]


def _text(name: str) -> str:
    """A name as it is: a dollar sign would begin a formula, and an underscore in front hides a line from the legend."""
    shown = name.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


# Dates end with the year 9999. A producer may send any number: microseconds, say, in place of milliseconds.
_LAST_MS: Final = 253_402_300_799_000
