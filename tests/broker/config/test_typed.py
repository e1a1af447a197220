"""The configs of a broker and of a topic as typed values."""

import pytest

from penstock.broker.config.typed import BrokerConfig, TopicConfig, broker_config_key, validate_topic_configs
from penstock.broker.config.values import ConfigError, ConfigValue
from penstock.machines.controller import DEFAULT
from penstock.storage.log.compaction_state import CompactionConfig
from penstock.storage.log.log import LogConfig

HOUR_MS = 3_600_000


def test_values_have_the_type_of_their_config() -> None:
    config = BrokerConfig.parse(
        {"log.segment.bytes": "1048576", "auto.create.topics.enable": "false", "log.dirs": "/a,/b"}
    )
    assert config["log.segment.bytes"] == config.integer("log.segment.bytes") == 1048576
    assert config.boolean("auto.create.topics.enable") is False
    assert config.strings("log.dirs") == ("/a", "/b")
    assert config.string("compression.type") == "producer"
    assert config.double("log.cleaner.min.cleanable.ratio") == 0.5


def test_a_value_asked_for_as_another_type_is_a_bug() -> None:
    config = BrokerConfig.parse({})
    for ask in (config.boolean, config.string, config.strings, config.double):
        with pytest.raises(AssertionError):
            ask("num.partitions")
    with pytest.raises(AssertionError):
        config.integer("auto.create.topics.enable")
    with pytest.raises(KeyError):
        config["no.such.name"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("log.segement.bytes", "there is no such broker config; did you mean log.segment.bytes?"),
        ("retention.ms", "there is no such broker config; it is a topic's name for log.retention.ms"),
        ("zookeeper.max.in.flight.requests", "there is no such broker config"),
    ],
)
def test_an_unknown_name_is_refused_with_what_was_probably_meant(name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse({name: "1"})
    assert str(caught.value) == f"{name}: {message}"


def test_configs_of_plug_ins_are_accepted_and_secret() -> None:
    config = BrokerConfig.parse({"listener.name.internal.ssl.keystore.password": "hush", "rsm.config.chunk": "5"})
    assert [key.name for key in config.without_effect()] == list(config.static)
    assert broker_config_key("rsm.config.chunk").sensitive


@pytest.mark.parametrize(
    ("values", "node_id"), [({}, 0), ({"node.id": "3"}, 3), ({"broker.id": "4"}, 4), ({"broker.id": "-1"}, 0)]
)
def test_the_number_of_the_broker_goes_by_two_names(values: dict[str, str], node_id: int) -> None:
    config = BrokerConfig.parse(values)
    assert config.node_id == config["node.id"] == config["broker.id"] == node_id


@pytest.mark.parametrize(
    ("values", "folders"),
    [
        ({"log.dir": "/a"}, ("/a",)),
        ({"log.dir": "/a", "log.dirs": "/b,/c,/b"}, ("/b", "/c")),
    ],
)
def test_data_folders_are_named_once_each(values: dict[str, str], folders: tuple[str, ...]) -> None:
    assert BrokerConfig.parse(values).log_dirs == folders


def test_a_broker_without_a_data_folder_is_told_to_name_one() -> None:
    with pytest.raises(ConfigError, match="say where the data lies"):
        _ = BrokerConfig.parse({}).log_dirs


def test_only_what_was_set_and_changes_nothing_is_listed_as_such() -> None:
    values = {"num.io.threads": "9", "num.partitions": "3", "compression.type": "zstd", "log.cleanup.policy": "delete"}
    assert [key.name for key in BrokerConfig.parse(values).without_effect()] == ["num.io.threads", "compression.type"]


# What is set while brokers run


def test_later_layers_win_and_can_be_taken_away() -> None:
    started = BrokerConfig.parse({"message.max.bytes": "1000", "log.retention.bytes": "1"})
    changed = started.with_dynamic(cluster={"message.max.bytes": "2000", "log.retention.bytes": "2"})
    changed = changed.with_dynamic(broker={"message.max.bytes": "3000"})
    assert (changed["message.max.bytes"], changed["log.retention.bytes"]) == (3000, 2)
    assert started["message.max.bytes"] == 1000
    assert changed.with_dynamic(cluster={}, broker={})["message.max.bytes"] == 1000


def test_what_cannot_change_while_a_broker_runs_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot change while the broker runs"):
        BrokerConfig.parse({}).with_dynamic(broker={"num.partitions": "3"})


def test_what_differs_from_broker_to_broker_is_refused_for_all() -> None:
    config = BrokerConfig.parse({})
    with pytest.raises(ConfigError, match="set it for one broker"):
        config.with_dynamic(cluster={"ssl.protocol": "TLSv1.2"})
    assert config.with_dynamic(broker={"ssl.protocol": "TLSv1.2"})["ssl.protocol"] == "TLSv1.2"


def test_changes_are_checked_against_what_is_there() -> None:
    with pytest.raises(ConfigError, match="more than"):
        BrokerConfig.parse({}).with_dynamic(
            cluster={"log.cleaner.max.compaction.lag.ms": "5", "log.cleaner.min.compaction.lag.ms": "6"}
        )


# Topics


@pytest.mark.parametrize(
    ("broker", "name", "value"),
    [
        ({}, "retention.ms", 168 * HOUR_MS),
        ({"log.retention.hours": "2"}, "retention.ms", 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, "retention.ms", 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, "retention.ms", 4),
        ({"log.retention.hours": "-1"}, "retention.ms", -1),
        ({"log.retention.ms": "-7"}, "retention.ms", -1),
        ({"log.roll.hours": "2"}, "segment.ms", 2 * HOUR_MS),
        ({"log.roll.hours": "2", "log.roll.ms": "5"}, "segment.ms", 5),
        ({"log.roll.jitter.hours": "1"}, "segment.jitter.ms", HOUR_MS),
        ({"log.flush.scheduler.interval.ms": "9"}, "flush.ms", 9),
        ({"message.max.bytes": "77"}, "max.message.bytes", 77),
        ({"log.cleanup.policy": "compact"}, "cleanup.policy", ("compact",)),
        ({"log.local.retention.ms": "-2"}, "local.retention.ms", -2),
        ({"penstock.flush": "os"}, "penstock.flush", "os"),
        ({}, "min.cleanable.dirty.ratio", 0.5),
        ({}, "remote.storage.enable", False),
    ],
)
def test_a_topic_gets_what_the_broker_says_in_its_own_unit(
    broker: dict[str, str], name: str, value: ConfigValue
) -> None:
    assert TopicConfig({}, BrokerConfig.parse(broker))[name] == value


def test_a_topics_own_value_wins() -> None:
    config = TopicConfig({"retention.ms": "5"}, BrokerConfig.parse({"log.retention.ms": "4"}))
    assert config["retention.ms"] == 5
    assert config.overrides == {"retention.ms": "5"}


def test_a_topics_logs_go_by_its_configs() -> None:
    own = {
        "segment.bytes": "1048576",
        "segment.ms": "2",
        "retention.bytes": "3",
        "retention.ms": "4",
        "index.interval.bytes": "5",
    }
    assert TopicConfig(own, BrokerConfig.parse({})).log_config() == LogConfig(
        segment_bytes=1048576, segment_ms=2, retention_bytes=3, retention_ms=4, index_interval_bytes=5
    )


def test_no_index_has_gaps_that_take_long_to_walk_through() -> None:
    own = {"index.interval.bytes": str((1 << 31) - 1)}
    assert TopicConfig(own, BrokerConfig.parse({})).log_config().index_interval_bytes == 64 * 1024


def test_the_defaults_of_a_log_are_those_of_the_table() -> None:
    assert TopicConfig({}, BrokerConfig.parse({})).log_config() == LogConfig()


@pytest.mark.parametrize("policy", ["compact", ""])
def test_nothing_is_deleted_where_the_policy_does_not_say_so(policy: str) -> None:
    own = {"cleanup.policy": policy, "retention.ms": "1", "retention.bytes": "1"}
    config = TopicConfig(own, BrokerConfig.parse({}))
    assert (config.log_config().retention_ms, config.log_config().retention_bytes) == (-1, -1)
    assert not config.settings().deletes_old


def test_a_compacted_topic_has_settings_for_that_and_others_have_none() -> None:
    broker = BrokerConfig.parse({"log.cleaner.min.cleanable.ratio": "0.25"})
    own = {
        "cleanup.policy": "compact,delete",
        "min.compaction.lag.ms": "1",
        "max.compaction.lag.ms": "2",
        "delete.retention.ms": "3",
    }
    config = TopicConfig(own, broker)
    expected = CompactionConfig(min_dirty_ratio=0.25, min_lag_ms=1, max_lag_ms=2, delete_retention_ms=3)
    assert config.log_config().compaction == expected
    assert config.settings().needs_keys
    assert TopicConfig({"cleanup.policy": "compact"}, BrokerConfig.parse({})).log_config().compaction == (
        CompactionConfig()
    )
    assert TopicConfig(own | {"cleanup.policy": "delete"}, broker).log_config().compaction is None


def test_segments_can_be_tiny_for_tests() -> None:
    assert TopicConfig({"internal.segment.bytes": "100"}, BrokerConfig.parse({})).log_config().segment_bytes == 100


def test_a_partition_gets_what_it_looks_up_all_the_time() -> None:
    own = {
        "max.message.bytes": "9",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "8",
        "message.timestamp.after.max.ms": "7",
        "min.insync.replicas": "2",
        "penstock.flush": "os",
        "penstock.retention.hold.group": "archive",
    }
    settings = TopicConfig(own, BrokerConfig.parse({})).settings()
    assert (settings.max_message_bytes, settings.min_insync_replicas) == (9, 2)
    assert (settings.timestamp_before_max_ms, settings.timestamp_after_max_ms) == (8, 7)
    assert settings.log_append_time
    assert settings.deletes_old
    assert not settings.flush_before_commit
    assert settings.hold_group == "archive"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"retention.mss": "1"}, "retention.mss: there is no such topic config; did you mean retention.ms?"),
        (
            {"log.retention.ms": "1"},
            "log.retention.ms: there is no such topic config; it is a broker's name for retention.ms",
        ),
        ({"num.partitions": "1"}, "num.partitions: there is no such topic config"),
        ({"retention.ms": "-2"}, "retention.ms: -2 is out of range; set it to at least -1"),
        ({"retention.ms": None}, "retention.ms: has no value; leave it out to get the default"),
        ({"foo": None}, "foo: there is no such topic config"),
        ({"segment.bytes": "1"}, "segment.bytes: 1 is out of range; set it to at least 1048576"),
        ({"compression.type": "none"}, "compression.type: none is none of"),
        ({"remote.storage.enable": "true"}, "remote.storage.enable: there is no tiered storage; leave it false"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "min.compaction.lag.ms: 5 is more than"),
        ({"leader.replication.throttled.replicas": "1:1,x"}, "is not of the form partition:broker"),
    ],
)
def test_topic_configs_that_cannot_be_are_told_why(values: dict[str, str | None], message: str) -> None:
    problem = validate_topic_configs(values)
    assert problem is not None
    assert message in problem


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"cleanup.policy": "compact,delete"},
        {"cleanup.policy": ""},
        {"retention.bytes": "-9"},
        {"leader.replication.throttled.replicas": "*"},
        {"follower.replication.throttled.replicas": "0:1,1:2"},
        {"min.compaction.lag.ms": "9223372036854775807"},
        {"internal.segment.bytes": "100"},
    ],
)
def test_topic_configs_that_kafka_accepts_are_accepted(values: dict[str, str]) -> None:
    assert validate_topic_configs(values) is None


def test_topic_configs_must_fit_the_brokers_defaults() -> None:
    broker = BrokerConfig.parse({"log.cleaner.max.compaction.lag.ms": "4"})
    assert validate_topic_configs({"min.compaction.lag.ms": "5"}, broker) is not None


def test_the_number_of_replicas_is_left_to_the_cluster_unless_it_is_set_or_brokers_share_a_disk() -> None:
    socket = {"penstock.metadata.socket": "/data/socket"}
    given = {"default.replication.factor": "2"}
    cases: list[tuple[dict[str, str], int]] = [({}, DEFAULT), (given, 2), (socket, 1), ({**socket, **given}, 2)]
    for values, expected in cases:
        assert BrokerConfig.parse(values).creation_defaults.replication_factor == expected
