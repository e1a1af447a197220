"""The topic table lists the configs of a topic. Most take their facts and their default from a broker config."""

from typing import Final

from penstock.broker.config.cluster import CLUSTER_CONFIGS
from penstock.broker.config.log import LOG_CONFIGS
from penstock.broker.config.rows import (
    ANY,
    BOOLEAN,
    CLUSTER_WIDE,
    HOUR_MS,
    IGNORED,
    INT,
    LIST,
    MINUTE_MS,
    STRING,
    WORKS,
    at_least,
    row,
)
from penstock.broker.config.values import Allowed, ConfigKey, ConfigValue, Pattern, Synonym

_BROKER: Final = {key.name: key for key in (*LOG_CONFIGS, *CLUSTER_CONFIGS)}
_REPLICAS: Final = Pattern(r"\*|[0-9]+:[0-9]+", "partition:broker,partition:broker, or *")


def _like(name: str, *synonyms: Synonym, allowed: Allowed | None = None, documentation: str | None = None) -> ConfigKey:
    """A row that says what the broker's row does, except for what is given. The first synonym that is set counts."""
    model = _BROKER[synonyms[0].name]
    return ConfigKey(
        name,
        model.type,
        _default(synonyms),
        allowed or model.allowed,
        CLUSTER_WIDE,
        model.effect,
        documentation or model.documentation,
        synonyms,
    )


def _default(synonyms: tuple[Synonym, ...]) -> ConfigValue:
    for synonym in synonyms:
        value = synonym.convert(_BROKER[synonym.name].default)
        if value is not None:
            return value
    return None


# fmt: off
_ROWS: Final = (
    _like("max.message.bytes", Synonym("message.max.bytes")),
    _like("compression.type", Synonym("compression.type")),
    _like("compression.gzip.level", Synonym("compression.gzip.level")),
    _like("compression.lz4.level", Synonym("compression.lz4.level")),
    _like("compression.zstd.level", Synonym("compression.zstd.level")),
    _like("message.timestamp.type", Synonym("log.message.timestamp.type")),
    _like("message.timestamp.before.max.ms", Synonym("log.message.timestamp.before.max.ms")),
    _like("message.timestamp.after.max.ms", Synonym("log.message.timestamp.after.max.ms")),
    _like("min.insync.replicas", Synonym("min.insync.replicas")),
    _like("unclean.leader.election.enable", Synonym("unclean.leader.election.enable")),

    _like("segment.bytes", Synonym("log.segment.bytes")),
    row("internal.segment.bytes", INT, None, at_least(1), CLUSTER_WIDE, WORKS,
        "segment.bytes without its lower limit, for tests.", internal=True),
    _like("segment.ms", Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS), allowed=at_least(1)),
    _like("segment.jitter.ms", Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS),
        allowed=at_least(0),
        documentation="Up to this much is taken off segment.ms at random, so that not all segments close at once."),
    _like("segment.index.bytes", Synonym("log.index.size.max.bytes")),
    _like("index.interval.bytes", Synonym("log.index.interval.bytes")),
    _like("preallocate", Synonym("log.preallocate")),

    _like("cleanup.policy", Synonym("log.cleanup.policy")),
    _like("retention.ms", Synonym("log.retention.ms"), Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS), allowed=at_least(-1)),
    _like("retention.bytes", Synonym("log.retention.bytes")),
    row("penstock.retention.hold.group", STRING, "", ANY, CLUSTER_WIDE, WORKS,
        "A consumer group that retention waits for: by time and by size it deletes nothing that the group has not "
        "committed yet, and where it has committed nothing, nothing at all. Empty: it waits for nobody."),
    _like("file.delete.delay.ms", Synonym("log.segment.delete.delay.ms")),
    _like("delete.retention.ms", Synonym("log.cleaner.delete.retention.ms")),
    _like("min.cleanable.dirty.ratio", Synonym("log.cleaner.min.cleanable.ratio")),
    _like("min.compaction.lag.ms", Synonym("log.cleaner.min.compaction.lag.ms")),
    _like("max.compaction.lag.ms", Synonym("log.cleaner.max.compaction.lag.ms")),

    _like("penstock.flush", Synonym("penstock.flush")),
    _like("penstock.validate", Synonym("penstock.validate")),
    _like("flush.messages", Synonym("log.flush.interval.messages")),
    _like("flush.ms", Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms"),
        allowed=at_least(0)),

    row("leader.replication.throttled.replicas", LIST, (), _REPLICAS, CLUSTER_WIDE, IGNORED,
        "The replicas whose replication is slowed down where it leaves the leader."),
    row("follower.replication.throttled.replicas", LIST, (), _REPLICAS, CLUSTER_WIDE, IGNORED,
        "The replicas whose replication is slowed down where it reaches the follower."),
    row("remote.storage.enable", BOOLEAN, False, ANY, CLUSTER_WIDE, IGNORED,
        "Whether tiered storage gets the topic's closed segments. Penstock has none, and refuses true."),
    row("remote.log.copy.disable", BOOLEAN, False, ANY, CLUSTER_WIDE, IGNORED,
        "Whether nothing more is copied to tiered storage."),
    row("remote.log.delete.on.disable", BOOLEAN, False, ANY, CLUSTER_WIDE, IGNORED,
        "Whether tiered storage forgets the topic when it is turned off for it."),
    _like("local.retention.ms", Synonym("log.local.retention.ms"),
        documentation="retention.ms for what tiered storage has a copy of; -2 takes that value."),
    _like("local.retention.bytes", Synonym("log.local.retention.bytes"),
        documentation="retention.bytes for what tiered storage has a copy of; -2 takes that value."),
)
# fmt: on

TOPIC_CONFIGS: Final[dict[str, ConfigKey]] = {key.name: key for key in _ROWS}
