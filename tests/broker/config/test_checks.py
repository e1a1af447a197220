"""What the configs of a broker must be together."""

import pytest

from penstock.broker.config.broker_table import ORDERED
from penstock.broker.config.typed import BrokerConfig
from penstock.broker.config.values import ConfigError


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"node.id": "1", "broker.id": "2"}, "broker.id: 2 is not 1, as node.id says"),
        ({"log.roll.ms": "0"}, "log.roll.ms: 0 is out of range; set it to at least 1"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms: -1 is out of range"),
        ({"log.retention.ms": "0"}, "log.retention.ms: 0 would delete everything"),
        ({"log.retention.minutes": "0"}, "log.retention.minutes: 0 would delete everything"),
        ({"log.retention.hours": "0"}, "log.retention.hours: 0 would delete everything"),
        ({"queued.max.request.bytes": "5"}, "less than one request may have"),
        ({"max.connections.per.ip": "0"}, "0 lets nobody in"),
        ({"log.cleaner.dedupe.buffer.size": "5"}, "every thread"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "classic cannot be left out"),
        ({"group.share.assignors": "a,b"}, "there are 2; name exactly one"),
        (
            {"replica.fetch.wait.max.ms": "40000", "replica.socket.timeout.ms": "50000"},
            "more than replica.lag.time.max.ms",
        ),
        ({"group.consumer.heartbeat.interval.ms": "1"}, "group.consumer.min.heartbeat.interval.ms: 5000 is more than"),
    ],
)
def test_configs_that_contradict_each_other_are_refused(values: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse(values)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"node.id": "2", "broker.id": "2"},
        {"log.retention.hours": "0", "log.retention.ms": "5"},
        {"log.retention.hours": "-5"},
        {"queued.max.request.bytes": "104857600"},
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.0.0.1:5"},
        {"log.cleaner.threads": "0", "log.cleaner.dedupe.buffer.size": "5"},
    ],
)
def test_configs_that_only_seem_to_are_accepted(values: dict[str, str]) -> None:
    assert BrokerConfig.parse(values).static == values


@pytest.mark.parametrize(("smaller", "larger"), ORDERED)
def test_an_order_is_kept(smaller: str, larger: str) -> None:
    defaults = BrokerConfig.parse({})
    high = str(defaults.integer(smaller) - 1)
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse({larger: high, smaller: str(defaults.integer(smaller))})
    assert caught.value.name in (smaller, larger)
