"""The text format, read back by Prometheus' own parser."""

import math

import pytest

from penstock.broker.metrics.exposition import Head, family, number, pairs
from penstock.broker.metrics.histogram import Histogram
from tests.broker.metrics.scraping import families, series


def test_a_family_has_its_head_and_its_series() -> None:
    head = Head("penstock_things_total", "counter", "How many things.", ("kind", "colour"))
    text = family(head, [(("a", "red"), 3), (("b", "blue"), 2.5)])
    assert series(text) == {("penstock_things_total", ("a", "red")): 3, ("penstock_things_total", ("b", "blue")): 2.5}
    [metric] = families(text).values()
    assert (metric.name, metric.type, metric.documentation) == ("penstock_things", "counter", "How many things.")


def test_a_family_without_labels_has_no_braces() -> None:
    text = family(Head("penstock_up", "gauge", "Up."), [((), 1)])
    assert text.endswith("\npenstock_up 1\n")


def test_a_family_without_series_is_still_told_about() -> None:
    [metric] = families(family(Head("penstock_nothing", "gauge", "None."), [])).values()
    assert metric.samples == []


def test_buckets_are_cumulative_and_end_with_the_count() -> None:
    counted = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 3.0):
        counted.observe(value)
    found = series(family(Head("penstock_times", "histogram", "Times.", ("api",)), [(("Fetch",), counted)]))
    assert found == {
        ("penstock_times_bucket", ("Fetch", "0.1")): 2,
        ("penstock_times_bucket", ("Fetch", "1.0")): 3,
        ("penstock_times_bucket", ("Fetch", "+Inf")): 4,
        ("penstock_times_sum", ("Fetch",)): pytest.approx(3.65),
        ("penstock_times_count", ("Fetch",)): 4,
    }
    plain = family(Head("penstock_times", "histogram", "Times."), [((), counted)])
    assert 'penstock_times_bucket{le="0.1"} 2\n' in plain
    assert "penstock_times_count 4\n" in plain


@pytest.mark.parametrize("value", ['quo"te', "back\\slash", "new\nline", "\\n", "grün", "", "a,b={}"])
def test_any_value_of_a_label_survives(value: str) -> None:
    [metric] = families(family(Head("penstock_x", "gauge", "X.", ("who",)), [((value,), 1)])).values()
    assert metric.samples[0].labels == {"who": value}


def test_help_survives_whatever_it_says() -> None:
    [metric] = families(family(Head("penstock_x", "gauge", 'a\\b\nc "d"'), [((), 1)])).values()
    assert metric.documentation == 'a\\b\nc "d"'


@pytest.mark.parametrize("value", [0, -1, 2**63, 0.1, 5e-05, 1e300, math.inf, -math.inf])
def test_numbers_survive(value: float) -> None:
    [metric] = families(family(Head("penstock_x", "gauge", "X."), [((), value)])).values()
    assert metric.samples[0].value == value


def test_no_number_is_written_as_such() -> None:
    assert number(math.nan) == "NaN"


def test_every_label_has_a_value() -> None:
    with pytest.raises(ValueError, match="shorter"):
        pairs(("a", "b"), ("1",))
