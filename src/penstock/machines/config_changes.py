"""Computes what the configs of a topic, a broker or the cluster become when some are set, deleted, appended to or
replaced."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from penstock.machines.cluster_records import ConfigChanged, ConfigResource
from penstock.machines.decisions import refuse
from penstock.protocol.error_codes import ErrorCode

MAX_CONFIG_BYTES: Final = 64 * 1024
"""The most that all configs of one topic, broker or cluster may take: they must fit into an entry of the log."""


class ConfigOperation(IntEnum):
    """Numbered as on the wire (KIP-339). The last two work on the items of a list."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS = frozenset(ConfigOperation)


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """The operation is a number, because a client may send any."""

    name: str
    operation: int
    value: str | None


class ConfigRules(Protocol):
    """Which configs there are, and what they may be."""

    def problem(self, resource: ConfigResource, values: Mapping[str, str]) -> str | None:
        """Says what is wrong with these values, None if nothing is. Names may be unknown, too."""

    def default_list(self, resource: ConfigResource, name: str) -> str | None:
        """Returns the default of a config that is a list, its items separated by commas; None if it is no list."""


def changed(
    current: Mapping[str, str], changes: Sequence[ConfigChange], resource: ConfigResource, rules: ConfigRules
) -> dict[str, str]:
    """All configs after these changes."""
    _refuse_duplicates(change.name for change in changes)
    values = dict(current)
    for change in changes:
        if change.operation == ConfigOperation.DELETE:
            values.pop(change.name, None)
        else:
            values[change.name] = _new_value(values.get(change.name), change, resource, rules)
    _refuse_invalid(values, resource, rules)
    return values


def replaced(values: Sequence[tuple[str, str | None]], resource: ConfigResource, rules: ConfigRules) -> dict[str, str]:
    """All configs once these have taken the place of whatever was set."""
    _refuse_duplicates(name for name, _ in values)
    known = {name: _present(name, value) for name, value in values}
    _refuse_invalid(known, resource, rules)
    return known


def given(configs: Mapping[str, str | None], resource: ConfigResource, rules: ConfigRules) -> dict[str, str]:
    """The configs of something new."""
    values = {name: value for name, value in configs.items() if value is not None}
    if missing := sorted(configs.keys() - values.keys()):
        refuse(ErrorCode.INVALID_CONFIG, f"{missing[0]} has no value; leave it out to get the default")
    _refuse_invalid(values, resource, rules)
    return values


def records(resource: ConfigResource, name: str, old: Mapping[str, str], new: Mapping[str, str]) -> list[ConfigChanged]:
    """What makes the old configs of this topic, broker or cluster the new ones."""
    values: dict[str, str | None] = {config: None for config in old if config not in new}
    values |= {config: value for config, value in new.items() if old.get(config) != value}
    return [ConfigChanged(resource, name, values)] if values else []


def _refuse_invalid(values: Mapping[str, str], resource: ConfigResource, rules: ConfigRules) -> None:
    size = sum(len(name.encode()) + len(value.encode()) for name, value in values.items())
    if size > MAX_CONFIG_BYTES:
        refuse(
            ErrorCode.INVALID_CONFIG,
            f"the configs would have {size} bytes, and a {resource} has at most {MAX_CONFIG_BYTES}; shorten them",
        )
    if problem := rules.problem(resource, values):
        refuse(ErrorCode.INVALID_CONFIG, problem)


def _new_value(old: str | None, change: ConfigChange, resource: ConfigResource, rules: ConfigRules) -> str:
    if change.operation not in _OPERATIONS:
        refuse(
            ErrorCode.INVALID_REQUEST,
            f"there is no config operation {change.operation}; 0 sets, 1 deletes, 2 appends, 3 subtracts",
        )
    value = _present(change.name, change.value)
    if change.operation == ConfigOperation.SET:
        return value
    default = rules.default_list(resource, change.name)
    if default is None:
        refuse(
            ErrorCode.INVALID_CONFIG,
            f"{change.name} is not a list, so nothing can be appended to it or subtracted from it; set it",
        )
    items = dict.fromkeys(_items(default if old is None else old))
    if change.operation == ConfigOperation.APPEND:
        items |= dict.fromkeys(_items(value))
    else:
        for item in _items(value):
            items.pop(item, None)
    return ",".join(items)


def _items(value: str) -> list[str]:
    return [item.strip() for item in value.split(",") if item.strip()]


def _present(name: str, value: str | None) -> str:
    if value is None:
        refuse(ErrorCode.INVALID_REQUEST, f"{name} has no value; to return to the default, delete it")
    return value


def _refuse_duplicates(names: Iterable[str]) -> None:
    seen = set()
    for name in names:
        if name in seen:
            refuse(ErrorCode.INVALID_REQUEST, f"{name} is named twice; each config may be changed once")
        seen.add(name)
