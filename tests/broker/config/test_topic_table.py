"""The table of topic configs."""

from penstock.broker.config.broker_table import BROKER_CONFIGS
from penstock.broker.config.topic_table import TOPIC_CONFIGS
from tests.broker.config.kafka_facts import OURS_OF_TOPICS, differences, facts


def test_the_rows_say_what_kafka_says() -> None:
    assert differences("topic", TOPIC_CONFIGS.values()) == []


def test_every_config_of_kafka_is_known() -> None:
    ours = {name for name, key in TOPIC_CONFIGS.items() if not key.internal}
    assert ours == facts("topic").keys() | OURS_OF_TOPICS


def test_synonyms_are_broker_configs() -> None:
    assert {synonym.name for key in TOPIC_CONFIGS.values() for synonym in key.synonyms} <= BROKER_CONFIGS.keys()


def test_a_topic_config_has_an_effect_where_the_brokers_has() -> None:
    assert TOPIC_CONFIGS["retention.ms"].effect is True
    assert TOPIC_CONFIGS["flush.ms"].effect is False
    assert TOPIC_CONFIGS["compression.type"].effect == frozenset({"producer"})
