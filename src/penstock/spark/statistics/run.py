"""`stats` counts what topics carry, how it is spread, how long it took, and whether anything came twice or not at
all."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from penstock.client.opening import given_settings, to_milliseconds
from penstock.spark.lake.archiving import find_source, source_options
from penstock.spark.link import connect
from penstock.spark.statistics.audit import Finding, Part, merge
from penstock.spark.statistics.buckets import Distribution, distribution, first_of
from penstock.spark.statistics.job import run_job
from penstock.spark.statistics.plan import Piece, Scope, plan
from penstock.spark.statistics.scan import Job, read_part
from penstock.spark.statistics.tally import HOUR_MS
from penstock.spark.statistics.times import WIDTHS_MS, TimeStats

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOP: Final = 20
"""The default number of keys that are listed of each topic."""


@dataclass(slots=True, frozen=True)
class StatsProgress:
    """How many offsets are done, of those that were there when the run began."""

    done: int
    total: int


@dataclass(slots=True, frozen=True)
class HourStats:
    """What one partition received in one hour. Bytes are those of keys, values and headers, before compression."""

    topic: str
    partition: int
    hour_ms: int | None
    """When the hour began, in UTC; None for messages without a time."""
    messages: int
    bytes: int
    smallest: int
    largest: int


@dataclass(slots=True, frozen=True)
class PartitionStats:
    topic: str
    partition: int
    messages: int
    bytes: int
    heat: float
    """Its messages divided by those of the topic's mean partition: 2 means twice as many as the mean."""


@dataclass(slots=True, frozen=True)
class KeyStats:
    topic: str
    key: bytes
    messages: int
    bytes: int
    share: float
    """The share of the topic's messages."""


@dataclass(slots=True, frozen=True)
class Bar:
    """Counts the numbers from `first` on, below `end`."""

    first: float
    end: float
    messages: int


@dataclass(slots=True, frozen=True)
class AuditStats:
    """What the producers' sequence numbers say about one partition's log."""

    topic: str
    partition: int
    numbered: int
    """Records that carry a number: those of idempotent producers. The audit says nothing about the others."""
    unnumbered: int
    producers: int
    duplicates: int
    gaps: int
    """Records that were numbered and never written."""
    removed: int
    """Records that were numbered, and taken by compaction: the offsets are missing too."""
    missing_offsets: int
    """Offsets without a record, for whatever reason."""
    findings: tuple[Finding, ...]
    """The first duplicates and gaps, with their places."""


@dataclass(slots=True, frozen=True)
class TopicStats:
    topic: str
    messages: int
    bytes: int
    keys: int
    """How many different keys there are."""
    without_key: int
    sizes: Distribution | None
    """None without messages."""
    latency_ms: Distribution | None
    """From the producer's timestamp to the broker's; None unless the log has both."""
    ahead: int
    """Messages that, by the two clocks, came before they were sent; they are not part of the latency."""
    size_bars: tuple[Bar, ...]
    latency_bars: tuple[Bar, ...]


@dataclass(slots=True, frozen=True)
class Stats:
    """The statistics of some topics; each tuple has the topics in the order of their names."""

    at_ms: int
    since_ms: int | None
    until_ms: int | None
    topics: tuple[TopicStats, ...]
    partitions: tuple[PartitionStats, ...]
    hours: tuple[HourStats, ...]
    keys: tuple[KeyStats, ...]
    """The most frequent ones of each topic."""
    audits: tuple[AuditStats, ...]
    times: tuple[TimeStats, ...] = ()
    """Messages by time, in buckets of a second or wider ones, as the data needs them."""
    cluster: str = ""
    """The address under which the cluster was reached."""


Watch = Callable[[StatsProgress], None]


def stats(
    spark: "SparkSession",
    topics: str | Sequence[str],
    *,
    bootstrap: str | Mapping[str, Any],
    since: int | datetime | None = None,
    until: int | datetime | None = None,
    lake: str | Mapping[str, str] | None = None,
    top: int = TOP,
    watch: Watch = lambda _: None,
) -> Stats:
    """Count what topics have now, in one pass: all of it, or the messages from `since` on and before `until`
    (milliseconds, or datetimes). With a lake, a folder that `archive` has filled or one for each topic, what the log no
    longer has counts as well.

    Example:
        result = stats(session(), "orders", bootstrap="localhost:9092", lake="/lake/orders")
        print(result.topics[0].messages, result.topics[0].sizes)
    """
    names = sorted({topics} if isinstance(topics, str) else set(topics))
    scope = Scope(None if since is None else to_milliseconds(since), None if until is None else to_milliseconds(until))
    items: list[tuple[Job, Piece]] = []
    partitions: dict[str, int] = {}
    for name in names:
        options = source_options(name, bootstrap)
        link = connect(options.settings)
        source = find_source(link, name)
        folder = lake.get(name) if isinstance(lake, Mapping) else lake
        parallel = spark.sparkContext.defaultParallelism
        pieces = link.run(plan(link.cluster, options, source, folder, scope, min_parts=parallel))
        items += [(Job(options, source, scope), each) for each in pieces]
        partitions[name] = source.partitions
    total = sum(piece.range.size for _, piece in items)
    rows = _Rows(run_job(spark, items, top=top, watch=lambda done: watch(StatsProgress(done, total))).to_pylist())
    hours = rows.hours()
    shares = _share_out(hours, partitions)
    told = [rows.topic(name, [each for each in hours if each.topic == name]) for name in names]
    return Stats(
        at_ms=time.time_ns() // 1_000_000,
        since_ms=scope.since_ms,
        until_ms=scope.until_ms,
        topics=tuple(told),
        partitions=tuple(shares),
        hours=tuple(hours),
        keys=tuple(key for each in told for key in rows.keys(each, top)),
        audits=tuple(rows.audits(items)),
        times=tuple(rows.times()),
        cluster=str(given_settings(bootstrap).get("bootstrap.servers", "")),
    )


class _Rows:
    """The rows that Spark has added up, by kind."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self._by_kind: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            self._by_kind.setdefault(row["kind"], []).append(row)

    def of(self, kind: str, topic: str) -> list[dict[str, Any]]:
        return [row for row in self._by_kind.get(kind, []) if row["topic"] == topic]

    def hours(self) -> list[HourStats]:
        found = [
            HourStats(
                row["topic"],
                row["partition"],
                None if row["hour"] is None else row["hour"] * HOUR_MS,
                row["messages"],
                row["bytes"],
                row["smallest"],
                row["largest"],
            )
            for row in self._by_kind.get("traffic", [])
        ]
        return sorted(found, key=lambda each: (each.topic, each.partition, each.hour_ms or 0))

    def times(self) -> list[TimeStats]:
        found = [
            TimeStats(row["topic"], row["hour"] * (width_ms := WIDTHS_MS[row["bucket"]]), width_ms, row["messages"])
            for row in self._by_kind.get("time", [])
        ]
        return sorted(found, key=lambda each: (each.topic, each.start_ms, each.width_ms))

    def topic(self, name: str, hours: Sequence[HourStats]) -> TopicStats:
        messages, size = sum(each.messages for each in hours), sum(each.bytes for each in hours)
        sizes = {row["bucket"]: row["messages"] for row in self.of("size", name)}
        waits = self.of("latency", name)
        latencies = {row["bucket"]: row["messages"] for row in waits}
        return TopicStats(
            topic=name,
            messages=messages,
            bytes=size,
            keys=sum(row["messages"] for row in self.of("keys", name)),
            without_key=sum(row["messages"] for row in self.of("key", name) if row["key"] is None),
            sizes=distribution(
                sizes,
                smallest=min((each.smallest for each in hours), default=0),
                largest=max((each.largest for each in hours), default=0),
                mean=size / max(1, messages),
            ),
            latency_ms=distribution(
                latencies,
                smallest=min((row["smallest"] for row in waits), default=0),
                largest=max((row["largest"] for row in waits), default=0),
            ),
            ahead=sum(row["messages"] for row in self.of("early", name)),
            size_bars=_bars(sizes),
            latency_bars=_bars(latencies),
        )

    def keys(self, topic: TopicStats, top: int) -> list[KeyStats]:
        rows = [row for row in self.of("key", topic.topic) if row["key"] is not None]
        rows.sort(key=lambda row: (-row["messages"], row["key"]))
        return [
            KeyStats(topic.topic, row["key"], row["messages"], row["bytes"], row["messages"] / topic.messages)
            for row in rows[:top]
        ]

    def audits(self, items: Sequence[tuple[Job, Piece]]) -> list[AuditStats]:
        parts: dict[tuple[str, int], list[Part]] = {}
        for row in sorted(self._by_kind.get("audit", []), key=lambda row: items[row["bucket"]][1].range.start):
            parts.setdefault((row["topic"], row["partition"]), []).append(read_part(row["part"]))
        return [_audit(topic, partition, merge(found)) for (topic, partition), found in sorted(parts.items())]


def _audit(topic: str, partition: int, part: Part) -> AuditStats:
    return AuditStats(
        topic=topic,
        partition=partition,
        numbered=part.records,
        unnumbered=part.plain_records,
        producers=len({each.producer_id for each in part.spans}),
        duplicates=part.duplicates,
        gaps=part.gaps,
        removed=part.removed,
        missing_offsets=part.holes + part.thinned,
        findings=tuple(part.findings),
    )


def _bars(counts: Mapping[int, int]) -> tuple[Bar, ...]:
    return tuple(Bar(first_of(bucket), first_of(bucket + 1), counts[bucket]) for bucket in sorted(counts))


def _share_out(hours: Sequence[HourStats], partitions: Mapping[str, int]) -> list[PartitionStats]:
    """A row for every partition, including those without messages, which lower the mean."""
    messages: dict[tuple[str, int], int] = {}
    sizes: dict[tuple[str, int], int] = {}
    for each in hours:
        key = each.topic, each.partition
        messages[key] = messages.get(key, 0) + each.messages
        sizes[key] = sizes.get(key, 0) + each.bytes
    found = []
    for topic, count in partitions.items():
        mean = sum(messages.get((topic, number), 0) for number in range(count)) / count
        for number in range(count):
            mine = messages.get((topic, number), 0)
            found.append(
                PartitionStats(topic, number, mine, sizes.get((topic, number), 0), mine / mean if mean else 0.0)
            )
    return found
