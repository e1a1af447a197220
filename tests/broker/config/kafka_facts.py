"""What Apache Kafka 4.2 says about its configs, and where our tables say something else on purpose."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from penstock.broker.config.values import Allowed, Anything, ConfigKey, ListOf, OneOf, Pattern, Range

FILE = Path(__file__).parent.parent.parent / "fixtures" / "configs" / "kafka-4.2.0.tsv"

ON_PURPOSE = {
    # Penstock starts without being told anything.
    "controller.listener.names": {"default"},
    "listeners": {"default", "more"},
    "log.dir": {"default"},
    "node.id": {"default"},
    "process.roles": {"default"},
    # Listeners cannot change while a broker of ours runs.
    "listener.security.protocol.map": {"more"},
    # Unset, it is as many as the cluster has brokers, up to three.
    "default.replication.factor": {"allowed", "default"},
    # Kafka finds out about these later, or never.
    "max.connections.per.ip.overrides": {"allowed"},
    "offsets.topic.compression.codec": {"allowed"},
    "share.coordinator.snapshot.update.records.per.snapshot": {"allowed"},
    "share.coordinator.state.topic.compression.codec": {"allowed"},
    # Its text for these does not say what it checks.
    "authorizer.class.name": {"allowed"},
    "controller.quorum.bootstrap.servers": {"allowed"},
    "controller.quorum.voters": {"allowed"},
}

NOT_IN_KAFKAS_TABLE = {
    # Ours.
    "penstock.disk.reserve.bytes",
    "penstock.flush",
    "penstock.max.partitions",
    "penstock.metadata.socket",
    "penstock.metrics.listen",
    "penstock.reply.max.bytes",
    "penstock.scrub.bytes.per.second",
    "penstock.slow.request.ms",
    "penstock.validate",
    # Kafka had these until 3.9.
    "zookeeper.connect",
    "zookeeper.session.timeout.ms",
    # Kafka leaves these to its authorizer, a plug-in.
    "allow.everyone.if.no.acl.found",
    "super.users",
}

OURS_OF_TOPICS = {"penstock.flush", "penstock.retention.hold.group", "penstock.validate"}


class Fact(NamedTuple):
    """`more` is how a broker's config may change, or a topic's synonyms."""

    table: str
    name: str
    type: str
    default: str
    allowed: str
    more: str


def facts(table: str) -> dict[str, Fact]:
    rows = (Fact(*line.split("\t")) for line in FILE.read_text().splitlines())
    return {fact.name: fact for fact in rows if fact.table == table}


def differences(table: str, keys: Iterable[ConfigKey]) -> list[str]:
    """What our rows say otherwise than Kafka, and not on purpose."""
    kafka = facts(table)
    found = []
    for key in keys:
        if key.internal or key.name in NOT_IN_KAFKAS_TABLE | OURS_OF_TOPICS:
            continue
        ours, theirs = _fact(table, key), kafka.get(key.name)
        if theirs is None:
            found.append(f"{key.name} is not Kafka's")
            continue
        for column in ("type", "default", "allowed", "more"):
            equal = getattr(ours, column) == getattr(theirs, column)
            if equal == (column in ON_PURPOSE.get(key.name, ())):
                found.append(f"{key.name}: {column} {getattr(ours, column)!r}, Kafka's {getattr(theirs, column)!r}")
    return found


def _fact(table: str, key: ConfigKey) -> Fact:
    default = key.format(key.default)
    more = key.update.value if table == "broker" else ",".join(synonym.name for synonym in key.synonyms)
    return Fact(table, key.name, key.type.name, "NULL" if default is None else default, _allowed(key.allowed), more)


def _allowed(allowed: Allowed) -> str:
    match allowed:
        case Range(low, high, also):
            text = f"[{low},...]" if high is None else f"[{low},...,{high}]"
            return text if also is None else f"{text} or {also}"
        case OneOf(choices, ignore_case):
            if ignore_case:
                return f"(case insensitive) [{', '.join(choices).upper()}]"
            return f"[{', '.join(choices)}]"
        case ListOf(choices):
            return f"[{', '.join(choices)}]" if choices else ""
        case Pattern(_, example):
            return {
                "any text but none": "non-empty string",
                "partition:broker,partition:broker, or *": "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
            }.get(example, example)
        case Anything():
            return ""
    raise AssertionError(f"no words for {allowed}")
