"""This room holds the configs of brokers and topics: their tables, their typed values, and where they come from."""

from penstock.broker.config.typed import BrokerConfig, TopicConfig
from penstock.broker.config.values import ConfigError

__all__ = ["BrokerConfig", "ConfigError", "TopicConfig"]
