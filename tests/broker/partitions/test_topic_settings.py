"""What a partition looks up of its topic's configs."""

import dataclasses

import pytest

from penstock.broker.config.typed import BrokerConfig, TopicConfig
from penstock.broker.partitions.topic_settings import TopicSettings


def settings(configs: dict[str, str], broker: dict[str, str] | None = None) -> TopicSettings:
    return TopicConfig(configs, BrokerConfig(broker or {})).settings()


def test_settings_are_the_topics_own_where_it_has_any_and_the_brokers_otherwise() -> None:
    made = settings({"max.message.bytes": "500"}, {"message.max.bytes": "700", "log.retention.ms": "1234"})
    assert made.max_message_bytes == 500
    assert made.log.retention_ms == 1234


def test_by_default_records_are_flushed_before_they_count_and_old_ones_are_deleted() -> None:
    made = settings({})
    assert made.flush_before_commit
    assert made.deletes_old
    assert not made.needs_keys
    assert not made.log_append_time


def test_each_setting_follows_its_config() -> None:
    made = settings(
        {
            "penstock.flush": "os",
            "cleanup.policy": "compact",
            "message.timestamp.type": "LogAppendTime",
            "message.timestamp.before.max.ms": "10",
            "message.timestamp.after.max.ms": "20",
            "min.insync.replicas": "3",
        }
    )
    assert not made.flush_before_commit
    assert not made.deletes_old
    assert made.needs_keys
    assert made.log_append_time
    assert (made.timestamp_before_max_ms, made.timestamp_after_max_ms, made.min_insync_replicas) == (10, 20, 3)


def test_settings_do_not_change_under_who_holds_them() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings({}).max_message_bytes = 1  # type: ignore[misc]
