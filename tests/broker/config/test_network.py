"""The table of network configs."""

import pytest

from penstock.broker.config.network import NETWORK_CONFIGS
from penstock.broker.config.values import ConfigError
from tests.broker.config.kafka_facts import differences


def test_the_rows_say_what_kafka_says() -> None:
    assert differences("broker", NETWORK_CONFIGS) == []


def test_limits_of_connections_by_address_are_pairs_of_host_and_count() -> None:
    key = next(key for key in NETWORK_CONFIGS if key.name == "max.connections.per.ip.overrides")
    assert key.parse("10.0.0.1:5, build.example:200") == "10.0.0.1:5, build.example:200"
    assert key.parse("") == ""
    with pytest.raises(ConfigError, match="of the form host:count,host:count"):
        key.parse("10.0.0.1")
