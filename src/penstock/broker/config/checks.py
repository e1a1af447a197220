"""These checks refuse configs that are right one by one and wrong together."""

from collections.abc import Mapping
from typing import Final

from penstock.broker.config.broker_table import ORDERED
from penstock.broker.config.values import ConfigError, ConfigValue

_MIB: Final = 1024 * 1024


def check_together(values: Mapping[str, ConfigValue]) -> None:
    """Raise `ConfigError` for the first thing that does not fit."""
    _check_ids(values)
    _check_times(values)
    _check_limits(values)
    _check_groups(values)
    for smaller, larger in ORDERED:
        if _number(values[smaller]) > _number(values[larger]):
            raise ConfigError(
                smaller,
                f"{values[smaller]} is more than {larger}, which is {values[larger]}; lower it, or raise {larger}",
                also=(larger,),
            )


def _check_ids(values: Mapping[str, ConfigValue]) -> None:
    if _number(values["broker.id"]) >= 0 and values["broker.id"] != values["node.id"]:
        raise ConfigError(
            "broker.id",
            f"{values['broker.id']} is not {values['node.id']}, as node.id says; set only that",
            also=("node.id",),
        )


def _check_times(values: Mapping[str, ConfigValue]) -> None:
    for name, low in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0)):
        value = values[name]
        if value is not None and _number(value) < low:
            raise ConfigError(name, f"{value} is out of range; set it to at least {low}")
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        if values[name] == 0:
            raise ConfigError(
                name, "0 would delete everything at once; set it to at least 1, or to -1 to keep everything"
            )
        if values[name] is not None:
            break


def _check_limits(values: Mapping[str, ConfigValue]) -> None:
    queued, request = _number(values["queued.max.request.bytes"]), _number(values["socket.request.max.bytes"])
    if 0 < queued < request:
        raise ConfigError(
            "queued.max.request.bytes",
            f"{queued} is less than one request may have (socket.request.max.bytes, {request})",
            also=("socket.request.max.bytes",),
        )
    if values["max.connections.per.ip"] == 0 and not values["max.connections.per.ip.overrides"]:
        raise ConfigError(
            "max.connections.per.ip", "0 lets nobody in; say who may, in max.connections.per.ip.overrides"
        )
    threads = _number(values["log.cleaner.threads"])
    if threads and _number(values["log.cleaner.dedupe.buffer.size"]) / threads <= _MIB:
        raise ConfigError(
            "log.cleaner.dedupe.buffer.size",
            "every thread (log.cleaner.threads) needs more than 1048576 bytes of it; raise it",
            also=("log.cleaner.threads",),
        )


def _check_groups(values: Mapping[str, ConfigValue]) -> None:
    protocols, assignors = values["group.coordinator.rebalance.protocols"], values["group.share.assignors"]
    assert isinstance(protocols, tuple)
    assert isinstance(assignors, tuple)
    if "classic" not in protocols:
        raise ConfigError("group.coordinator.rebalance.protocols", "classic cannot be left out; add it")
    if len(assignors) != 1:
        raise ConfigError("group.share.assignors", f"there are {len(assignors)}; name exactly one")


def _number(value: ConfigValue) -> float:
    assert isinstance(value, int | float)
    return value
