"""`publish_progress` commits the progress of running queries to a consumer group as soon as a batch is done."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import UnknownTopicError
from penstock.client.metadata import Topic
from penstock.client.opening import given_settings
from penstock.client.settings import ConsumerSettings, read_settings
from penstock.spark.link import SparkLink, connect
from penstock.spark.offsets import Offsets, id_text, is_remade
from penstock.spark.source.progress import publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener


def publish_progress(
    spark: "SparkSession", bootstrap: str | Mapping[str, Any], *, group: str, query: str | None = None
) -> "StreamingQueryListener":
    """Commit to `group` how far a query is, whenever a batch of it is done: the query of that name, or every query that
    reads topics of this cluster. Give the listener that this returns to `spark.streams.removeListener` to end it.

    A query with `kafka.group.id` commits by itself when it looks for more. This function is for queries without a
    group, for long intervals between batches, and for the last batch of a query that is stopped.
    """
    settings = {name: str(value) for name, value in given_settings(bootstrap).items()}
    read_settings(ConsumerSettings, settings)
    listener = _make_listener(connect(settings), group, query)
    spark.streams.addListener(listener)
    return listener


async def publish_finished(cluster: Cluster, group: str, sources: Iterable[str | None]) -> None:
    """Commit the end offsets of those of a query's sources that are ours and read this cluster's topics."""
    for each in finished_offsets(sources):
        await publish(cluster, group, await of_this_cluster(cluster, each))


def finished_offsets(sources: Iterable[str | None]) -> list[Offsets]:
    """The end offsets of those of a query's sources that are ours."""
    found = []
    for text in sources:
        try:
            found.append(Offsets.from_json(json.loads(text or "")))
        except ValueError:
            continue
    return found


async def of_this_cluster(cluster: Cluster, done: Offsets) -> Offsets:
    """The offsets without those of topics that this cluster does not have, or has under another id."""
    told = await cluster.topics({key.topic for key in done.positions}, fresh=True)

    def is_elsewhere(name: str) -> bool:
        topic = told[name]
        if isinstance(topic, Topic):
            return is_remade(done.topic_ids.get(name, ""), id_text(topic.topic_id))
        # The commit reports any other error.
        return isinstance(topic, UnknownTopicError)

    return done.without(name for name in told if is_elsewhere(name))


def _make_listener(link: SparkLink, group: str, query: str | None) -> "StreamingQueryListener":
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
            sources = [source.endOffset for source in progress.sources]
            link.run(publish_finished(link.cluster, group, sources))

        def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
            pass

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
            pass

    return Listener()
