"""`publish_stats` sends statistics to the topic `penstock.stats`: one JSON object for each topic, with its name as key.
The topic is compacted, so that a dashboard finds the latest of each, however old."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from penstock.client.opening import given_settings
from penstock.client.sync import Producer
from penstock.spark.statistics.run import Bar, HourStats, Stats, TopicStats

STATS_TOPIC: Final = "penstock.stats"
CONFIGS: Final = {"cleanup.policy": "compact"}
VERSION: Final = 1
MAX_HOURS: Final = 1_000
"""Limits the hours to the latest ones: a message has to fit the broker's limit."""
MAX_BARS: Final = 60
MAX_KEYS: Final = 100


def publish_stats(stats: Stats, bootstrap: str | Mapping[str, Any], *, topic: str = STATS_TOPIC) -> None:
    """Send a message for each topic, and create the topic of the statistics if it is not there."""
    with Producer(given_settings(bootstrap)) as producer:
        producer.create_topic(topic, 1, configs=CONFIGS, exist_ok=True)
        messages = [
            (each.topic.encode(), json.dumps(describe(stats, each), ensure_ascii=False).encode())
            for each in stats.topics
        ]
        producer.send_batch(topic, messages).raise_for_errors()


def describe(stats: Stats, topic: TopicStats) -> dict[str, Any]:
    """The statistics of one topic as a JSON object. Fields may be added; if one changes its meaning, the version
    does."""
    name = topic.topic
    audits = [each for each in stats.audits if each.topic == name]
    return {
        "version": VERSION,
        "topic": name,
        "at_ms": stats.at_ms,
        "since_ms": stats.since_ms,
        "until_ms": stats.until_ms,
        "messages": topic.messages,
        "bytes": topic.bytes,
        "keys": topic.keys,
        "without_key": topic.without_key,
        "sizes": None if topic.sizes is None else asdict(topic.sizes),
        "latency_ms": None if topic.latency_ms is None else asdict(topic.latency_ms),
        "ahead": topic.ahead,
        "size_bars": [asdict(each) for each in coarsen(topic.size_bars, MAX_BARS)],
        "latency_bars": [asdict(each) for each in coarsen(topic.latency_bars, MAX_BARS)],
        "partitions": [
            {"partition": each.partition, "messages": each.messages, "bytes": each.bytes, "heat": each.heat}
            for each in stats.partitions
            if each.topic == name
        ],
        "hours": [
            {"hour_ms": hour_ms, "messages": messages, "bytes": size}
            for hour_ms, messages, size in by_hour([each for each in stats.hours if each.topic == name])[-MAX_HOURS:]
        ],
        "top_keys": [
            _key(each.key) | {"messages": each.messages, "bytes": each.bytes, "share": each.share}
            for each in [each for each in stats.keys if each.topic == name][:MAX_KEYS]
        ],
        "audits": [
            {field: value for field, value in asdict(each).items() if field not in ("topic", "findings")}
            for each in audits
        ],
        "findings": [asdict(found) | {"partition": each.partition} for each in audits for found in each.findings][:100],
    }


def by_hour(hours: Sequence[HourStats]) -> list[tuple[int, int, int]]:
    """Messages and bytes of each hour, over all partitions; messages without a time are left out."""
    found: dict[int, tuple[int, int]] = {}
    for each in hours:
        if each.hour_ms is not None:
            messages, size = found.get(each.hour_ms, (0, 0))
            found[each.hour_ms] = messages + each.messages, size + each.bytes
    return [(hour_ms, *found[hour_ms]) for hour_ms in sorted(found)]


def coarsen(bars: Sequence[Bar], most: int) -> list[Bar]:
    """Join neighbouring bars until there are at most `most`."""
    together = -(-len(bars) // most) if bars else 1
    groups = [bars[first : first + together] for first in range(0, len(bars), together)]
    return [Bar(each[0].first, each[-1].end, sum(bar.messages for bar in each)) for each in groups]


def _key(key: bytes) -> dict[str, str]:
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        return {"key_base64": b64encode(key).decode()}
