"""A topic as a producer sees it, and the choice of a partition: by name, or by a function of the user's."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from penstock.client.accumulator import Outbox
from penstock.client.encoding import HEADER_BYTES
from penstock.client.metadata import Topic
from penstock.client.settings import SettingsError
from penstock.machines.partitioners import RoundRobin, jump_partition_of_key, partition_of_key

Partitioner: TypeAlias = Callable[[str, bytes | None, Sequence[int]], int]
"""A function of topic, key (or None) and partitions, in ascending order, that returns one of them. A message with a key
may go to any partition of the topic; for one without, only those are offered that can be written to now."""

Choice: TypeAlias = Callable[["TopicView", bytes | None, int], Outbox]
"""Of a topic, a key and the bytes of the record."""

# Keys come again: to find a partition in this table is several times as quick as to hash.
REMEMBERED_KEYS: Final = 4096
LONGEST_REMEMBERED: Final = 64


STICKY: Final = ("murmur2", "jump", "sticky")
"""Those that stay with a partition, for messages without a key, while it has `TopicView.sticky_bytes` left."""


@dataclass(slots=True, eq=False)
class TopicView:
    """What is known about a topic, with an outbox for each partition."""

    name: str
    topic_id: bytes = b""
    outboxes: list[Outbox] = field(default_factory=list)
    partitions: Sequence[int] = ()
    available: Sequence[int] = ()
    """The partitions that can be written to now; all of them if there are none, as that may pass."""
    sticky: Outbox | None = None
    sticky_bytes: int = 0
    """How much more goes to that partition."""
    turns: RoundRobin = field(default_factory=RoundRobin)

    def update(self, topic: Topic) -> None:
        """Take over what a broker has told."""
        self.topic_id = topic.topic_id
        count = len(topic.partitions)
        self.outboxes += [Outbox(self.name, index) for index in range(len(self.outboxes), count)]
        for outbox in self.outboxes:
            outbox.leader = topic.partitions[outbox.partition].leader if outbox.partition < count else -1
        self.partitions = range(count)
        led = [each.index for each in topic.partitions if each.leader >= 0]
        self.available = led if 0 < len(led) < count else self.partitions
        self.sticky_bytes = 0


def partitioner(given: str | Partitioner, batch_size: int) -> Choice:
    """The choice that a name stands for, or one that asks the user's function."""
    if not isinstance(given, str):
        return _users_choice(given)
    named: dict[str, Choice] = {
        "murmur2": _by_key(partition_of_key, batch_size),
        "jump": _by_key(jump_partition_of_key, batch_size),
        "sticky": lambda view, key, size: _stick(view, size, batch_size),
        "random": lambda view, key, size: view.outboxes[random.choice(view.available)],
        "round_robin": lambda view, key, size: view.outboxes[view.turns.choose(view.available)],
    }
    if given not in named:
        raise SettingsError(
            f"partitioner is {given!r}, but must be one of {', '.join(map(repr, named))}, or a function of topic, key "
            "and partitions"
        )
    return named[given]


def _by_key(hashed: Callable[[bytes, int], int], batch_size: int) -> Choice:
    remembered = lru_cache(REMEMBERED_KEYS)(hashed)

    def choose(view: TopicView, key: bytes | None, size: int) -> Outbox:
        if key is None:
            return _stick(view, size, batch_size)
        find = remembered if len(key) <= LONGEST_REMEMBERED else hashed
        return view.outboxes[find(key, len(view.partitions))]

    return choose


def _stick(view: TopicView, size: int, batch_size: int) -> Outbox:
    """The same partition until a batch is full, so that batches do fill, then another (KIP-480, KIP-794)."""
    view.sticky_bytes -= size
    if view.sticky_bytes < 0 or view.sticky is None:
        last = view.sticky
        view.sticky_bytes = batch_size - HEADER_BYTES - size
        chosen = random.choice(view.available)
        if last is not None and len(view.available) > 1 and chosen == last.partition:
            others = [each for each in view.available if each != last.partition]
            chosen = random.choice(others)
        view.sticky = view.outboxes[chosen]
    return view.sticky


def _users_choice(function: Partitioner) -> Choice:
    def choose(view: TopicView, key: bytes | None, size: int) -> Outbox:
        offered = view.available if key is None else view.partitions
        partition = function(view.name, key, offered)
        if partition not in offered:
            raise ValueError(
                f"the partitioner chose {partition!r} of topic {view.name!r}, which is none of the partitions that it "
                f"was offered: {list(offered)}"
            )
        return view.outboxes[partition]

    return choose
