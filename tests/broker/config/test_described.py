"""Configs as DescribeConfigs shows them."""

from penstock.broker.config.broker_table import BROKER_CONFIGS
from penstock.broker.config.described import (
    ConfigSource,
    SourcedValue,
    broker_config_names,
    describe_broker_config,
    describe_topic_config,
    topic_config_names,
)
from penstock.broker.config.typed import BrokerConfig, TopicConfig
from penstock.broker.config.values import ConfigType

DEFAULT, STATIC, CLUSTER, BROKER, TOPIC = (
    ConfigSource.DEFAULT,
    ConfigSource.STATIC_BROKER,
    ConfigSource.DYNAMIC_DEFAULT_BROKER,
    ConfigSource.DYNAMIC_BROKER,
    ConfigSource.DYNAMIC_TOPIC,
)


def test_a_value_that_nobody_set_is_the_default() -> None:
    described = describe_broker_config(BrokerConfig.parse({}), "num.partitions")
    assert (described.value, described.source, described.type) == ("1", DEFAULT, ConfigType.INT)
    assert described.read_only
    assert described.synonyms == (SourcedValue("num.partitions", "1", DEFAULT),)
    assert described.documentation == BROKER_CONFIGS["num.partitions"].documentation


def test_every_layer_that_has_a_value_is_shown_with_the_one_that_counts_first() -> None:
    config = BrokerConfig.parse({"message.max.bytes": "1"})
    config = config.with_dynamic(cluster={"message.max.bytes": "2"}, broker={"message.max.bytes": "3"})
    described = describe_broker_config(config, "message.max.bytes")
    assert (described.value, described.source, described.read_only) == ("3", BROKER, False)
    assert [(synonym.value, synonym.source) for synonym in described.synonyms] == [
        ("3", BROKER),
        ("2", CLUSTER),
        ("1", STATIC),
        ("1048588", DEFAULT),
    ]


def test_what_is_not_set_has_no_value_though_a_synonym_has() -> None:
    described = describe_broker_config(BrokerConfig.parse({"log.retention.hours": "5"}), "log.retention.ms")
    assert (described.value, described.source, described.synonyms) == (None, DEFAULT, ())


def test_the_number_of_the_broker_is_shown_under_both_names() -> None:
    config = BrokerConfig.parse({"broker.id": "7"})
    for name in ("node.id", "broker.id"):
        described = describe_broker_config(config, name)
        assert (described.value, described.source) == ("7", STATIC)


def test_secrets_are_never_shown() -> None:
    config = BrokerConfig.parse({"ssl.key.password": "hush", "rsm.config.key": "hush"})
    for name in config.static:
        described = describe_broker_config(config, name)
        assert described.sensitive
        assert "hush" not in repr(described)
        assert described.source is STATIC


def test_a_topic_shows_where_its_value_comes_from() -> None:
    broker = BrokerConfig.parse({"log.retention.minutes": "3"})
    described = describe_topic_config(TopicConfig({}, broker), broker, "retention.ms")
    assert (described.value, described.source, described.read_only) == ("180000", STATIC, False)
    assert described.synonyms == (
        SourcedValue("log.retention.minutes", "3", STATIC),
        SourcedValue("log.retention.hours", "168", DEFAULT),
    )


def test_a_topics_own_value_comes_first() -> None:
    broker = BrokerConfig.parse({})
    described = describe_topic_config(
        TopicConfig({"cleanup.policy": " delete , compact "}, broker), broker, "cleanup.policy"
    )
    assert (described.value, described.source) == ("delete,compact", TOPIC)
    assert described.synonyms == (
        SourcedValue("cleanup.policy", "delete,compact", TOPIC),
        SourcedValue("log.cleanup.policy", "delete", DEFAULT),
    )


def test_a_topic_config_without_a_synonym_has_its_own_default() -> None:
    broker = BrokerConfig.parse({})
    described = describe_topic_config(TopicConfig({}, broker), broker, "remote.storage.enable")
    assert (described.value, described.source, described.synonyms) == ("false", DEFAULT, ())


def test_every_name_can_be_described() -> None:
    broker = BrokerConfig.parse({"rsm.config.key": "1"})
    topic = TopicConfig({}, broker)
    names = broker_config_names(broker)
    assert [describe_broker_config(broker, name).name for name in names] == names
    assert "rsm.config.key" in names
    assert [describe_topic_config(topic, broker, name).name for name in topic_config_names()] == topic_config_names()
    assert "internal.segment.bytes" not in topic_config_names()
