"""Group coordinators serve the groups on the partitions of `__consumer_offsets` that this broker leads."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from penstock.broker.clock import Clock
from penstock.broker.cluster.own_topics import Ask, create_topic
from penstock.broker.cluster.state import ClusterState
from penstock.broker.config.rows import MIB
from penstock.broker.config.typed import BrokerConfig
from penstock.broker.coordinators.coordinator import Coordinator, MachineKind, State, Waiter
from penstock.broker.log_rates import RatedLog
from penstock.broker.network.call import Call
from penstock.broker.pacing import Pace
from penstock.broker.partitions.partition import Partition
from penstock.broker.partitions.registry import Partitions
from penstock.machines.cluster import ImageChange
from penstock.machines.controller import DEFAULT
from penstock.machines.decisions import Refused
from penstock.machines.groups.changes import Caller, Decision, Instant
from penstock.machines.groups.records import OffsetCommitted, decode, encode
from penstock.machines.groups.responses import Request
from penstock.machines.groups.settings import GroupSettings
from penstock.machines.groups.shard import GroupShard
from penstock.machines.groups.sharding import OFFSETS_TOPIC, partition_for
from penstock.protocol.compression import MAX_DECOMPRESSED_BYTES, Codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.group_offsets import OffsetCommitRequest

log = RatedLog(logging.getLogger(__name__))

# Deadlines are kept to a tick, and looked at again after the retry while the log holds them up.
TICK_MS: Final = 10
RETRY_MS: Final = 100
# If the broker's own timer is late by more than this, members were not silent: the broker did not listen.
LATE_SECONDS: Final = 1.0

# A member sends its heartbeats on the connection on which it commits, and they wait for the answer to the commit. One
# that asks for offsets waits: librdkafka never asks again if it is refused (its issue 5586).
IMPATIENT: Final = frozenset({OffsetCommitRequest})

GroupCoordinator = Coordinator[GroupShard]


class GroupCoordinators:
    """`follow` the image of the cluster; `submit` what is asked of a group. One timer serves the deadlines of all
    shards."""

    def __init__(
        self,
        cluster: ClusterState,
        partitions: Partitions,
        *,
        ask: Ask,
        config: Callable[[], BrokerConfig],
        clock: Clock,
    ) -> None:
        self._ask = ask
        self._image = cluster.image
        self._partitions = partitions
        self._config = config
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._shards: dict[int, GroupCoordinator] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0
        # Topics that were deleted while a shard could not take note of it, by shard.
        self._deleted: dict[int, dict[str, None]] = {}
        self._is_following = False
        self._is_closing = False
        settings = _settings(config())
        self._kind = MachineKind(
            make=lambda: GroupShard(settings),
            encode=encode,
            decode=decode,
            refuse=GroupShard.refuse,
            codec=Codec(config().integer("offsets.topic.compression.codec")),
            max_batch_bytes=settings.max_record_bytes,
            impatient=IMPATIENT,
            patience_ms=settings.offsets_commit_timeout_ms,
        )

    # Following the cluster

    def follow(self) -> None:
        """Have a coordinator for each partition that this broker leads now, and no other."""
        self._is_following = True
        led = {} if self._is_closing else self._led()
        for index, shard in list(self._shards.items()):
            partition = led.get(index)
            if shard.partition is not partition or shard.leader_epoch != partition.leader.leader_epoch:
                self._stop(index)
        for index, partition in led.items():
            if index not in self._shards:
                shard = Coordinator(
                    partition, self._kind, now=self._now, loaded=self._loaded, turn_ended=self._turn_ended
                )
                self._shards[index] = shard
                shard.start()

    def image_changed(self, change: ImageChange) -> None:
        """This has changed in the image, and `Partitions` has followed it."""
        if not self._is_following:
            return
        topic = self._image.topics.get(OFFSETS_TOPIC)
        if OFFSETS_TOPIC in change.deleted or (topic is not None and topic.topic_id in change.partitions):
            self.follow()
        # Offsets that groups committed for deleted topics mean nothing any more.
        deleted = dict.fromkeys(change.deleted.keys() - self._image.topics.keys())
        if deleted:
            for index, shard in self._shards.items():
                self._deleted.setdefault(index, {}).update(deleted)
                self._forget_deleted(index, shard)

    def _led(self) -> dict[int, Partition]:
        topic = self._image.topics.get(OFFSETS_TOPIC)
        count = len(topic.partitions) if topic is not None else 0
        found = ((index, self._partitions.get(OFFSETS_TOPIC, index)) for index in range(count))
        return {index: partition for index, partition in found if isinstance(partition, Partition)}

    def _stop(self, index: int) -> None:
        self._deleted.pop(index, None)
        loading = self._shards.pop(index).stop()
        if loading is not None and not loading.done():
            self._stopping.add(loading)
            loading.add_done_callback(self._stopping.discard)

    def _loaded(self, shard: GroupCoordinator) -> None:
        self._forget_deleted(shard.partition.index, shard)

    def _forget_deleted(self, index: int, shard: GroupCoordinator) -> None:
        names = self._deleted.get(index, {})
        for name in list(names):
            # A topic with the same name may have come since; its id tells its offsets from those of the old one.
            is_back = name in self._image.topics
            if not is_back and not shard.happened(partial(_topic_deleted, name)):
                return
            del names[name]

    # Asking

    def submit(
        self,
        group_id: str,
        request: Request,
        call: Call,
        *,
        waiter: Waiter | None = None,
        new_member_id: str = "",
    ) -> None:
        """The waiter gets the reply, now or later; if there is none, the call itself does."""
        caller = Caller(waiter or call, call.version, call.client_id or "", call.client_host)
        shard = self._find(group_id)
        if shard is None:
            (waiter or call).reply(GroupShard.refuse(request, ErrorCode.NOT_COORDINATOR))
        else:
            shard.submit(request, caller, new_member_id=new_member_id)

    async def ask_each(
        self, requests: Sequence[tuple[str, Request]], call: Call, pace: Pace, *, items: int = 1
    ) -> list[Any]:
        """Submit the requests of one call to several groups, each about `items` things; returns replies in order."""
        replies: asyncio.Future[list[Message]] = self._loop.create_future()
        gathered = _Gathered(len(requests), replies.set_result)
        for number, (group_id, request) in enumerate(requests):
            self.submit(group_id, request, call, waiter=_Part(gathered, number))
            await pace.spend(items)
        return await replies if requests else []

    def leader_of(self, group_id: str) -> int | None:
        """The broker that coordinates a group; -1 if no broker does, None if the topic for it is not there yet."""
        topic = self._image.topics.get(OFFSETS_TOPIC)
        return None if topic is None else topic.partitions[partition_for(group_id, len(topic.partitions))].leader

    async def create_topic(self) -> Refused | None:
        """Make the topic that groups are kept in; None if it is there."""
        config = self._config()
        name = "offsets.topic.replication.factor"
        # Unless it is set, as many as other topics get.
        factor = config.integer(name) if name in config.static else DEFAULT
        segment_bytes = config.integer("offsets.topic.segment.bytes")
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            # The broker's config has no lower limit, and a topic's has.
            "segment.bytes" if segment_bytes >= MIB else "internal.segment.bytes": str(segment_bytes),
        }
        partitions = config.integer("offsets.topic.num.partitions")
        try:
            await create_topic(
                self._ask, OFFSETS_TOPIC, partitions=partitions, replication_factor=factor, configs=configs
            )
        except Refused as refused:
            if refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                facts = {"topic": OFFSETS_TOPIC, "error": refused.message}
                log.error("groups have no topic", owner=self, extra=facts)
                return refused
        return None

    def committed_offset(self, group_id: str, topic: str, partition: int) -> OffsetCommitted | None:
        """The offset that a group has committed; None if there is none, or while this broker does not know."""
        shard = self._find(group_id)
        machine = None if shard is None else shard.machine
        return None if machine is None else machine.committed_offset(group_id, topic, partition)

    def committed_partitions(self, group_id: str) -> dict[str, list[int]] | None:
        """The partitions that a group has committed offsets of, by topic; None while this broker does not know."""
        shard = self._find(group_id)
        machine = None if shard is None else shard.machine
        return None if machine is None else machine.committed_partitions(group_id)

    def shards(self) -> Iterator[GroupCoordinator]:
        """All coordinators of groups, to be read only."""
        yield from self._shards.values()

    def _find(self, group_id: str) -> GroupCoordinator | None:
        topic = self._image.topics.get(OFFSETS_TOPIC)
        return None if topic is None else self._shards.get(partition_for(group_id, len(topic.partitions)))

    # Time

    def clock_moved(self) -> None:
        """End what is due. The timer calls this; so may a test that moves the clock, as the broker is not late then."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for index, shard in list(self._shards.items()):
            shard.tick_if_due()
            self._forget_deleted(index, shard)
            self._arm(shard.next_deadline())

    def next_deadline(self) -> int | None:
        """The next moment at which a deadline ends, by the clock that only runs forward."""
        deadlines = [shard.next_deadline() for shard in self._shards.values()]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _turn_ended(self, shard: GroupCoordinator) -> None:
        self._arm(shard.next_deadline())

    def _arm(self, deadline_ms: int | None) -> None:
        if deadline_ms is None or self._is_closing or (self._timer is not None and self._due_ms <= deadline_ms):
            return
        remaining_ms = deadline_ms - self._clock.monotonic_ms()
        # A deadline that is overdue could not be met now.
        delay_ms = max(remaining_ms, TICK_MS) if remaining_ms > 0 else RETRY_MS
        if self._timer is not None:
            self._timer.cancel()
        self._due_ms = deadline_ms
        self._timer = self._loop.call_later(delay_ms / 1000, self._fired)

    def _fired(self) -> None:
        assert self._timer is not None
        late = self._loop.time() - self._timer.when()
        self._timer = None
        if late > LATE_SECONDS:
            for shard in self._shards.values():
                shard.shift_deadlines(int(late * 1000))
        self.clock_moved()

    def _now(self) -> Instant:
        clock = self._clock
        return Instant(clock.monotonic_ms(), clock.now_ms())

    # Stopping

    def end_waits(self) -> None:
        """The broker stops: end all waits for other members."""
        for shard in self._shards.values():
            shard.end_waits()

    async def close(self) -> None:
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for index in list(self._shards):
            self._stop(index)
        if self._stopping:
            await asyncio.wait(self._stopping)

    @property
    def is_loading(self) -> bool:
        return any(shard.state is State.LOADING for shard in self._shards.values())


class _Gathered:
    """The replies to the parts of a call, until there is one to each."""

    __slots__ = ("_finish", "_missing", "_replies")

    def __init__(self, count: int, finish: Callable[[list[Message]], None]) -> None:
        self._replies: list[Any] = [None] * count
        self._missing = count
        self._finish = finish

    def came(self, number: int, response: Message) -> None:
        self._replies[number] = response
        self._missing -= 1
        if not self._missing:
            self._finish(self._replies)


@dataclass(slots=True, eq=False)
class _Part:
    gathered: _Gathered
    number: int

    def reply(self, response: Message) -> None:
        self.gathered.came(self.number, response)

    def when_gone(self, forget: Callable[[Any], None]) -> None:
        """Nothing to do: parts wait for the log alone, which will answer them."""


def _topic_deleted(name: str, machine: GroupShard, now: Instant) -> Decision:
    return machine.topic_deleted(name, now)


def _settings(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=config.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.integer("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
        max_size=config.integer("group.max.size"),
        offsets_retention_ms=config.integer("offsets.retention.minutes") * 60_000,
        offsets_commit_timeout_ms=config.integer("offsets.commit.timeout.ms"),
        offsets_retention_check_interval_ms=config.integer("offsets.retention.check.interval.ms"),
        offset_metadata_max_bytes=config.integer("offset.metadata.max.bytes"),
        # Beyond the upper bound a compressed batch could not be read again.
        max_record_bytes=min(max(config.integer("message.max.bytes"), MIB), MAX_DECOMPRESSED_BYTES),
    )
