"""Rows give the tables of configs their words, so that a row is a line of facts and a sentence."""

from typing import Final

from penstock.broker.config.values import (
    Anything,
    ConfigKey,
    ConfigType,
    ListOf,
    OneOf,
    Pattern,
    Range,
    Update,
)

BOOLEAN: Final = ConfigType.BOOLEAN
CLASS: Final = ConfigType.CLASS
DOUBLE: Final = ConfigType.DOUBLE
INT: Final = ConfigType.INT
LIST: Final = ConfigType.LIST
LONG: Final = ConfigType.LONG
PASSWORD: Final = ConfigType.PASSWORD
SHORT: Final = ConfigType.SHORT
STRING: Final = ConfigType.STRING

READ_ONLY: Final = Update.READ_ONLY
PER_BROKER: Final = Update.PER_BROKER
CLUSTER_WIDE: Final = Update.CLUSTER_WIDE

WORKS: Final = True
IGNORED: Final = False

ANY: Final = Anything()
NOT_EMPTY: Final = Pattern(r"(?s).+", "any text but none")
ITEMS: Final = ListOf()
SOME_ITEMS: Final = ListOf(may_be_empty=False)

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
DOUBLE_MAX: Final = 1.7976931348623157e308

SECOND_MS: Final = 1000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

row = ConfigKey


def works_for(*values: str) -> frozenset[str]:
    """The effect of a config of which only these values do something so far."""
    return frozenset(values)


def at_least(low: float) -> Range:
    return Range(low)


def between(low: float, high: float) -> Range:
    return Range(low, high)


def one_of(*choices: str) -> OneOf:
    return OneOf(choices)


def any_of(*choices: str, may_be_empty: bool = True) -> ListOf:
    return ListOf(choices, may_be_empty)
