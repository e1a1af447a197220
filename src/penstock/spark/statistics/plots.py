"""`draw_plots` draws statistics: traffic over time, sizes, shares of partitions, and latencies, a PNG each."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.statistics.run import Bar, Stats, TopicStats
from penstock.spark.statistics.times import LAST_MS, Timeline, describe_width, lay_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS: Final = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")
WIDTH_INCHES: Final = 9.0
HEIGHT_INCHES: Final = 4.5
PANEL_INCHES: Final = 1.5
"""The height of each panel where there are several."""
DOTS_PER_INCH: Final = 120
MAX_TOPICS: Final = 8
"""Limits the topics of a picture to those with most messages. More could not be distinguished."""
STACKED: Final = 20
"""Topics are stacked while the largest has no more than this many times as much as the smallest. In a stack of others
the smallest could not be seen: they get panels with one logarithmic scale."""
PEAK: Final = 100
"""A linear scale becomes logarithmic where the highest bar is more than this many times as high as the middle one."""
WIDE: Final = 50
"""Sizes have a logarithmic scale where the largest is more than this many times the smallest."""
STEPS: Final = 60
"""About how many steps a histogram has."""


def draw_plots(stats: Stats, folder: str | Path) -> list[Path]:
    """Write `traffic.png`, `sizes.png`, `partitions.png` and `latency.png` to a folder: those for which there is
    something to show. Returns their paths."""
    told = [each for each in stats.topics if each.messages]
    topics = busiest(told)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    if not topics:
        return []
    timeline = lay_out(stats.times, {each.topic for each in topics}, now_ms=stats.at_ms)
    pictures: list[tuple[str, Sequence[TopicStats], Sequence[TopicStats], Callable[[_Sheet], None]]] = []
    if timeline is not None:
        pictures.append(("traffic.png", topics, told, lambda sheet: _traffic(sheet, timeline)))
    pictures.append(("sizes.png", topics, told, _sizes))
    pictures.append(("partitions.png", topics, told, _partitions))
    if timed := [each for each in told if each.latency_ms is not None]:
        pictures.append(("latency.png", busiest(timed), timed, _latency))
    for name, shown, known, draw in pictures:
        sheet = _Sheet(stats, shown, known, timeline)
        draw(sheet)
        sheet.figure.savefig(place / name)
    return [place / name for name, *_ in pictures]


def busiest(topics: Sequence[TopicStats]) -> list[TopicStats]:
    """The topics that a picture has room for, in their order."""
    chosen = {each.topic for each in sorted(topics, key=lambda each: -each.messages)[:MAX_TOPICS]}
    return [each for each in topics if each.topic in chosen]


def differ(counts: Iterable[float], most: float) -> bool:
    """Whether the largest count is more than `most` times the smallest, zeros aside."""
    known = [each for each in counts if each > 0]
    return bool(known) and max(known) > most * min(known)


def has_peaks(counts: Sequence[float]) -> bool:
    """Whether most bars would be too low to be seen on a linear scale."""
    known = [each for each in counts if each > 0]
    return bool(known) and max(known) > PEAK * median(known)


class _Sheet:
    """A picture of some topics, with a title that says what was counted, when and where."""

    def __init__(
        self, stats: Stats, topics: Sequence[TopicStats], known: Sequence[TopicStats], timeline: Timeline | None
    ) -> None:
        # pyplot would keep every figure and look for a screen.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.stats = stats
        self.topics = topics
        self._known = known
        self._timeline = timeline
        self.figure: Figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), dpi=DOTS_PER_INCH, layout="constrained")
        FigureCanvasAgg(self.figure)

    @property
    def has_panels(self) -> bool:
        return len(self.topics) > 1

    def one(self) -> "Axes":
        axes = self.figure.add_subplot()
        _dress(axes)
        return axes

    def panels(self) -> "list[Axes]":
        """Axes for each topic, with one scale."""
        count = len(self.topics)
        if count > 1:
            self.figure.set_size_inches(WIDTH_INCHES, max(HEIGHT_INCHES, 1.2 + PANEL_INCHES * count))
        found: list[Axes] = list(self.figure.subplots(count, 1, sharex=True, sharey=True, squeeze=False)[:, 0])
        for number, (axes, topic) in enumerate(zip(found, self.topics, strict=True)):
            _dress(axes)
            if count > 1:
                label = f"{_text(topic.topic)}  ({topic.messages:,})"
                axes.set_title(label, loc="left", fontsize=9, color=_dark(number), pad=3)
        return found

    def finish(self, title: str, *, x: str, y: str) -> None:
        name = _text(self.topics[0].topic) if len(self.topics) == 1 else f"{len(self.topics)} topics"
        if len(self._known) > len(self.topics):
            name = f"the {len(self.topics)} busiest of {len(self._known)} topics"
        self.figure.suptitle(f"{title}: {name}\n", fontsize=12, fontweight="bold")
        # The second line of the title is smaller, so it is a text of its own.
        self.figure.text(0.5, self._below(), "  ·  ".join(self._facts()), ha="center", va="center", fontsize=8.5)
        self.figure.supxlabel(x, fontsize=9)
        self.figure.supylabel(y, fontsize=9)

    def _below(self) -> float:
        """The height of the title's second line, from the bottom."""
        return 1 - 0.39 / float(self.figure.get_figheight())

    def _facts(self) -> list[str]:
        total = sum(each.messages for each in self.topics)
        facts = [f"{total:,} message" + ("" if total == 1 else "s")]
        if self._timeline is not None:
            facts.append(describe_range(self._timeline))
            if self._timeline.left_out:
                facts.append(f"{self._timeline.left_out:,} with an impossible time")
        if self.stats.cluster:
            facts.append(f"cluster {_text(self.stats.cluster)}")
        return facts


def describe_range(timeline: Timeline) -> str:
    """The range of time in UTC, as exact as it is drawn; the date is written once if it is that of both ends."""
    clock = "%H:%M:%S" if timeline.width_ms < 60_000 else "%H:%M"
    first, end = (datetime.fromtimestamp(each / 1000, UTC) for each in (timeline.first_ms, timeline.end_ms))
    last = f"{end:{clock}}" if first.date() == end.date() else f"{end:%Y-%m-%d {clock}}"
    return f"{first:%Y-%m-%d {clock}} to {last} UTC"


def _traffic(sheet: _Sheet, timeline: Timeline) -> None:
    totals = [sum(timeline.counts[each.topic].values()) for each in sheet.topics]
    title = f"Messages per {describe_width(timeline.width_ms)}"
    if differ(totals, STACKED):
        highest = max(count for counts in timeline.counts.values() for count in counts.values())
        for number, (axes, topic) in enumerate(zip(sheet.panels(), sheet.topics, strict=True)):
            _bars(axes, timeline, timeline.counts[topic.topic], colour=_colour(number))
            _scale_log(axes, highest)
            _date(axes, timeline)
        sheet.finish(title, x="UTC", y="messages, logarithmic")
        return
    axes = sheet.one()
    below: dict[int, int] = {}
    for number, topic in enumerate(sheet.topics):
        counts = timeline.counts[topic.topic]
        label = f"{_text(topic.topic)}  ({topic.messages:,})"
        _bars(axes, timeline, counts, colour=_colour(number), below=below, label=label)
        below = {start: below.get(start, 0) + counts.get(start, 0) for start in {*below, *counts}}
    is_log = not sheet.has_panels and has_peaks(list(below.values()))
    if is_log:
        _scale_log(axes, max(below.values()))
    _date(axes, timeline)
    if sheet.has_panels:
        sheet.figure.legend(loc="outside right center", frameon=False, fontsize=8.5)
    sheet.finish(title, x="UTC", y="messages, logarithmic" if is_log else "messages")


def _bars(
    axes: "Axes",
    timeline: Timeline,
    counts: Mapping[int, int],
    *,
    colour: str,
    below: Mapping[int, int] | None = None,
    label: str = "",
) -> None:
    starts = sorted(counts)
    places: Any = [datetime.fromtimestamp(each / 1000, UTC) for each in starts]
    width: Any = timedelta(milliseconds=0.92 * timeline.width_ms)
    bottoms = [(below or {}).get(each, 0) for each in starts]
    axes.bar(places, [counts[each] for each in starts], width, bottoms, align="edge", color=colour, label=label)


def _date(axes: "Axes", timeline: Timeline) -> None:
    """An axis of time over the whole range, of no less than five buckets, so that a lone bar is not a wall."""
    from matplotlib.dates import SECONDLY, AutoDateLocator, ConciseDateFormatter

    locator: Any = AutoDateLocator(maxticks=11)  # type: ignore[no-untyped-call]
    # Labels of seconds are long.
    locator.maxticks[SECONDLY] = 7
    locator.intervald[SECONDLY] = [1, 2, 5, 10, 15, 30]
    formats = ["%Y", "%b", "%b %d", "%H:%M", "%H:%M", "%H:%M:%S"]
    # What a label is at the beginning of the next larger unit: the first hour of a day shows the day.
    at_zero = ["", "%Y", "%b %d", "%b %d", "%H:%M", "%H:%M:%S"]
    # The title has the year and the day.
    formatter: Any = ConciseDateFormatter(  # type: ignore[no-untyped-call]
        locator, formats=formats, zero_formats=at_zero, show_offset=False
    )
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(formatter)
    width = timeline.width_ms
    first, end = timeline.first_ms // width * width, -(-timeline.end_ms // width) * width
    margin = max(0.02 * (end - first), (5 * width - (end - first)) / 2)
    # The margins, too, must be valid dates.
    limits: Any = [datetime.fromtimestamp(_clip(each) / 1000, UTC) for each in (first - margin, end + margin)]
    axes.set_xlim(*limits)


def _clip(time_ms: float) -> float:
    return min(max(time_ms, 0), LAST_MS)


def _sizes(sheet: _Sheet) -> None:
    bars = {each.topic: each.size_bars for each in sheet.topics}
    first = min(each[0].first for each in bars.values())
    last = max(each[-1].end for each in bars.values())
    is_wide = differ([max(1.0, first), last], WIDE)
    edges = step_edges(first, last, is_log=is_wide)
    heights = {name: spread(each, edges) for name, each in bars.items()}
    is_log = differ([max(each) for each in heights.values()], STACKED) or any(map(has_peaks, heights.values()))
    for number, (axes, topic) in enumerate(zip(sheet.panels(), sheet.topics, strict=True)):
        axes.stairs(heights[topic.topic], edges, fill=True, color=_colour(number))
        if is_wide:
            axes.set_xscale("log")
            axes.minorticks_off()
        if is_log:
            _scale_log(axes, max(map(max, heights.values())))
        axes.xaxis.set_major_formatter(_plain)
    x, y = (", logarithmic" if each else "" for each in (is_wide, is_log))
    sheet.finish("Sizes of messages", x=f"bytes of key, value and headers{x}", y=f"messages{y}")


def step_edges(first: float, last: float, *, is_log: bool) -> list[float]:
    """The edges of the steps of a histogram, equal or of equal ratios; none is narrower than a byte."""
    if is_log:
        begin = max(1.0, first)
        ratio = (last / begin) ** (1 / STEPS)
        edges = [begin * ratio**step for step in range(STEPS + 1)]
        return [min(first, 0.5), *edges] if first < 1 else edges
    steps = min(STEPS, max(1, round(last - first)))
    return [first + (last - first) * step / steps for step in range(steps + 1)]


def spread(bars: Sequence[Bar], edges: Sequence[float]) -> list[float]:
    """The heights of the steps: the count of a bar is spread evenly over those that it covers."""
    heights = [0.0] * (len(edges) - 1)
    for bar in bars:
        for step, (low, high) in enumerate(pairwise(edges)):
            covered = min(high, bar.end) - max(low, bar.first)
            if covered > 0:
                heights[step] += bar.messages * covered / (bar.end - bar.first)
    return heights


def _partitions(sheet: _Sheet) -> None:
    from matplotlib.ticker import MaxNLocator

    for number, (axes, topic) in enumerate(zip(sheet.panels(), sheet.topics, strict=True)):
        mine = [each for each in sheet.stats.partitions if each.topic == topic.topic]
        axes.bar([each.partition for each in mine], [each.heat for each in mine], 0.8, color=_colour(number))
        axes.axhline(1, color="#444444", linewidth=1, linestyle="--")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.margins(x=0.02)
    sheet.finish("Partitions against the mean of their topic", x="partition", y="messages / mean")


def _latency(sheet: _Sheet) -> None:
    """The percentage of messages that came within a time."""
    axes = sheet.one()
    for number, told in enumerate(sheet.topics):
        total, seen = sum(bar.messages for bar in told.latency_bars), 0
        shares = []
        for bar in told.latency_bars:
            seen += bar.messages
            shares.append(100 * seen / total)
        # A latency of 0 ms has no place on a logarithmic axis.
        times = [max(0.5, bar.end - (1 if bar.end - bar.first <= 1 else 0)) for bar in told.latency_bars]
        label = f"{_text(told.topic)}  ({total:,})"
        axes.step([times[0], *times], [0.0, *shares], where="post", color=_colour(number), label=label)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.10g}")
    for percent in (50, 95, 99):
        axes.axhline(percent, color="#888888", linewidth=0.8, linestyle=":")
        axes.text(0.004, percent, f"{percent} %", transform=axes.get_yaxis_transform(), fontsize=7, va="center")
    axes.set_ylim(bottom=0)
    if sheet.has_panels:
        sheet.figure.legend(loc="outside right center", frameon=False, fontsize=8.5)
    sheet.finish("From the producer's time to the broker's", x="milliseconds, logarithmic", y="percent of messages")


def _dress(axes: "Axes") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_formatter(_plain)
    axes.tick_params(labelsize=8.5)


def _scale_log(axes: "Axes", highest: float) -> None:
    """A logarithmic scale on which a single message is seen."""
    axes.set_yscale("log")
    axes.set_ylim(0.6, 2 * highest)
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(_plain)


def _plain(number: float, _: object = None) -> str:
    """A number with separators, and no powers of ten."""
    return f"{number:,.10g}" if number < 100 else f"{number:,.0f}"


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _dark(number: int) -> str:
    """The colour of a topic, dark enough for letters."""
    red, green, blue = (int(_colour(number)[place : place + 2], 16) * 6 // 10 for place in (1, 3, 5))
    return f"#{red:02x}{green:02x}{blue:02x}"


def _text(name: str) -> str:
    """Escape a name: a dollar sign would begin a formula, and a leading underscore would hide a line from the
    legend."""
    shown = name.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown
