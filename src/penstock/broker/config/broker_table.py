"""The broker's table lists all configs of a broker, by family and by name."""

from typing import Final

from penstock.broker.config.cluster import CLUSTER_CONFIGS
from penstock.broker.config.coordinator import COORDINATOR_CONFIGS
from penstock.broker.config.foreign import FOREIGN_CONFIGS
from penstock.broker.config.log import LOG_CONFIGS
from penstock.broker.config.network import NETWORK_CONFIGS
from penstock.broker.config.security import SECURITY_CONFIGS
from penstock.broker.config.values import ConfigKey

FAMILIES: Final[dict[str, tuple[ConfigKey, ...]]] = {
    "Brokers, topics and replication": CLUSTER_CONFIGS,
    "Listeners, connections and requests": NETWORK_CONFIGS,
    "Logs": LOG_CONFIGS,
    "Groups, offsets, transactions and queues": COORDINATOR_CONFIGS,
    "Security": SECURITY_CONFIGS,
    "Parts of Kafka that Penstock does not have": FOREIGN_CONFIGS,
}

BROKER_CONFIGS: Final[dict[str, ConfigKey]] = {key.name: key for family in FAMILIES.values() for key in family}

ALIASES: Final[tuple[tuple[str, ...], ...]] = (
    ("node.id", "broker.id"),
    ("log.dirs", "log.dir"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)
"""Names for one thing. Of those that are set in the same place, the first counts."""

PLUGIN_PREFIXES: Final = ("config.providers.", "listener.name.", "rlmm.config.", "rsm.config.")
"""What is named so only a Java plug-in knows, or it is meant for one listener: accepted, without effect."""

GROUP_KINDS: Final = ("consumer", "share", "streams")
ORDERED: Final[tuple[tuple[str, str], ...]] = (
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    *((f"group.{kind}.min.heartbeat.interval.ms", f"group.{kind}.heartbeat.interval.ms") for kind in GROUP_KINDS),
    *((f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.max.heartbeat.interval.ms") for kind in GROUP_KINDS),
    *((f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms") for kind in GROUP_KINDS),
    *((f"group.{kind}.min.session.timeout.ms", f"group.{kind}.session.timeout.ms") for kind in GROUP_KINDS),
    *((f"group.{kind}.session.timeout.ms", f"group.{kind}.max.session.timeout.ms") for kind in GROUP_KINDS),
    ("group.share.min.record.lock.duration.ms", "group.share.record.lock.duration.ms"),
    ("group.share.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"),
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
)
"""Pairs of which the first must not be larger than the second."""

KAFKA_DEFAULTS: Final[dict[str, str]] = {
    "controller.listener.names": "must be set",
    "default.replication.factor": "1",
    "listeners": "PLAINTEXT://:9092",
    "log.dir": "/tmp/kafka-logs",
    "node.id": "must be set",
    "process.roles": "must be set",
}
"""What Kafka's default is where ours is another."""
