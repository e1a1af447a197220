"""`Driver` decides on Spark's driver where a query begins, how far its next batch goes and how tasks share it."""

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from penstock.client.admin.offsets import LATEST
from penstock.client.errors import ClientError
from penstock.client.metadata import TopicPartition
from penstock.spark import planning, positions
from penstock.spark.link import SparkLink
from penstock.spark.offsets import Offsets
from penstock.spark.options import OptionsError, SourceOptions
from penstock.spark.planning import PlanError, Range
from penstock.spark.positions import DataLossError, Subscribed
from penstock.spark.source import progress

log: Final = logging.getLogger(__name__)

IDLE_WAIT_MS: Final = 500
"""How long a query without new data waits for some before it answers Spark, which would otherwise ask eighty times a
second. Other sources of the query wait meanwhile, so it is not longer."""


GROUP_CHECK_MS: Final = 10_000
"""How often a query looks whether another one commits to its group."""


class Driver:
    """The driver's half of a query. Spark calls it from one thread, in a fixed order."""

    def __init__(
        self,
        options: SourceOptions,
        link: SparkLink,
        *,
        idle_wait_ms: int = IDLE_WAIT_MS,
        group_check_ms: int = GROUP_CHECK_MS,
    ) -> None:
        self.seen: Offsets | None = None
        """How far the logs went when the brokers were last asked."""
        self.end: Offsets | None = None
        """Where the batch ends that was decided on last."""
        self._options = options
        self._link = link
        self._idle_wait_ms = idle_wait_ms
        # Target of an available-now query.
        self._target: Offsets | None = None
        self._leaders: Mapping[TopicPartition, int] = {}
        self._published: Offsets | None = None
        self._triggered_at = float("-inf")
        self._name = uuid.uuid4().hex[:12]
        self._group_check_ms = group_check_ms
        self._group_checked_at = float("-inf")
        self._has_warned = False

    def plan_batch(self) -> list[Range]:
        """The tasks of a batch query, over what the logs have now."""
        return self._link.run(self._plan_batch())

    def initial(self) -> Offsets:
        """Where the query begins. After a failure of the first batch Spark asks again, and gets the beginning that the
        group keeps. If it is not known, that becomes an error only when it is needed: the end of a batch that is
        repeated has it."""
        try:
            return self._link.run(self._initial())
        except (ClientError, DataLossError, OptionsError) as error:
            return Offsets({}, is_initial=True, error=str(error))

    def aim(self) -> None:
        """Make the present ends of the logs the target of this query."""
        self._target = self._link.run(self._aim())

    def latest(self, start: Offsets, *, is_limited: bool) -> Offsets:
        """Where the batch that begins at `start` ends; `start` itself if there is nothing to do."""
        if start.error:
            raise PlanError(start.error)
        self.end = self._link.run(self._latest(start, is_limited=is_limited))
        return self.end

    def plan(self, start: Offsets, end: Offsets) -> list[Range]:
        """The tasks of a batch."""
        ranges = planning.plan_ranges(start, end, may_go_back=not self._options.fails_on_data_loss)
        return self._link.run(self._split(ranges)) if ranges else []

    async def _plan_batch(self) -> list[Range]:
        options, cluster = self._options, self._link.cluster
        found = await self._find()
        starts = await positions.resolve(cluster, found.partitions, options.starting, options, is_start=True)
        ends = await positions.resolve(cluster, found.partitions, options.ending, options, is_start=False)
        for key, start in starts.items():
            # Two times may lie in one gap between records; two offsets in the wrong order are an error of the user.
            if ends[key] < start:
                if not options.starting.is_time and not options.ending.is_time:
                    raise PlanError(f"{key} would be read from offset {start} to {ends[key]}: an end before the start")
                ends[key] = start
        return await self._split(planning.plan_ranges(Offsets(starts, found.topic_ids), Offsets(ends, found.topic_ids)))

    async def _initial(self) -> Offsets:
        options, cluster = self._options, self._link.cluster
        found = await self._find()
        bound, group = options.starting, options.group
        starts = {}
        if group is not None:
            starts = await progress.recall_start(cluster, group, bound, found.topic_ids, found.partitions)
            begun, told = {key.topic for key in starts}, {*starts, *bound.each}
            # A partition that was made since the query began.
            starts |= {key: 0 for key in found.partitions if key.topic in begun and key not in told}
        # No batch has read other topics yet, whether they were added to the subscription or are the first to match its
        # pattern: until a batch is done, the user's starting offsets count for them as for the rest.
        others = [key for key in found.partitions if key not in starts]
        asked = replace(bound, each={key: value for key, value in bound.each.items() if key not in starts})
        starts |= await positions.resolve(cluster, others, asked, options, is_start=True)
        if group is not None:
            await progress.keep_start(cluster, group, bound, found.topic_ids, starts)
        return Offsets(starts, _ids(found, starts), is_initial=True)

    async def _aim(self) -> Offsets:
        found = await self._find(allow_missing=True)
        ends = await positions.list_ends(self._link.cluster, dict.fromkeys(found.partitions, LATEST), self._options)
        return Offsets(ends, _ids(found, ends))

    async def _latest(self, start: Offsets, *, is_limited: bool) -> Offsets:
        published = asyncio.ensure_future(self._publish(start))
        deadline = time.monotonic() + self._idle_wait_ms / 1000
        try:
            while (end := await self._next_end(start, is_limited=is_limited)) is None and self._target is None:
                if (left_ms := round((deadline - time.monotonic()) * 1000)) <= 0:
                    break
                await self._wait_for_more(left_ms)
        finally:
            await published
        if end is None:
            return start
        self._triggered_at = time.monotonic()
        return end

    async def _next_end(self, start: Offsets, *, is_limited: bool) -> Offsets | None:
        """None if there is nothing to do yet."""
        options, cluster = self._options, self._link.cluster
        only = None if self._target is None else self._target.positions.keys()
        self.seen, self._leaders = await positions.latest(cluster, options, start, only=only)
        remade = positions.remade_topics(start.remembered, self.seen.topic_ids)
        known = start.remembered.without(remade)
        ends = dict(self.seen.positions)
        if self._target is not None:
            # Partitions that were made since wait for the next query.
            aims = self._target.without(positions.remade_topics(self._target, self.seen.topic_ids)).positions
            ends = {key: min(end, max(known.positions.get(key, 0), aims.get(key, 0))) for key, end in ends.items()}
        waiting = sum(max(0, end - known.positions.get(key, 0)) for key, end in ends.items())
        if self._is_early(waiting) and is_limited:
            return None
        if is_limited:
            ends = await self._limit(known.positions, ends)
        if ends == dict(start.positions) and not remade:
            return None
        begin = Offsets(start.positions, start.topic_ids) if start.is_initial else None
        # An answer without a topic, or without its id, is no proof that it is another one when it comes back.
        gone = known.only(known.positions.keys() - ends.keys())
        ids = {key.topic: self.seen.topic_ids[key.topic] or known.topic_ids.get(key.topic, "") for key in ends}
        return Offsets(ends, ids, begin, gone=gone if gone.positions else None)

    async def _wait_for_more(self, wait_ms: int) -> None:
        assert self.seen is not None, "asked for just before"
        await positions.wait_for_more(
            self._link.cluster, self._options, self.seen.positions, self._leaders, wait_ms=wait_ms
        )

    def _is_early(self, waiting: int) -> bool:
        """Whether the batch should wait for more offsets."""
        least = self._options.min_offsets_per_trigger
        if least is None or waiting >= least or self._target is not None:
            return False
        return time.monotonic() - self._triggered_at < self._options.max_trigger_delay_ms / 1000

    async def _limit(
        self, starts: Mapping[TopicPartition, int], ends: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        if (most := self._options.max_offsets_per_trigger) is not None:
            ends = planning.limit(starts, ends, most)
        if (most := self._options.max_bytes_per_trigger) is not None:
            probed = {key: starts.get(key, 0) for key, end in ends.items() if end > starts.get(key, 0)}
            sizes = await positions.probe_sizes(self._link.cluster, probed)
            ends = planning.limit_bytes(starts, ends, most, sizes)
        return ends

    async def _split(self, ranges: list[Range]) -> list[Range]:
        options = self._options
        sizes: dict[TopicPartition, float] = {}
        if options.max_bytes_per_partition is not None:
            sizes = await positions.probe_sizes(self._link.cluster, {each.key: each.start for each in ranges})
        return planning.split(
            ranges,
            min_parts=options.min_partitions,
            max_records=options.max_records_per_partition,
            max_bytes=options.max_bytes_per_partition,
            bytes_each=sizes,
        )

    async def _publish(self, start: Offsets) -> None:
        """Commit the start of a batch: Spark begins a batch where the last finished one ended."""
        group = self._options.group
        if group is None or start.is_initial or start == self._published:
            return
        await self._check_group(group)
        if await progress.publish(self._link.cluster, group, start, name=self._name):
            self._published = start

    async def _check_group(self, group: str) -> None:
        """Warn, once, if another source has overwritten what this one has committed."""
        now = time.monotonic()
        if self._published is None or self._has_warned or now - self._group_checked_at < self._group_check_ms / 1000:
            return
        self._group_checked_at = now
        keys = self._published.positions
        if (key := await progress.find_other(self._link.cluster, group, keys, self._name)) is not None:
            self._has_warned = True
            log.warning(
                "another query, or another source of this one, commits to group %r too, for %s: what the group says of "
                "either is wrong. Nothing is lost, for checkpoints keep the offsets; set kafka.group.id of each to a "
                "name of its own",
                group,
                key,
            )

    async def _find(self, *, allow_missing: bool = False) -> Subscribed:
        found = await positions.find_partitions(self._link.cluster, self._options.subscription)
        if found.missing and not allow_missing:
            raise next(iter(found.missing.values()))
        return found


def _ids(found: Subscribed, keys: Mapping[TopicPartition, int]) -> dict[str, str]:
    return {key.topic: found.topic_ids[key.topic] for key in keys}
