"""`progress` says how far a running query is behind its topics, out of the progress that Spark reports of the query.

Spark has custom metrics of sources that are written in Java alone. It reports two offsets of every source, though, the
end of the batch and the latest that there is, and the difference is what waits.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.client.metadata import TopicPartition
from penstock.spark.offsets import Offsets, is_remade

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

BEHIND: Final = "offsetsBehindLatest"
"""The field of the latest offset, in the progress of a query, that has the offsets behind it by topic."""


@dataclass(slots=True, frozen=True)
class TopicProgress:
    """How far one source of a query is in one topic, when its last batch was planned."""

    source: int
    """The number of the source in the query, from 0 on."""
    topic: str
    partitions: int
    behind: int
    """The offsets that come after the batch, of all partitions; of records there may be fewer."""
    most_behind: int
    """The offsets of the partition that has most of them."""


def progress(query: "StreamingQuery | StreamingQueryProgress") -> list[TopicProgress]:
    """How far a query is behind, for each topic that it reads from this source: of the query's last progress, or of the
    progress that a listener was given. Empty before the first batch.

    Example:
        for each in progress(query):
            print(each.topic, each.behind)
    """
    told: Any = getattr(query, "lastProgress", query)
    found = []
    for number, source in enumerate(() if told is None else told["sources"]):
        end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        if end is None or latest is None:
            continue
        behind = offsets_behind(end, latest)
        for topic in sorted({key.topic for key in behind}):
            mine = [count for key, count in behind.items() if key.topic == topic]
            found.append(TopicProgress(number, topic, len(mine), sum(mine), max(mine)))
    return found


def offsets_behind(end: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """How many offsets of each partition come after the end of a batch."""
    known = end.remembered
    return {
        key: max(0, last - (0 if _is_other(known, latest, key.topic) else known.positions.get(key, 0)))
        for key, last in latest.positions.items()
    }


def behind_by_topic(end: Offsets, latest: Offsets) -> Mapping[str, int]:
    """The sum of each topic."""
    sums: dict[str, int] = {}
    for key, count in sorted(offsets_behind(end, latest).items()):
        sums[key.topic] = sums.get(key.topic, 0) + count
    return sums


def _is_other(known: Offsets, latest: Offsets, topic: str) -> bool:
    return is_remade(known.topic_ids.get(topic, ""), latest.topic_ids.get(topic, ""))


def _offsets(text: str | None) -> Offsets | None:
    """None for the offsets of another source, and for none."""
    try:
        return Offsets.from_json(json.loads(text or ""))
    except ValueError:
        return None
