"""A file of settings is read as TOML if its name says so, else as Kafka's properties."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.broker.config.properties import PropertiesError, parse_properties
from penstock.broker.config.values import ConfigError


@dataclass(slots=True, frozen=True)
class Setting:
    """`source` is where it was set, in words that the user knows."""

    name: str
    value: str
    source: str


def read_settings(path: Path) -> Iterator[Setting]:
    """The settings in the order of the file; `ConfigError` if it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}", source="--config") from None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        # Java reads properties as Latin-1; TOML is always UTF-8.
        if path.suffix == ".toml":
            raise ConfigError(str(path), "is not UTF-8; save it as that", source="--config") from None
        text = data.decode("latin-1")
    if path.suffix == ".toml":
        yield from _from_toml(path, text)
    else:
        yield from _from_properties(path, text)


def _from_properties(path: Path, text: str) -> Iterator[Setting]:
    try:
        properties = parse_properties(text)
    except PropertiesError as error:
        raise ConfigError(f"{path} line {error.line}", error.reason, source="--config") from None
    for name, value, line in properties:
        yield Setting(name, value, f"{path} line {line}")


def _from_toml(path: Path, text: str) -> Iterator[Setting]:
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        hint = ""
        if "overwrite" in str(error):
            hint = '; where one name begins another, as log.dir does, put the name in quotes: "log.dir" = …'
        raise ConfigError(str(path), f"{error}{hint}", source="--config") from None
    lines = _toml_lines(text)
    for name, value in _flatten(document):
        line = lines.get(name)
        source = str(path) if line is None else f"{path} line {line}"
        yield Setting(name, _toml_text(name, value, source), source)


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _toml_text(name: str, value: object, source: str) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case list() if all(isinstance(item, str | int) and "," not in str(item) for item in value):
            return ",".join(_toml_text(name, item, source) for item in value)
    raise ConfigError(name, "is neither text, number, true or false, nor a list of those", source=source)


def _toml_lines(text: str) -> dict[str, int]:
    """The line on which each name is set, as far as that shows without a parser that reports lines."""
    lines: dict[str, int] = {}
    prefix = ""
    for number, line in enumerate(text.splitlines(), start=1):
        header, equals, _ = line.partition("=")
        try:
            table = tomllib.loads(header + "=0" if equals else line)
        except tomllib.TOMLDecodeError:
            continue
        name = ".".join(_path(table))
        if equals:
            lines.setdefault(prefix + name, number)
        elif name:
            prefix = name + "."
    return lines


def _path(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        yield key
        if isinstance(value, dict):
            yield from _path(value)
