"""A described config is what DescribeConfigs shows: a value, the layer that sets it, and the values of layers below."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from penstock.broker.config.broker_table import BROKER_CONFIGS
from penstock.broker.config.topic_table import TOPIC_CONFIGS
from penstock.broker.config.typed import BrokerConfig, TopicConfig, broker_config_key, topic_config_key
from penstock.broker.config.values import ConfigType, Update

_IDS: Final = ("node.id", "broker.id")


class ConfigSource(IntEnum):
    """The numbers are those of DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(slots=True, frozen=True)
class SourcedValue:
    """A value that a config has, or would have. None: not set, or secret."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(slots=True, frozen=True)
class DescribedConfig:
    """A config with its value; `synonyms` begins with the layer that the value was taken from."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: ConfigType
    documentation: str
    synonyms: tuple[SourcedValue, ...]


def broker_config_names(config: BrokerConfig) -> list[str]:
    """The names to describe if none are asked for."""
    return [*BROKER_CONFIGS, *(name for name in config.static if name not in BROKER_CONFIGS)]


def topic_config_names() -> list[str]:
    """The names to describe if none are asked for."""
    return [name for name, key in TOPIC_CONFIGS.items() if not key.internal]


def describe_broker_config(config: BrokerConfig, name: str) -> DescribedConfig:
    key = broker_config_key(name)
    # These are two names for one number, either of which may be set.
    names = (name, *(other for other in _IDS if other != name)) if name in _IDS else (name,)
    synonyms = tuple(_synonyms(config, names))
    return DescribedConfig(
        name,
        None if key.sensitive else key.format(config[name]),
        synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        key.update is Update.READ_ONLY,
        key.sensitive,
        key.type,
        key.documentation,
        synonyms,
    )


def describe_topic_config(config: TopicConfig, broker: BrokerConfig, name: str) -> DescribedConfig:
    key = topic_config_key(name)
    value = key.format(config[name])
    synonyms = tuple(_synonyms(broker, tuple(synonym.name for synonym in key.synonyms)))
    if name in config.overrides:
        synonyms = (SourcedValue(name, value, ConfigSource.DYNAMIC_TOPIC), *synonyms)
    return DescribedConfig(
        name,
        value,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        False,
        False,
        key.type,
        key.documentation,
        synonyms,
    )


def describe_default(described: DescribedConfig, value: int) -> DescribedConfig:
    """A config that is not set, with the default that it has in this cluster."""
    default = SourcedValue(described.name, str(value), ConfigSource.DEFAULT)
    return replace(described, value=default.value, source=default.source, synonyms=(default,))


def _synonyms(config: BrokerConfig, names: tuple[str, ...]) -> Iterator[SourcedValue]:
    """The layers that set a config, in the order in which they count."""
    layers = (
        (ConfigSource.DYNAMIC_BROKER, config.broker),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, config.cluster),
        (ConfigSource.STATIC_BROKER, config.static),
    )
    keys = [broker_config_key(name) for name in names]
    for source, layer in layers:
        for key in keys:
            if key.name in layer:
                yield SourcedValue(key.name, None if key.sensitive else layer[key.name], source)
    for key in keys:
        if key.default is not None:
            yield SourcedValue(key.name, None if key.sensitive else key.format(key.default), ConfigSource.DEFAULT)
