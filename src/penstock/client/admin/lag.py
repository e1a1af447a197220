"""The lag meter measures how far a group is behind its topics: in messages, in seconds, and how long it needs to catch
up."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.client.admin.group_offsets import CommittedOffset, group_offsets
from penstock.client.admin.groups import GroupDescription, GroupMember, describe_groups
from penstock.client.admin.offsets import LATEST, list_offsets
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import ClientError, unwrap
from penstock.client.metadata import TopicPartition
from penstock.client.plain.fetch import fetch

# A partition without a leader should not hold up the report about the others for long.
LOOK_TIMEOUT_MS: Final = 10_000
FETCHES_AT_ONCE: Final = 16
# Rates are taken over this time: short enough for news, long enough for several commits.
WINDOW_SECONDS: Final = 30.0
# Kafka's auto.commit.interval.ms: a consumer that has not committed for less than this may not have been due yet.
COMMIT_SECONDS: Final = 5.0


class Sample(NamedTuple):
    """The offset that a group had committed in a partition, and the end of the partition, at one time."""

    at: float
    """Seconds, by a clock that only goes forward."""
    committed: int
    end: int


class Rates(NamedTuple):
    """Messages in a second."""

    consumed: float | None
    """None if no commit came, and too little time passed for that to mean anything."""
    produced: float


@dataclass(slots=True, frozen=True)
class PartitionLag:
    """The lag in one partition. What is not known is None: nothing was committed, or the partition has no leader."""

    partition: TopicPartition
    committed: int | None
    end: int | None
    seconds: float | None
    """How old the oldest message is that is not processed; None also if it is deleted, or has no timestamp."""
    rates: Rates | None
    member: GroupMember | None

    @property
    def messages(self) -> int | None:
        return lag_in_messages(self.committed, self.end)

    @property
    def catch_up_seconds(self) -> float | None:
        return catch_up_in_seconds(self.messages, self.rates)


@dataclass(slots=True, frozen=True)
class GroupLag:
    group: GroupDescription
    partitions: tuple[PartitionLag, ...]

    @property
    def messages(self) -> int | None:
        """The sum over all partitions in which it is known."""
        known = [each.messages for each in self.partitions if each.messages is not None]
        return sum(known) if known else None

    @property
    def seconds(self) -> float | None:
        """The lag of the partition that is furthest behind."""
        return max((each.seconds for each in self.partitions if each.seconds is not None), default=None)

    @property
    def rates(self) -> Rates | None:
        """The sums over all partitions, if each was measured."""
        measured = [each.rates for each in self.partitions if each.messages is not None]
        known = [rates for rates in measured if rates is not None]
        if not known or len(known) < len(measured):
            return None
        consumed = [rates.consumed for rates in known if rates.consumed is not None]
        return Rates(
            sum(consumed) if len(consumed) == len(known) else None,
            sum(rates.produced for rates in known),
        )

    @property
    def catch_up_seconds(self) -> float | None:
        """How long the slowest of the partitions needs: the group has caught up when all have."""
        parts = [each.catch_up_seconds for each in self.partitions if each.messages is not None]
        known = [seconds for seconds in parts if seconds is not None]
        if math.inf in known:
            return math.inf
        return max(known) if known and len(known) == len(parts) else None


def lag_in_messages(committed: int | None, end: int | None) -> int | None:
    """As Kafka counts: by offsets, also those that compaction or retention has left without a message."""
    return None if committed is None or end is None else max(0, end - committed)


def lag_in_seconds(messages: int | None, timestamp_ms: int | None, now_ms: int) -> float | None:
    """The age of the oldest message that is not processed, by its timestamp. The producer's clock may be ahead of this
    one."""
    if messages == 0:
        return 0.0
    if messages is None or timestamp_ms is None or timestamp_ms < 0:
        return None
    return max(0.0, (now_ms - timestamp_ms) / 1000)


def measure_rates(first: Sample, last: Sample, *, is_active: bool) -> Rates | None:
    """What happened between two samples; `is_active`: the group has members, which may commit."""
    elapsed = last.at - first.at
    if elapsed <= 0:
        return None
    consumed: float | None = (last.committed - first.committed) / elapsed
    if not consumed and last.committed < last.end and is_active and elapsed < COMMIT_SECONDS:
        consumed = None
    return Rates(consumed, (last.end - first.end) / elapsed)


def catch_up_in_seconds(messages: int | None, rates: Rates | None) -> float | None:
    """Infinite if the group does not gain on the producers."""
    if messages == 0:
        return 0.0
    if messages is None or rates is None or rates.consumed is None:
        return None
    gain = rates.consumed - rates.produced
    return messages / gain if gain > 0 else math.inf


class LagMeter:
    """Measures a group as often as it is asked to; from the second time on there are rates."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._samples: dict[TopicPartition, deque[Sample]] = {}
        # By partition: an offset, and the timestamp of what lies there, which does not change.
        self._timestamps: dict[TopicPartition, tuple[int, int]] = {}

    async def measure(self, *, ages: bool = True) -> GroupLag:
        """Measure all partitions that the group has committed or that its members were given. Without `ages` no
        messages are read, and their age is unknown."""
        cluster, group = self._cluster, self._group
        description = unwrap(await describe_groups(cluster, [group]))[group]
        committed = unwrap(await group_offsets(cluster, [group]))[group]
        owners = description.owners()
        keys = sorted({*committed, *owners})
        listed = await list_offsets(cluster, dict.fromkeys(keys, LATEST), timeout_ms=LOOK_TIMEOUT_MS)
        ends = {key: each.offset for key, each in listed.items() if not isinstance(each, ClientError)}
        self._note(committed, ends)
        if ages:
            await self._look_at_messages(committed, ends)
        now_ms = time.time_ns() // 1_000_000
        return GroupLag(
            description,
            tuple(
                self._partition_lag(key, committed.get(key), ends.get(key), owners.get(key), description, now_ms=now_ms)
                for key in keys
            ),
        )

    def _partition_lag(
        self,
        key: TopicPartition,
        committed: CommittedOffset | None,
        end: int | None,
        member: GroupMember | None,
        description: GroupDescription,
        *,
        now_ms: int,
    ) -> PartitionLag:
        offset = None if committed is None else committed.offset
        seen, timestamp = self._timestamps.get(key, (None, None))
        samples = self._samples.get(key, ())
        return PartitionLag(
            key,
            offset,
            end,
            lag_in_seconds(lag_in_messages(offset, end), timestamp if seen == offset else None, now_ms),
            measure_rates(samples[0], samples[-1], is_active=bool(description.members)) if samples else None,
            member,
        )

    def _note(self, committed: Mapping[TopicPartition, CommittedOffset], ends: Mapping[TopicPartition, int]) -> None:
        now = asyncio.get_running_loop().time()
        noted: dict[TopicPartition, deque[Sample]] = {}
        for key in committed.keys() & ends.keys():
            sample = Sample(now, committed[key].offset, ends[key])
            samples = self._samples.get(key, deque())
            if samples and (sample.committed < samples[-1].committed or sample.end < samples[-1].end):
                # The group was moved, or the topic was created again.
                samples.clear()
            while len(samples) > 1 and now - samples[1].at >= WINDOW_SECONDS:
                samples.popleft()
            samples.append(sample)
            noted[key] = samples
        self._samples = noted

    async def _look_at_messages(
        self, committed: Mapping[TopicPartition, CommittedOffset], ends: Mapping[TopicPartition, int]
    ) -> None:
        slots = asyncio.Semaphore(FETCHES_AT_ONCE)

        async def look(key: TopicPartition, offset: int) -> None:
            async with slots:
                timestamp = await self._timestamp_at(key, offset)
            if timestamp is not None:
                self._timestamps[key] = (offset, timestamp)

        async with asyncio.TaskGroup() as tasks:
            for key in _behind(committed, ends):
                offset = committed[key].offset
                if self._timestamps.get(key, (None, 0))[0] != offset:
                    tasks.create_task(look(key, offset))

    async def _timestamp_at(self, key: TopicPartition, offset: int) -> int | None:
        """The timestamp of the first message from an offset on; None if it cannot be had."""
        try:
            # The first batch comes whole, however few bytes are asked for.
            fetched = await fetch(
                self._cluster,
                key.topic,
                key.partition,
                offset,
                max_bytes=1,
                max_wait_ms=0,
                timeout_ms=LOOK_TIMEOUT_MS,
            )
            record = next(fetched.records(), None)
        except ClientError:
            return None
        if record is not None:
            return record.timestamp
        return fetched.batches[0][0].max_timestamp if fetched.batches else None


def _behind(
    committed: Mapping[TopicPartition, CommittedOffset], ends: Mapping[TopicPartition, int]
) -> Iterable[TopicPartition]:
    return [key for key, each in committed.items() if lag_in_messages(each.offset, ends.get(key))]
