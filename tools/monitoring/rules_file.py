"""Writes the alarms as Prometheus reads them: YAML, in blocks that can be read and changed by hand."""

from collections.abc import Iterator
from textwrap import indent, wrap

from tools.monitoring.alarms import ALARMS, RECORDINGS

HEAD = """\
# Alarms of Penstock for Prometheus. Name this file in rule_files of prometheus.yml.
#
# They look at jobs whose names begin with penstock; give each cluster a job of its own. Written by
# `python -m tools.monitoring`; after changes of your own: promtool check rules penstock.rules.yml
"""


def render_rules() -> str:
    return (
        "\n".join([HEAD.rstrip(), "groups:", *_group("penstock-series", _recordings()), *_group("penstock", _alarms())])
        + "\n"
    )


def _group(name: str, rules: Iterator[str]) -> Iterator[str]:
    yield f"  - name: {name}"
    yield "    rules:"
    yield from rules


def _recordings() -> Iterator[str]:
    for each in RECORDINGS:
        yield f"      - record: {each.name}"
        yield _block("expr", "|-", each.expr.split("\n"), depth=8)


def _alarms() -> Iterator[str]:
    for each in ALARMS:
        yield f"      - alert: {each.name}"
        yield _block("expr", "|-", each.expr.split("\n"), depth=8)
        yield f"        for: {each.lasting}"
        yield "        labels:"
        yield f"          severity: {each.urgency}"
        yield "        annotations:"
        for name, text in (("summary", each.summary), ("description", each.means), ("action", each.action)):
            lines = wrap(text, 106, break_long_words=False, break_on_hyphens=False)
            yield _block(name, ">-", lines, depth=10)


def _block(key: str, style: str, lines: list[str], *, depth: int) -> str:
    return indent(f"{key}: {style}\n" + "\n".join(f"  {line}" for line in lines), " " * depth)
