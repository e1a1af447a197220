"""This writer makes Prometheus' text format, version 0.0.4: a family has a head, then a line for each of its series.

No package writes it, because thousands of series have to be written a few at a time, and twenty times as fast, to hold
nothing else up. The tests read it with Prometheus' own parser.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal, TypeAlias

from penstock.broker.metrics.histogram import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Sample: TypeAlias = tuple[Sequence[str], float | Histogram]
"""The values of the labels, and what there is to tell."""


@dataclass(slots=True, frozen=True)
class Head:
    """What a family is called, and what it means."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    def __str__(self) -> str:
        escaped = self.help.replace("\\", "\\\\").replace("\n", "\\n")
        return f"# HELP {self.name} {escaped}\n# TYPE {self.name} {self.kind}\n"


def family(head: Head, samples: Iterable[Sample]) -> str:
    """All lines of a family."""
    return "".join((str(head), *(line for sample in samples for line in _lines(head, sample))))


def pairs(names: Sequence[str], values: Sequence[str]) -> str:
    """Labels and their values as they stand between braces."""
    return ",".join(f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True))


def number(value: float) -> str:
    if isinstance(value, int) or math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _lines(head: Head, sample: Sample) -> Iterator[str]:
    values, told = sample
    labels = pairs(head.labels, values)
    if not isinstance(told, Histogram):
        yield f"{head.name}{{{labels}}} {number(told)}\n" if labels else f"{head.name} {number(told)}\n"
        return
    comma = "," if labels else ""
    for bound, count in zip((*told.bounds, math.inf), accumulate(told.counts), strict=True):
        yield f'{head.name}_bucket{{{labels}{comma}le="{number(bound)}"}} {count}\n'
    braces = f"{{{labels}}}" if labels else ""
    yield f"{head.name}_sum{braces} {number(told.sum)}\n"
    yield f"{head.name}_count{braces} {told.count}\n"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
