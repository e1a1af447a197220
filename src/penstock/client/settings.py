"""`read_settings` reads the settings of a client, by Kafka's dotted names in a dict or as snake_case keywords, and
checks them."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from penstock.client.cluster.security import Security
from penstock.protocol.compression import MAX_DECOMPRESSED_BYTES, Codec

S = TypeVar("S", bound="ClientSettings")

Profile = Literal["latency", "throughput"]
Delivery = Literal["at_most_once", "at_least_once", "exactly_once"]

SECURITY_PREFIXES: Final = ("security.", "sasl.", "ssl.", "enable.ssl.")

# What each name sets, of what the user has not set: see `profile` and `delivery` below.
_PROFILES: Final[dict[str, dict[str, Any]]] = {
    "latency": {
        "linger.ms": 0,
        "batch.size": 16 * 1024,
        "fetch.min.bytes": 1,
        "fetch.max.wait.ms": 500,
        "max.partition.fetch.bytes": 1024 * 1024,
    },
    "throughput": {
        "linger.ms": 20,
        "batch.size": 512 * 1024,
        "buffer.memory": 128 * 1024 * 1024,
        "fetch.min.bytes": 256 * 1024,
        "fetch.max.wait.ms": 200,
        "max.partition.fetch.bytes": 4 * 1024 * 1024,
    },
}
_DELIVERIES: Final[dict[str, dict[str, Any]]] = {
    "at_most_once": {"acks": "0", "enable.idempotence": False, "retries": 0},
    "at_least_once": {"acks": "all", "enable.idempotence": True},
}


class SettingsError(ValueError):
    """A setting has an unknown name, or a value that it cannot have."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ClientSettings:
    """What producers, consumers and admins have in common. The names are Kafka's, with underscores for dots."""

    bootstrap_servers: str = "localhost:9092"
    """Brokers to begin with, as host:port, separated by commas."""
    client_id: str = "penstock"
    """What brokers call this client in their logs, metrics and quotas."""
    request_timeout_ms: int = 30_000
    """How long one request may take before its broker is taken for dead."""
    default_api_timeout_ms: int = 60_000
    """How long a call may take with all its tries, unless the call says otherwise."""
    metadata_max_age_ms: int = 300_000
    """How old metadata of topics may be before it is asked for again."""
    fail_fast: bool = False
    """Whether a client to which no broker has ever answered raises an error at once, in place of waiting for one."""
    security: Security | None = None
    """TLS and SASL: made from the settings that begin with `security.`, `sasl.` and `ssl.`."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ProducerSettings(ClientSettings):
    acks: Literal["all", "-1", "0", "1"] = "all"
    """When a message counts as sent: when all replicas in sync have it (`all`), the leader has it (1), at once (0)."""
    enable_idempotence: bool = True
    """Whether the broker sorts out what is sent twice because an answer was lost."""
    retries: int = 2**31 - 1
    """How often a batch is sent again; `delivery_timeout_ms` ends it in any case."""
    delivery_timeout_ms: int = 120_000
    """How long after `send` it may take until a message is known to be sent or lost."""
    linger_ms: float = 5.0
    """How long a batch that is not full waits for more messages."""
    batch_size: int = 16 * 1024
    """Bytes of a full batch, before compression: it is sent without waiting for more. While its broker is busy with
    earlier ones it goes on growing, up to `max_request_size`."""
    buffer_memory: int = 32 * 1024 * 1024
    """Bytes of messages that wait for their broker; a caller that sends more has to wait."""
    max_block_ms: int = 60_000
    """How long `send` may wait for room in that memory, or for what is known about the topic."""
    max_request_size: int = 1024 * 1024
    """Bytes of the largest request, and so of the largest message."""
    max_in_flight_requests_per_connection: int = 5
    """Requests to one broker that are not answered yet; an idempotent producer has at most 5."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """How batches are compressed."""
    compression_level: int | None = None
    """How hard the codec tries; None leaves it to the codec."""
    partitioner: str = "murmur2"
    """How a message without a partition finds one, by name: `murmur2` (by key as Java's client does, without a key
    sticky), `jump` (by key, consistent hashing), `sticky`, `random`, `round_robin`. A function of yours is given to
    the producer itself."""

    def __post_init__(self) -> None:
        _check(self.linger_ms >= 0, "linger.ms", self.linger_ms, "0 or more")
        _check(0 < self.batch_size <= 2**31 - 1, "batch.size", self.batch_size, "1 or more")
        _check(self.buffer_memory > 0, "buffer.memory", self.buffer_memory, "1 or more")
        _check(self.max_request_size > 0, "max.request.size", self.max_request_size, "1 or more")
        _check(self.retries >= 0, "retries", self.retries, "0 or more")
        most = self.max_in_flight_requests_per_connection
        _check(most > 0, "max.in.flight.requests.per.connection", most, "1 or more")
        if self.enable_idempotence:
            _check(self.acks in ("all", "-1"), "acks", self.acks, "all, or enable.idempotence=false")
            name = "max.in.flight.requests.per.connection"
            _check(most <= 5, name, most, "at most 5, or enable.idempotence=false")
            _check(self.retries > 0, "retries", self.retries, "1 or more, or enable.idempotence=false")

    @property
    def acks_on_wire(self) -> int:
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def codec(self) -> Codec:
        return Codec[self.compression_type.upper()]


@dataclass(slots=True, frozen=True, kw_only=True)
class ConsumerSettings(ClientSettings):
    group_id: str | None = None
    """The group that partitions are shared with, and that offsets are committed for."""
    group_instance_id: str | None = None
    """A name of this member that lasts: when it is back within the session, nothing is reassigned (KIP-345)."""
    partition_assignment_strategy: list[str] = field(default_factory=lambda: ["range", "cooperative-sticky"])
    """How the group's leader shares partitions out, by name, the preferred first; assignors of yours are given to the
    consumer itself."""
    session_timeout_ms: int = 45_000
    """How long the group waits for a sign of life."""
    heartbeat_interval_ms: int = 3_000
    """How often the consumer sends a heartbeat, the sign of life."""
    max_poll_interval_ms: int = 300_000
    """How long the application may take between two polls before its partitions go to other members."""
    auto_offset_reset: Literal["latest", "earliest", "none"] = "latest"
    """Where to begin if the group has committed nothing, or if its offset is gone."""
    enable_auto_commit: bool = True
    """Whether offsets of what polls have returned are committed in the background."""
    auto_commit_interval_ms: int = 5_000
    """How often they are committed."""
    max_poll_records: int = 500
    """Messages that one poll returns at most."""
    fetch_min_bytes: int = 1
    """Bytes that a broker gathers before it answers, unless `fetch_max_wait_ms` have passed."""
    fetch_max_wait_ms: int = 500
    """How long a broker waits for `fetch_min_bytes`."""
    fetch_max_bytes: int = 50 * 1024 * 1024
    """Bytes of one answer; a larger batch still comes, alone."""
    max_partition_fetch_bytes: int = 1024 * 1024
    """Bytes of each partition in one answer; a larger batch still comes, alone."""
    queued_max_bytes: int = 64 * 1024 * 1024
    """Bytes that are fetched ahead of polls, of all partitions together."""
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    """Whether records of transactions that are open or were aborted are seen."""
    check_crcs: bool = True
    """Whether checksums of what was fetched are checked."""
    on_corrupt: Literal["raise", "skip"] = "raise"
    """What to do at a batch that cannot be read: raise CorruptBatchError with every poll until the application seeks,
    or pass over it, count it (`Consumer.skipped_batches`) and log its offset."""
    on_missing_topic: Literal["warn", "raise"] | None = None
    """What to do about a topic that does not exist: wait for it and log a warning (`warn`, the default in a group), or
    have polls raise UnknownTopicError (`raise`, the default without a group)."""
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    """Bytes that one batch may have when it is decompressed; a batch of more counts as one that cannot be read."""
    client_rack: str = ""
    """The rack of this consumer, for brokers that have replicas nearby."""
    allow_auto_create_topics: bool = False
    """Whether asking for a topic may create it, if the brokers do that."""

    def __post_init__(self) -> None:
        _check(self.max_poll_records > 0, "max.poll.records", self.max_poll_records, "1 or more")
        _check(self.fetch_min_bytes >= 0, "fetch.min.bytes", self.fetch_min_bytes, "0 or more")
        _check(self.fetch_max_wait_ms >= 0, "fetch.max.wait.ms", self.fetch_max_wait_ms, "0 or more")
        _check(self.fetch_max_bytes > 0, "fetch.max.bytes", self.fetch_max_bytes, "1 or more")
        most = self.max_partition_fetch_bytes
        _check(most > 0, "max.partition.fetch.bytes", most, "1 or more")
        most = self.max_decompressed_bytes
        _check(0 < most <= 2**31 - 1, "max.decompressed.bytes", most, "from 1 to 2147483647")
        _check(self.queued_max_bytes > 0, "queued.max.bytes", self.queued_max_bytes, "1 or more")
        _check(self.group_id is None or self.group_id != "", "group.id", self.group_id, "a name that is not empty")
        _check(
            self.heartbeat_interval_ms < self.session_timeout_ms,
            "heartbeat.interval.ms",
            self.heartbeat_interval_ms,
            f"less than session.timeout.ms, which is {self.session_timeout_ms}",
        )
        _check(
            self.group_instance_id is None or self.group_id is not None,
            "group.instance.id",
            self.group_instance_id,
            "left out where there is no group.id",
        )


def read_settings(
    kind: type[S],
    properties: Mapping[str, Any] | None = None,
    keywords: Mapping[str, Any] | None = None,
    *,
    profile: Profile | None = None,
    delivery: Delivery | None = None,
) -> S:
    """Settings of a kind from dotted names and keywords, each in the form of the other if the user likes; what is not
    set follows `profile` and `delivery`, then the defaults. SettingsError says what is wrong and what to do."""
    given: dict[str, Any] = {}
    for name, value in [*(properties or {}).items(), *(keywords or {}).items()]:
        dotted = name.replace("_", ".")
        if dotted in given and given[dotted] != value:
            # Passwords are not for error messages.
            told = "" if dotted.startswith(SECURITY_PREFIXES) else f", to {given[dotted]!r} and to {value!r}"
            raise SettingsError(f"{dotted} is set twice{told}: leave one out")
        given[dotted] = value
    secured = {name: given.pop(name) for name in list(given) if name.startswith(SECURITY_PREFIXES)}
    known = {each.name.replace("_", "."): each for each in fields(kind) if each.name != "security"}
    for name in [name for name in given if name not in known]:
        _refuse_unknown(kind, name, known)
        del given[name]
    implied = _implied(profile, delivery)
    _refuse_contradictions(given, delivery)
    values = {name: value for name, value in implied.items() if name in known} | given
    try:
        arguments = {known[name].name: _convert(known[name].type, name, value) for name, value in values.items()}
        return kind(security=Security.from_properties(secured), **arguments)
    except SettingsError:
        raise
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _implied(profile: str | None, delivery: str | None) -> dict[str, Any]:
    implied: dict[str, Any] = {}
    if profile is not None:
        if profile not in _PROFILES:
            raise SettingsError(f"profile is {profile!r}, but must be one of {', '.join(map(repr, _PROFILES))}")
        implied |= _PROFILES[profile]
    if delivery == "exactly_once":
        raise SettingsError(
            "delivery='exactly_once' needs transactions, which are not there yet: use 'at_least_once' (the producer is "
            "idempotent, and a consumer can drop duplicates: Deduplicator)"
        )
    if delivery is not None:
        if delivery not in _DELIVERIES:
            names = ", ".join(map(repr, _DELIVERIES))
            raise SettingsError(f"delivery is {delivery!r}, but must be one of {names}")
        implied |= _DELIVERIES[delivery]
    return implied


def _refuse_contradictions(given: Mapping[str, Any], delivery: str | None) -> None:
    """The name of a delivery is a promise: a setting that would break it is refused."""
    if delivery is not None:
        for name, promised in _DELIVERIES[delivery].items():
            if name in given and str(given[name]).lower().replace("-1", "all") != str(promised).lower():
                raise SettingsError(
                    f"delivery={delivery!r} means {name}={promised}, not {given[name]}: leave one of the two out"
                )


def _refuse_unknown(kind: type[ClientSettings], name: str, known: Mapping[str, Any]) -> None:
    if name in _WITHOUT_EFFECT:
        return
    if name == "transactional.id":
        raise SettingsError("transactional.id needs transactions, which are not there yet: leave it out")
    other = ConsumerSettings if kind is ProducerSettings else ProducerSettings
    if any(name == each.name.replace("_", ".") for each in fields(other)):
        # People have one dict for both.
        return
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.6)
    meant = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(sorted(known))}"
    raise SettingsError(f"{name} is no setting of a {kind.__name__.removesuffix('Settings').lower()}: {meant}")


def _convert(kind: Any, name: str, value: Any) -> Any:
    if name == "bootstrap.servers" and isinstance(value, list | tuple):
        return ",".join(value)
    if name == "partition.assignment.strategy" and isinstance(value, str):
        return [each.strip() for each in value.split(",")]
    if name == "acks":
        value = str(value)
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        raise SettingsError(f"{name} is {value!r}, but must be {_right_value(kind)}") from None


def _right_value(kind: Any) -> str:
    """What a value of a type is, in words."""
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    [only] = [each for each in parts if each is not type(None)]
    if get_origin(only) is Literal:
        return f"one of {', '.join(map(repr, get_args(only)))}"
    return _WORDS.get(only, "a list of names")


def _check(is_right: bool, name: str, value: object, right: str) -> None:
    if not is_right:
        raise SettingsError(f"{name} is {value!r}, but must be {right}")


_WORDS: Final[dict[Any, str]] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}

# Settings of other Kafka clients that have nothing to set here, accepted so that a dict of theirs can be used.
_WITHOUT_EFFECT: Final = frozenset(
    {
        "api.version.request",
        "broker.address.family",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "enable.auto.offset.store",
        "enable.metrics.push",
        "enable.partition.eof",
        "group.protocol",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "log.connection.close",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
        "socket.keepalive.enable",
        "socket.nagle.disable",
        "statistics.interval.ms",
        "value.deserializer",
        "value.serializer",
    }
)
