"""The table of cluster configs."""

from penstock.broker.config.cluster import CLUSTER_CONFIGS
from tests.broker.config.kafka_facts import differences


def test_the_rows_say_what_kafka_says() -> None:
    assert differences("broker", CLUSTER_CONFIGS) == []
