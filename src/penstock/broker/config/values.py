"""A config key parses and prints one config: it has a name, a type, a default, the values it allows, and a sentence."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import partial
from typing import Final, Protocol, TypeAlias

ConfigValue: TypeAlias = bool | int | float | str | tuple[str, ...] | None

Effect: TypeAlias = bool | frozenset[str]
"""Whether a config does anything in this version. A set: these values do, others are accepted and change nothing."""


class ConfigError(ValueError):
    """A config has a name or a value that cannot be, or a value that does not fit those of the configs in
    `also`. `source` is where it was set, if that is known."""

    def __init__(self, name: str, reason: str, *, source: str = "", also: tuple[str, ...] = ()) -> None:
        super().__init__(f"{source}: {name}: {reason}" if source else f"{name}: {reason}")
        self.name = name
        self.reason = reason
        self.source = source
        self.also = also


class ConfigType(IntEnum):
    """The numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Update(Enum):
    """How a broker config may change while brokers run."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Allowed(Protocol):
    """Which values a config takes, beyond what its type says. Its `str` is for the reference."""

    def problem(self, value: ConfigValue) -> str | None:
        """The problem with a value, as the end of a sentence that begins with the value."""


@dataclass(slots=True, frozen=True)
class Anything:
    def problem(self, value: ConfigValue) -> str | None:
        return None

    def __str__(self) -> str:
        return ""


@dataclass(slots=True, frozen=True)
class Range:
    low: float
    high: float | None = None
    also: int | None = None

    def problem(self, value: ConfigValue) -> str | None:
        assert isinstance(value, int | float)
        if value == self.also or (self.low <= value and (self.high is None or value <= self.high)):
            return None
        return f"is out of range; set it to {self}"

    def __str__(self) -> str:
        text = f"at least {self.low}" if self.high is None else f"{self.low} to {self.high}"
        return text if self.also is None else f"{text}, or {self.also}"


@dataclass(slots=True, frozen=True)
class OneOf:
    choices: tuple[str, ...]
    ignore_case: bool = False

    def problem(self, value: ConfigValue) -> str | None:
        assert isinstance(value, str)
        if value in self.choices or (self.ignore_case and value.lower() in [choice.lower() for choice in self.choices]):
            return None
        return f"is none of {self}{_hint(value, self.choices)}"

    def __str__(self) -> str:
        return ", ".join(self.choices)


@dataclass(slots=True, frozen=True)
class ListOf:
    """A list of the choices, or of any items if there are none. No item may be empty."""

    choices: tuple[str, ...] = ()
    may_be_empty: bool = True

    def problem(self, value: ConfigValue) -> str | None:
        assert isinstance(value, tuple)
        if not value and not self.may_be_empty:
            return "is empty; name at least one"
        if not all(value):
            return "has an empty item; remove the extra comma"
        for item in value:
            if self.choices and item not in self.choices:
                wrong = f"has {item!r}, which is none" if len(value) > 1 else "is none"
                return f"{wrong} of {', '.join(self.choices)}{_hint(item, self.choices)}"
        return None

    def __str__(self) -> str:
        text = f"any of {', '.join(self.choices)}" if self.choices else ""
        return text if self.may_be_empty else f"{text}; at least one" if text else "at least one"


@dataclass(slots=True, frozen=True)
class Pattern:
    """Text, or each item of a list, that matches an expression; `example` is shown to users."""

    expression: str
    example: str

    def problem(self, value: ConfigValue) -> str | None:
        items = value if isinstance(value, tuple) else (value,)
        for item in items:
            assert isinstance(item, str)
            if re.fullmatch(self.expression, item) is None:
                return f"is not of the form {self.example}"
        return None

    def __str__(self) -> str:
        return f"of the form {self.example}"


@dataclass(slots=True, frozen=True)
class Synonym:
    """A broker config that gives a topic config its default, and what its unit is in the topic's."""

    name: str
    factor: int = 1

    def convert(self, value: ConfigValue) -> ConfigValue:
        """The broker's value in the topic's unit."""
        if self.factor == 1 or value is None:
            return value
        assert isinstance(value, int)
        return value * self.factor


@dataclass(slots=True, frozen=True)
class ConfigKey:
    """One row of a table of configs. A default of None means: not set. `internal` rows are accepted and not listed."""

    name: str
    type: ConfigType
    default: ConfigValue
    allowed: Allowed
    update: Update
    effect: Effect
    documentation: str
    synonyms: tuple[Synonym, ...] = ()
    internal: bool = False

    @property
    def sensitive(self) -> bool:
        """Whether the value is never shown."""
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> ConfigValue:
        """The typed value, or `ConfigError`."""
        value = _PARSERS[self.type](self.name, text.strip())
        problem = self.allowed.problem(value)
        if problem is not None:
            raise ConfigError(self.name, f"{text.strip() or 'an empty value'} {problem}")
        return value

    def format(self, value: ConfigValue) -> str | None:
        """The text that `parse` makes this value of."""
        match value:
            case None:
                return None
            case bool():
                return "true" if value else "false"
            case tuple():
                return ",".join(value)
            case float():
                return repr(value).replace("e+", "E")
            case _:
                return str(value)

    def takes_effect(self, value: ConfigValue) -> bool:
        if isinstance(self.effect, bool):
            return self.effect
        return self.effect.issuperset(value if isinstance(value, tuple) else (str(value),))


def near_name(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant."""
    from difflib import get_close_matches

    found = get_close_matches(name.lower(), list(names), n=1, cutoff=0.75)
    return found[0] if found else None


def _hint(text: str, choices: Sequence[str]) -> str:
    by_lower_case = {choice.lower(): choice for choice in choices}
    near = near_name(text, by_lower_case)
    return "" if near is None else f"; did you mean {by_lower_case[near]}?"


def _parse_boolean(name: str, text: str) -> ConfigValue:
    if text.lower() not in ("true", "false"):
        raise ConfigError(name, f"{text or 'an empty value'} is neither true nor false")
    return text.lower() == "true"


def _parse_text(_: str, text: str) -> ConfigValue:
    return text


def _parse_integer(name: str, text: str, bits: int) -> ConfigValue:
    if re.fullmatch(r"[+-]?[0-9]{1,19}", text) is None:
        raise ConfigError(name, f"{text or 'an empty value'} is not a whole number")
    value = int(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ConfigError(name, f"{text} is out of range; the largest number is {(1 << bits - 1) - 1}")
    return value


def _parse_double(name: str, text: str) -> ConfigValue:
    if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text) is None or math.isinf(float(text)):
        raise ConfigError(name, f"{text or 'an empty value'} is not a number")
    return float(text)


def _parse_list(_: str, text: str) -> ConfigValue:
    return tuple(item.strip() for item in text.split(",")) if text else ()


_PARSERS: Final[dict[ConfigType, Callable[[str, str], ConfigValue]]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: _parse_text,
    ConfigType.INT: partial(_parse_integer, bits=32),
    ConfigType.SHORT: partial(_parse_integer, bits=16),
    ConfigType.LONG: partial(_parse_integer, bits=64),
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
    ConfigType.CLASS: _parse_text,
    ConfigType.PASSWORD: _parse_text,
}
