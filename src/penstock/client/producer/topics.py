"""A producer's topics: `TopicViews` asks brokers for them, and asks again; a `Partitioner` chooses a partition."""

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from penstock.client.cluster import retries as retrying
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.metadata import Topic
from penstock.client.producer.accumulator import PartitionQueue
from penstock.client.producer.background import Background
from penstock.client.producer.record_writer import HEADER_BYTES
from penstock.client.settings import ProducerSettings, SettingsError
from penstock.machines.partitioners import RoundRobin, jump_partition_of_key, partition_of_key

Partitioner: TypeAlias = Callable[[str, bytes | None, Sequence[int]], int]
"""A function of topic, key (or None) and partitions, in ascending order, that returns one of them. A message with a key
may go to any partition of the topic; for one without, only those are offered that can be written to now."""

Choice: TypeAlias = Callable[["TopicView", bytes | None, int], PartitionQueue]
"""A function of a topic, a key and the bytes of the record."""

# Keys come again: to find a partition in this table is several times as quick as to hash.
REMEMBERED_KEYS: Final = 4096
LONGEST_REMEMBERED: Final = 64
# How long one look at the metadata may take before another is tried.
REFRESH_MS: Final = 5_000

STICKY: Final = ("murmur2", "jump", "sticky")
"""Partitioners that stay with a partition, for messages without a key, while `TopicView.sticky_bytes` are left."""


@dataclass(slots=True, eq=False)
class TopicView:
    """What is known about a topic, with a queue for each partition."""

    name: str
    topic_id: bytes = b""
    queues: list[PartitionQueue] = field(default_factory=list)
    partitions: Sequence[int] = ()
    available: Sequence[int] = ()
    """The partitions that can be written to now; all of them if there are none, as that may pass."""
    sticky: PartitionQueue | None = None
    sticky_bytes: int = 0
    """How many more bytes go to that partition."""
    turns: RoundRobin = field(default_factory=RoundRobin)

    def update(self, topic: Topic) -> None:
        """Take over what a broker has reported."""
        self.topic_id = topic.topic_id
        count = len(topic.partitions)
        self.queues += [PartitionQueue(self.name, index) for index in range(len(self.queues), count)]
        for queue in self.queues:
            queue.leader = topic.partitions[queue.partition].leader if queue.partition < count else -1
        self.partitions = range(count)
        led = [each.index for each in topic.partitions if each.leader >= 0]
        self.available = led if 0 < len(led) < count else self.partitions
        self.sticky_bytes = 0


class TopicViews:
    """`told` is called with the topics that were asked for again, and the errors of some of them; it returns those to
    ask for once more."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        background: Background,
        told: Callable[[dict[str, ClientError | None]], Collection[str]],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._background = background
        self._told = told
        self._views: dict[str, TopicView] = {}
        self._stale: set[str] = set()
        self._is_refreshing = False
        background.later(settings.metadata_max_age_ms / 1000, self._refresh_old)

    def __getitem__(self, name: str) -> TopicView:
        return self._views[name]

    async def find(self, name: str, *, is_fresh: bool = False) -> TopicView:
        """A topic, asked for if nothing is known of it, or if what is known has to be fresh."""
        view = self._views.get(name)
        if view is None or is_fresh:
            topic = await self._cluster.topic(name, fresh=is_fresh, timeout_ms=self._settings.max_block_ms)
            # Another call may have asked for the topic meanwhile.
            view = self._views.setdefault(name, TopicView(name))
            view.update(topic)
        return view

    def learn(self, topic: Topic) -> None:
        """Take over what a broker has said about a topic without being asked for it."""
        self._views[topic.name].update(topic)

    def refresh(self, name: str) -> None:
        """Ask for the topic again soon: what is known led to the wrong broker."""
        self._stale.add(name)
        if not self._is_refreshing:
            self._is_refreshing = True
            self._background.start(self._refresh_stale())

    def _refresh_old(self) -> None:
        for name in self._views:
            self.refresh(name)
        self._background.later(self._settings.metadata_max_age_ms / 1000, self._refresh_old)

    async def _refresh_stale(self) -> None:
        tries = 0
        try:
            while self._stale:
                names, self._stale = self._stale, set()
                found = await self._cluster.topics(names, fresh=True, timeout_ms=REFRESH_MS)
                errors: dict[str, ClientError | None] = {}
                for name, topic in found.items():
                    if isinstance(topic, ClientError):
                        errors[name] = topic
                    else:
                        errors[name] = None
                        self._views[name].update(topic)
                self._stale |= set(self._told(errors))
                if self._stale:
                    tries += 1
                    await asyncio.sleep(retrying.backoff_ms(tries) / 1000)
        finally:
            self._is_refreshing = False


def partitioner(given: str | Partitioner, batch_size: int) -> Choice:
    """The choice that a name stands for, or one that asks the user's function."""
    if not isinstance(given, str):
        return _users_choice(given)
    named: dict[str, Choice] = {
        "murmur2": _by_key(partition_of_key, batch_size),
        "jump": _by_key(jump_partition_of_key, batch_size),
        "sticky": lambda view, key, size: _stick(view, size, batch_size),
        "random": lambda view, key, size: view.queues[random.choice(view.available)],
        "round_robin": lambda view, key, size: view.queues[view.turns.choose(view.available)],
    }
    if given not in named:
        raise SettingsError(
            f"partitioner is {given!r}, but must be one of {', '.join(map(repr, named))}, or a function of topic, key "
            "and partitions"
        )
    return named[given]


def _by_key(hashed: Callable[[bytes, int], int], batch_size: int) -> Choice:
    remembered = lru_cache(REMEMBERED_KEYS)(hashed)

    def choose(view: TopicView, key: bytes | None, size: int) -> PartitionQueue:
        if key is None:
            return _stick(view, size, batch_size)
        find = remembered if len(key) <= LONGEST_REMEMBERED else hashed
        return view.queues[find(key, len(view.partitions))]

    return choose


def _stick(view: TopicView, size: int, batch_size: int) -> PartitionQueue:
    """One partition until a batch is full, so that batches do fill, then another (KIP-480, KIP-794)."""
    view.sticky_bytes -= size
    if view.sticky_bytes < 0 or view.sticky is None:
        last = view.sticky
        view.sticky_bytes = batch_size - HEADER_BYTES - size
        chosen = random.choice(view.available)
        if last is not None and len(view.available) > 1 and chosen == last.partition:
            others = [each for each in view.available if each != last.partition]
            chosen = random.choice(others)
        view.sticky = view.queues[chosen]
    return view.sticky


def _users_choice(function: Partitioner) -> Choice:
    def choose(view: TopicView, key: bytes | None, size: int) -> PartitionQueue:
        offered = view.available if key is None else view.partitions
        partition = function(view.name, key, offered)
        if partition not in offered:
            raise ValueError(
                f"the partitioner chose {partition!r} of topic {view.name!r}, which is none of the partitions that it "
                f"was offered: {list(offered)}"
            )
        return view.queues[partition]

    return choose
