"""The table of coordinator configs."""

from penstock.broker.config.coordinator import COORDINATOR_CONFIGS
from tests.broker.config.kafka_facts import differences


def test_the_rows_say_what_kafka_says() -> None:
    assert differences("broker", COORDINATOR_CONFIGS) == []
