"""Typed configs give the values of a broker and of a topic by name: `config.integer("log.segment.bytes")`."""

from collections.abc import Iterator, Mapping
from typing import Final

from penstock.broker.config.broker_table import BROKER_CONFIGS, PLUGIN_PREFIXES
from penstock.broker.config.checks import check_together
from penstock.broker.config.endpoints import (
    Endpoint,
    advertise,
    parse_advertised,
    parse_inter_broker_listener,
    parse_listeners,
    parse_metrics_listener,
)
from penstock.broker.config.rows import ANY, IGNORED, KIB, PASSWORD, READ_ONLY
from penstock.broker.config.topic_table import TOPIC_CONFIGS
from penstock.broker.config.values import ConfigError, ConfigKey, ConfigValue, Range, Update, near_name
from penstock.broker.partitions.topic_settings import TopicSettings
from penstock.machines.cluster import MIN_ISR
from penstock.machines.controller import DEFAULT, TopicDefaults
from penstock.storage.log.compaction_state import CompactionConfig
from penstock.storage.log.log import LogConfig

MAX_INDEX_INTERVAL_BYTES: Final = 64 * KIB
_NOTHING: Final[Mapping[str, str]] = {}
_DEFAULTS: Final = {name: key.default for name, key in BROKER_CONFIGS.items()}


class _Values:
    """Typed access by name. A name that is in no table, or of another type, is a bug of ours."""

    __slots__ = ()

    def __getitem__(self, name: str) -> ConfigValue:
        raise NotImplementedError

    def boolean(self, name: str) -> bool:
        value = self[name]
        assert isinstance(value, bool), f"{name} is no boolean"
        return value

    def integer(self, name: str) -> int:
        value = self[name]
        assert isinstance(value, int), f"{name} is no integer"
        assert not isinstance(value, bool), f"{name} is no integer"
        return value

    def double(self, name: str) -> float:
        value = self[name]
        assert isinstance(value, float), f"{name} is no number with a fraction"
        return value

    def string(self, name: str) -> str:
        value = self[name]
        assert isinstance(value, str), f"{name} is no string"
        return value

    def strings(self, name: str) -> tuple[str, ...]:
        value = self[name]
        assert isinstance(value, tuple), f"{name} is no list"
        return value


class BrokerConfig(_Values):
    """What a broker was started with (`static`), what was set later for all brokers (`cluster`) and for this one
    (`broker`), each as text by name; the later layers win. It never changes: `with_dynamic` makes another."""

    __slots__ = (
        "static",
        "cluster",
        "broker",
        "listeners",
        "inter_broker_listener",
        "metrics_listener",
        "topic_defaults",
        "_advertised",
        "_values",
    )

    def __init__(
        self,
        static: Mapping[str, str],
        *,
        cluster: Mapping[str, str] = _NOTHING,
        broker: Mapping[str, str] = _NOTHING,
    ) -> None:
        _refuse_static(cluster, {Update.CLUSTER_WIDE})
        _refuse_static(broker, {Update.CLUSTER_WIDE, Update.PER_BROKER})
        self.static = dict(static)
        self.cluster = dict(cluster)
        self.broker = dict(broker)
        self._values = dict(_DEFAULTS)
        for name, text in (self.static | self.cluster | self.broker).items():
            self._values[name] = broker_config_key(name).parse(text)
        if self.integer("broker.id") >= 0 and "node.id" not in static:
            self._values["node.id"] = self._values["broker.id"]
        check_together(self._values)
        self._values["broker.id"] = self._values["node.id"]
        self.listeners: tuple[Endpoint, ...] = parse_listeners(self._values)
        self.metrics_listener: Endpoint | None = parse_metrics_listener(self._values)
        self._advertised = parse_advertised(self._values, self.listeners)
        self.inter_broker_listener: str = parse_inter_broker_listener(self._values, self.listeners, self._advertised)
        self.topic_defaults: Mapping[str, ConfigValue] = {
            key.name: self._topic_default(key) for key in TOPIC_CONFIGS.values()
        }

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> "BrokerConfig":
        """The config of a broker that is started with these values; `ConfigError` if one cannot be."""
        return cls(values)

    def with_dynamic(
        self, *, cluster: Mapping[str, str] | None = None, broker: Mapping[str, str] | None = None
    ) -> "BrokerConfig":
        """This config with other values set at run time. A layer that is not given stays."""
        return BrokerConfig(
            self.static,
            cluster=self.cluster if cluster is None else cluster,
            broker=self.broker if broker is None else broker,
        )

    def __getitem__(self, name: str) -> ConfigValue:
        return self._values[name]

    @property
    def node_id(self) -> int:
        return self.integer("node.id")

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The data folders, each once."""
        found = self["log.dirs"] or self["log.dir"]
        if not isinstance(found, tuple):
            raise ConfigError("log.dirs", "is not set; say where the data lies")
        return tuple(dict.fromkeys(found))

    @property
    def creation_defaults(self) -> TopicDefaults:
        """How many partitions and replicas a topic gets whose creator names no number. Brokers that share a host share
        a disk, on which a second replica would be of no use."""
        min_isr = self.integer(MIN_ISR) if MIN_ISR in self.static else None
        is_on_one_disk = self["penstock.metadata.socket"] is not None
        factor = self["default.replication.factor"] or (1 if is_on_one_disk else DEFAULT)
        assert isinstance(factor, int)
        return TopicDefaults(self.integer("num.partitions"), factor, min_isr)

    def advertised_listeners(self, *, bound_ports: Mapping[str, int], machine: str) -> tuple[Endpoint, ...]:
        """The addresses that clients connect to. `bound_ports` has the port of a listener that asked for any, `machine`
        is the host of listeners that are open on every address."""
        return advertise(self._advertised or self.listeners, bound_ports=bound_ports, machine=machine)

    def without_effect(self) -> Iterator[ConfigKey]:
        """The configs that were set before the start and change nothing in this version."""
        for name in self.static:
            key = broker_config_key(name)
            if not key.takes_effect(self._values[name]):
                yield key

    def _topic_default(self, key: ConfigKey) -> ConfigValue:
        for synonym in key.synonyms:
            value = synonym.convert(self._values[synonym.name])
            if value is None:
                continue
            if isinstance(key.allowed, Range):
                # Kafka lets brokers have any negative log.retention.ms, and means -1.
                assert isinstance(value, int | float)
                return max(value, key.allowed.low)
            return value
        return key.default


class TopicConfig(_Values):
    """The configs of a topic: its own, and the broker's for what it does not set."""

    __slots__ = ("overrides", "_own", "_defaults")

    def __init__(self, overrides: Mapping[str, str], broker: BrokerConfig) -> None:
        self.overrides = dict(overrides)
        self._own = {name: topic_config_key(name).parse(text) for name, text in overrides.items()}
        self._defaults = broker.topic_defaults

    def __getitem__(self, name: str) -> ConfigValue:
        return self._own[name] if name in self._own else self._defaults[name]

    def log_config(self) -> LogConfig:
        """The settings of the logs of the topic's partitions."""
        deletes = "delete" in self.strings("cleanup.policy")
        return LogConfig(
            segment_bytes=self.integer(
                "segment.bytes" if self["internal.segment.bytes"] is None else "internal.segment.bytes"
            ),
            segment_ms=self.integer("segment.ms"),
            retention_bytes=self.integer("retention.bytes") if deletes else -1,
            retention_ms=self.integer("retention.ms") if deletes else -1,
            # Between two entries a look-up goes from batch to batch, while requests wait.
            index_interval_bytes=min(self.integer("index.interval.bytes"), MAX_INDEX_INTERVAL_BYTES),
            compaction=self._compaction_config() if "compact" in self.strings("cleanup.policy") else None,
        )

    def _compaction_config(self) -> CompactionConfig:
        return CompactionConfig(
            min_dirty_ratio=self.double("min.cleanable.dirty.ratio"),
            min_lag_ms=self.integer("min.compaction.lag.ms"),
            max_lag_ms=self.integer("max.compaction.lag.ms"),
            delete_retention_ms=self.integer("delete.retention.ms"),
        )

    def settings(self) -> TopicSettings:
        """The settings that a partition of the topic looks up all the time."""
        needs_keys = "compact" in self.strings("cleanup.policy")
        return TopicSettings(
            log=self.log_config(),
            max_message_bytes=self.integer("max.message.bytes"),
            log_append_time=self.string("message.timestamp.type") == "LogAppendTime",
            timestamp_before_max_ms=self.integer("message.timestamp.before.max.ms"),
            timestamp_after_max_ms=self.integer("message.timestamp.after.max.ms"),
            deletes_old="delete" in self.strings("cleanup.policy"),
            needs_keys=needs_keys,
            looks_inside=needs_keys or self.string("penstock.validate") == "records",
            min_insync_replicas=self.integer("min.insync.replicas"),
            flush_before_commit=self.string("penstock.flush") == "ack",
            hold_group=self.string("penstock.retention.hold.group"),
        )


def validate_topic_configs(values: Mapping[str, str | None], broker: BrokerConfig | None = None) -> str | None:
    """Say what is wrong with the configs that a topic is to have; None if nothing is."""
    try:
        for name, text in values.items():
            if text is None:
                raise ConfigError(topic_config_key(name).name, "has no value; leave it out to get the default")
        config = TopicConfig(
            {name: text for name, text in values.items() if text is not None}, broker or BrokerConfig({})
        )
        if config.boolean("remote.storage.enable"):
            raise ConfigError("remote.storage.enable", "there is no tiered storage; leave it false")
        shortest, longest = config.integer("min.compaction.lag.ms"), config.integer("max.compaction.lag.ms")
        if shortest > longest:
            raise ConfigError(
                "min.compaction.lag.ms", f"{shortest} is more than max.compaction.lag.ms, which is {longest}"
            )
    except ConfigError as error:
        return str(error)
    return None


def broker_config_key(name: str) -> ConfigKey:
    """The row of a broker config; `ConfigError`, with what was probably meant, if there is none."""
    key = BROKER_CONFIGS.get(name)
    if key is not None:
        return key
    if name.startswith(PLUGIN_PREFIXES):
        # A plug-in's config may hold anything, so it is treated like a secret.
        return ConfigKey(name, PASSWORD, None, ANY, READ_ONLY, IGNORED, "A config of a plug-in or of one listener.")
    if name in TOPIC_CONFIGS and TOPIC_CONFIGS[name].synonyms:
        hint = f"; it is a topic's name for {TOPIC_CONFIGS[name].synonyms[0].name}"
    else:
        hint = _did_you_mean(name, BROKER_CONFIGS)
    raise ConfigError(name, f"there is no such broker config{hint}")


def topic_config_key(name: str) -> ConfigKey:
    """The row of a topic config; `ConfigError`, with what was probably meant, if there is none."""
    key = TOPIC_CONFIGS.get(name)
    if key is not None:
        return key
    topic_names = {synonym.name: key.name for key in TOPIC_CONFIGS.values() for synonym in key.synonyms}
    if name in topic_names:
        hint = f"; it is a broker's name for {topic_names[name]}"
    else:
        hint = _did_you_mean(name, TOPIC_CONFIGS)
    raise ConfigError(name, f"there is no such topic config{hint}")


def _did_you_mean(name: str, table: Mapping[str, ConfigKey]) -> str:
    near = near_name(name, (key.name for key in table.values() if not key.internal))
    return "" if near is None else f"; did you mean {near}?"


def _refuse_static(values: Mapping[str, str], allowed: set[Update]) -> None:
    for name in values:
        update = broker_config_key(name).update
        if update is Update.READ_ONLY:
            raise ConfigError(name, "cannot change while the broker runs; change it where the broker is started")
        if update not in allowed:
            raise ConfigError(name, "differs from broker to broker; set it for one broker")
