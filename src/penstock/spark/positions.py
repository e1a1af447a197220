"""The driver asks the brokers here where the logs of the subscribed partitions begin and end."""

import asyncio
import logging
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.client.admin.offsets import EARLIEST, LATEST, list_offsets
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import BrokerError, ClientError, UnknownPartitionError, UnknownTopicError, unwrap
from penstock.client.metadata import Topic, TopicPartition
from penstock.client.plain.fetch import Fetched, fetch_many
from penstock.protocol.error_codes import ErrorCode
from penstock.spark.offsets import Offsets, id_text, is_remade
from penstock.spark.options import Assigned, Bound, Matching, Named, OptionsError, SourceOptions, Subscription

log: Final = logging.getLogger(__name__)

PROBE_BYTES: Final = 64 * 1024
"""How many bytes of a partition are fetched to estimate the size of its records."""


_told: Final[set[str]] = set()


class DataLossError(Exception):
    """Records that a query has not read are gone."""


@dataclass(slots=True, frozen=True)
class Subscribed:
    """The partitions that a subscription stands for now."""

    partitions: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, str]
    leaders: Mapping[TopicPartition, int]
    missing: Mapping[str, ClientError]
    """The error of each topic that was named and is not there."""


async def find_partitions(cluster: Cluster, subscription: Subscription) -> Subscribed:
    topics: list[Topic] = []
    missing: dict[str, ClientError] = {}
    match subscription:
        case Matching(pattern):
            everything = await cluster.all_topics()
            topics = [each for each in everything if not each.is_internal and re.fullmatch(pattern, each.name)]
        case Named(names):
            topics, missing = await _look_up(cluster, names)
        case Assigned(partitions):
            topics, missing = await _look_up(cluster, dict.fromkeys(key.topic for key in partitions))
            counts = {topic.name: len(topic.partitions) for topic in topics}
            for name, number in partitions:
                if name in counts and number >= counts[name]:
                    missing[name] = UnknownPartitionError(name, number, counts[name])
    leaders = {TopicPartition(topic.name, each.index): each.leader for topic in topics for each in topic.partitions}
    if isinstance(subscription, Assigned):
        leaders = {key: leaders[key] for key in subscription.partitions if key in leaders}
    ids = {each.name: id_text(each.topic_id) for each in topics}
    return Subscribed(tuple(sorted(leaders)), ids, leaders, missing)


async def resolve(
    cluster: Cluster, partitions: Collection[TopicPartition], bound: Bound, options: SourceOptions, *, is_start: bool
) -> dict[TopicPartition, int]:
    """The offsets that a bound stands for now."""
    side = "starting" if is_start else "ending"
    if bound.everywhere is None and (wrong := bound.each.keys() ^ set(partitions)):
        key = min(wrong)
        if key in bound.each:
            raise OptionsError(f"the {side} offsets name {key}, which is not subscribed: leave it out")
        raise OptionsError(
            f"the {side} offsets leave out {key}: give one for every partition (-2 is earliest, -1 latest)"
        )
    asked = {key: value for key in partitions if (value := bound.of(key)) is not None}
    if bound.is_time:
        return await _resolve_times(cluster, asked, options, is_start=is_start)
    fixed = {key: value for key, value in asked.items() if value >= 0}
    edges = await list_ends(cluster, {key: value for key, value in asked.items() if value < 0}, options)
    if fixed:
        first = await list_ends(cluster, dict.fromkeys(fixed, EARLIEST), options)
        last = await list_ends(cluster, dict.fromkeys(fixed, LATEST), options)
        for key, value in fixed.items():
            edges[key] = min(max(value, first[key]), last[key])
            if edges[key] != value:
                report_loss(
                    f"{key} was asked for from offset {value} on, but its log has {first[key]} to {last[key]}"
                    if is_start
                    else f"{key} was asked for up to offset {value}, but its log has {first[key]} to {last[key]}",
                    options,
                )
    return {key: edges[key] for key in asked}


async def list_ends(
    cluster: Cluster, asked: Mapping[TopicPartition, int], options: SourceOptions
) -> dict[TopicPartition, int]:
    """The offsets of `EARLIEST` and `LATEST`. With `read_committed` the latest is where the first open transaction
    begins."""
    if not asked:
        return {}
    listed = await list_offsets(cluster, asked, read_committed=options.reads_committed)
    return {key: each.offset for key, each in unwrap(listed).items()}


async def latest(
    cluster: Cluster, options: SourceOptions, start: Offsets, *, only: Collection[TopicPartition] | None = None
) -> tuple[Offsets, Mapping[TopicPartition, int]]:
    """How far the logs go, for a query that is at `start`, and which brokers lead them. Data loss is an error, or is
    logged and survived if the user says so."""
    found = await find_partitions(cluster, options.subscription)
    remembered = start.remembered
    keys = [key for key in found.partitions if only is None or key in only or key in remembered.positions]
    for error in found.missing.values():
        report_loss(f"what was subscribed is not there: {error}", options)
    gone = sorted(key for key in start.positions.keys() - set(found.partitions) if key.topic not in found.missing)
    if gone:
        report_loss(f"{', '.join(map(str, gone))} cannot be read any more: deleted, or not subscribed", options)
    remade = remade_topics(remembered, found.topic_ids)
    for name in remade:
        report_loss(
            f"topic {name!r} was deleted and made again (its id was {remembered.topic_ids[name]} and is "
            f"{found.topic_ids[name]}): what it had is gone, and its offsets begin at 0 again",
            options,
        )
    ends = await list_ends(cluster, dict.fromkeys(keys, LATEST), options)
    known = remembered.without(remade).positions
    for key, end in ends.items():
        if end < known.get(key, 0):
            report_loss(f"{key} was read up to offset {known[key]}, but its log ends at {end}: it was cut off", options)
    return Offsets(ends, {key.topic: found.topic_ids[key.topic] for key in keys}), found.leaders


def remade_topics(start: Offsets, topic_ids: Mapping[str, str]) -> list[str]:
    """The topics that have another id now."""
    return sorted(name for name, told in start.topic_ids.items() if is_remade(told, topic_ids.get(name, "")))


def report_loss(what: str, options: SourceOptions) -> None:
    if options.fails_on_data_loss:
        raise DataLossError(f"{what}. Set failOnDataLoss=false to go on without it, or start with a new checkpoint")
    if what not in _told:
        # A query looks again and again, and the loss is logged once.
        _told.add(what)
        log.warning("%s; going on, for failOnDataLoss is false", what)


async def wait_for_more(
    cluster: Cluster,
    options: SourceOptions,
    ends: Mapping[TopicPartition, int],
    leaders: Mapping[TopicPartition, int],
    *,
    wait_ms: int,
) -> None:
    """Return when a partition has grown beyond its end, and at the latest when the time is over."""
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for key, end in ends.items():
        by_leader.setdefault(leaders.get(key, -1), {})[key] = end
    if not by_leader:
        await asyncio.sleep(wait_ms / 1000)
        return
    waits = [
        asyncio.ensure_future(
            fetch_many(
                cluster,
                each,
                max_bytes=1,
                partition_max_bytes=1,
                max_wait_ms=wait_ms,
                read_committed=options.reads_committed,
            )
        )
        for each in by_leader.values()
    ]
    try:
        await asyncio.wait(waits, timeout=wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            # A broker answers at once while the leader changes.
            if each.done() and any(isinstance(told, ClientError) for told in each.result().values()):
                await asyncio.sleep(wait_ms / 1000)
    finally:
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def probe_sizes(cluster: Cluster, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
    """Estimate how many stored bytes a record has, in each partition that has records from its start on, or from the
    log's beginning if that comes later."""

    async def probe(asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, Fetched | ClientError]:
        if not asked:
            return {}
        return await fetch_many(cluster, asked, partition_max_bytes=PROBE_BYTES, max_wait_ms=0, min_bytes=0)

    told = await probe(starts)
    if outside := [key for key, each in told.items() if _is_outside(each)]:
        listed = await list_offsets(cluster, dict.fromkeys(outside, EARLIEST))
        told |= await probe({key: each.offset for key, each in listed.items() if not isinstance(each, ClientError)})
    # A partition that is gone is reported when it is read.
    fetched = {key: each for key, each in told.items() if not isinstance(each, ClientError)}
    # A larger batch is only sent in reply to a fetch that asks for nothing else.
    alone = [key for key, each in fetched.items() if not each.batches and each.high_watermark > each.offset]
    for again in await asyncio.gather(*(probe({key: fetched[key].offset}) for key in alone)):
        fetched |= {key: each for key, each in again.items() if not isinstance(each, ClientError)}
    sizes = {}
    for key, each in fetched.items():
        if each.batches:
            count = each.batches[-1][0].next_offset - each.batches[0][0].base_offset
            sizes[key] = sum(len(view) for _, view in each.batches) / max(1, count)
    return sizes


def _is_outside(told: Fetched | ClientError) -> bool:
    return isinstance(told, BrokerError) and told.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def _look_up(cluster: Cluster, names: Iterable[str]) -> tuple[list[Topic], dict[str, ClientError]]:
    told = await cluster.topics(names, fresh=True)
    missing: dict[str, ClientError] = {}
    for name, each in told.items():
        if isinstance(each, UnknownTopicError):
            missing[name] = each
        elif isinstance(each, ClientError):
            raise each
    return [each for each in told.values() if not isinstance(each, ClientError)], missing


async def _resolve_times(
    cluster: Cluster, asked: Mapping[TopicPartition, int], options: SourceOptions, *, is_start: bool
) -> dict[TopicPartition, int]:
    listed = unwrap(await list_offsets(cluster, asked, read_committed=options.reads_committed))
    offsets = {key: each.offset for key, each in listed.items()}
    if late := [key for key, offset in offsets.items() if offset < 0]:
        if is_start and not options.is_latest_without_match:
            raise OptionsError(
                f"{late[0]} has no record from time {asked[late[0]]} on: choose an earlier one, or set "
                "startingOffsetsByTimestampStrategy=latest to begin at its end"
            )
        offsets |= await list_ends(cluster, dict.fromkeys(late, LATEST), options)
    return offsets
