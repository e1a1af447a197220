"""Progress of running queries, committed to a consumer group as soon as a batch is done."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.client.opening import given_settings
from penstock.client.settings import ConsumerSettings, read_settings
from penstock.spark.connecting import Link, connect
from penstock.spark.offsets import Offsets
from penstock.spark.progress import publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener


def publish_progress(
    spark: "SparkSession", bootstrap: str | Mapping[str, Any], *, group: str, query: str | None = None
) -> "StreamingQueryListener":
    """Commit to `group` how far a query is, whenever a batch of it is done: of the one with that name, or of whichever
    reads from here. `spark.streams.removeListener` with what this returns ends it.

    A query with `kafka.group.id` commits by itself, when it looks for more; this is for those without, for long
    intervals between batches, and for the last batch of a query that is stopped.
    """
    settings = {name: str(value) for name, value in given_settings(bootstrap).items()}
    read_settings(ConsumerSettings, settings)
    listener = _make_listener(connect(settings), group, query)
    spark.streams.addListener(listener)
    return listener


def finished_offsets(sources: list[str | None]) -> Offsets | None:
    """What the end offsets of a query's sources come to, of those that are ours."""
    found = []
    for text in sources:
        try:
            found.append(Offsets.from_json(json.loads(text or "")))
        except ValueError:
            continue
    if not found:
        return None
    positions = {key: offset for each in found for key, offset in each.positions.items()}
    return Offsets(positions, {topic: told for each in found for topic, told in each.topic_ids.items()})


def _make_listener(link: Link, group: str, query: str | None) -> "StreamingQueryListener":
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
            progress = event.progress
            if query is not None and progress.name != query:
                return
            done = finished_offsets([source.endOffset for source in progress.sources])
            if done is not None:
                link.run(publish(link.cluster, group, done))

        def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
            pass

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
            pass

    return Listener()
