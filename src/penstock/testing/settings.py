"""Settings of brokers and topics as tests write them: dotted names or keywords, and values of Python."""

from collections.abc import Mapping
from typing import Final

DEFAULTS: Final[Mapping[str, str]] = {
    # Groups begin at once, without three seconds for further members.
    "group.initial.rebalance.delay.ms": "0",
    # Fifty are for clusters with thousands of groups, and take a while to be made.
    "offsets.topic.num.partitions": "1",
}
"""What differs from a broker in production unless the test sets it."""


def by_name(values: Mapping[str, object]) -> dict[str, str]:
    """Keywords stand for dotted names."""
    return {name.replace("_", "."): _text(value) for name, value in values.items()}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
