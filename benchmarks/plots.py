"""Plots the results as PNG files: bars of what things cost, curves of latencies and of what happens over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INCHES: Final = 5.5
_DPI: Final = 110


@dataclass(slots=True, frozen=True)
class Bars:
    """Groups of horizontal bars, in each group one for each series."""

    title: str
    unit: str
    groups: Mapping[str, Mapping[str, float]]

    @property
    def height(self) -> float:
        return 1.2 + 0.22 * sum(len(series) + 1 for series in self.groups.values())

    def draw(self, axes: "Axes") -> None:
        names = list(dict.fromkeys(name for series in self.groups.values() for name in series))
        position, ticks = 0.0, []
        for series in self.groups.values():
            ticks.append(position + (len(series) - 1) / 2)
            for name, value in series.items():
                axes.barh(position, value, height=0.9, color=f"C{names.index(name)}")
                axes.annotate(
                    f" {value:,.0f}" if value >= 1000 else f" {value:.3g}", (value, position), va="center", fontsize=8
                )
                position += 1
            position += 1
        axes.set_yticks(ticks, list(self.groups), fontsize=8)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set_xlabel(self.unit)
        # One without a length, so that the legend knows each series once.
        for number, name in enumerate(names):
            axes.barh(0, 0, color=f"C{number}", label=name)


@dataclass(slots=True, frozen=True)
class Curves:
    """Lines through points; those whose label is in `dashed` are drawn so, and the `spans` of x are shaded."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    dashed: frozenset[str] = frozenset()
    has_log_x: bool = False
    has_log_y: bool = False
    x_labels: Mapping[float, str] = field(default_factory=dict)
    spans: Sequence[tuple[float, float]] = ()
    height: float = 4.5

    def draw(self, axes: "Axes") -> None:
        for label, points in self.lines.items():
            style = "--" if label in self.dashed else "-"
            axes.plot([x for x, _ in points], [y for _, y in points], style, label=label, linewidth=1.4)
        for begin, end in self.spans:
            axes.axvspan(begin, end, alpha=0.12, color="gray")
        if self.has_log_x:
            axes.set_xscale("log")
        if self.has_log_y:
            axes.set_yscale("log")
        if self.x_labels:
            axes.set_xticks(list(self.x_labels), list(self.x_labels.values()))
            axes.minorticks_off()
        axes.set_xlabel(self.x)
        axes.set_ylabel(self.y)
        axes.grid(alpha=0.3)


def percentile_curves(title: str, lines: Mapping[str, Sequence[tuple[float, float]]], dashed: frozenset[str]) -> Curves:
    """Lines of (share of the messages, ms): the slowest ones have the most room."""
    return Curves(
        title=title,
        x="share of messages that took at most so long",
        y="ms",
        lines={label: [(1 / (1 - share), ms) for share, ms in points] for label, points in lines.items()},
        dashed=dashed,
        has_log_x=True,
        has_log_y=True,
        x_labels={2: "50 %", 10: "90 %", 100: "99 %", 1000: "99.9 %"},
    )


def save_plot(path: Path, panels: Sequence[Bars | Curves]) -> bool:
    """Draw the panels below each other into one file. False, and no file, where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        path.unlink(missing_ok=True)
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    heights = [panel.height for panel in panels]
    figure = Figure(figsize=(2 * _INCHES, sum(heights)), dpi=_DPI, layout="constrained")
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
    for panel, axes in zip(panels, grid[:, 0], strict=True):
        panel.draw(axes)
        axes.set_title(panel.title)
        axes.legend(fontsize=8)
    # Without the version of the library, so that the same numbers make the same file.
    figure.savefig(path, metadata={"Software": None})
    return True
