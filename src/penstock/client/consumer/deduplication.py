"""`Deduplicator` recognises messages that were sent twice, in a bounded window: by producer id and sequence number, or
by a header."""

from collections import OrderedDict, deque
from typing import Any, TypeAlias

from penstock.client.message import Message
from penstock.client.metadata import TopicPartition

Identity: TypeAlias = tuple[object, ...]


class Deduplicator:
    """Says which messages are copies of others that it has seen: `Consumer(..., dedup=Deduplicator())`.

    Without a `header` a message is known by its idempotent producer's id and epoch and the sequence number that it has
    in its partition. With one, such as "message-id", by what that header says, in all partitions of its topic: so even
    what a producer has sent again after a restart, or to another partition, is known. A message that has none of these
    is never a copy.

    The last `per_partition` messages of each partition and `total` of all are remembered, in memory alone: a copy that
    comes later, after a restart or to another member of the group is not known. A message that is read again from
    its offset is no copy: an application that seeks back gets it.

    >>> dedup = Deduplicator(header="message-id", per_partition=1000)
    >>> first = Message("orders", 0, 17, 0, None, b"paid", (("message-id", b"a1"),))
    >>> again = Message("orders", 2, 40, 0, None, b"paid", (("message-id", b"a1"),))
    >>> [dedup.is_duplicate(each) for each in (first, again, first)], dedup.dropped
    ([False, True, False], 1)
    """

    def __init__(self, *, header: str | None = None, per_partition: int = 10_000, total: int = 100_000) -> None:
        if per_partition < 1 or total < 1:
            raise ValueError(f"per_partition is {per_partition} and total {total}, but both must be 1 or more")
        self.dropped = 0
        """How many duplicates there were."""
        self._header = header
        self._per_partition = per_partition
        self._total = total
        self._seen: OrderedDict[Identity, tuple[str, int, int]] = OrderedDict()
        """Where each was seen first, the oldest first."""
        self._of_partition: dict[TopicPartition, deque[Identity]] = {}

    def __len__(self) -> int:
        """How many messages are remembered."""
        return len(self._seen)

    def is_duplicate(self, message: Message[Any, Any]) -> bool:
        """Whether it is a copy, which is counted; else it is remembered."""
        identity = self._identity(message)
        if identity is None:
            return False
        topic, partition, _ = place = message[:3]
        seen = self._seen.get(identity)
        if seen is None:
            self._remember(identity, place, TopicPartition(topic, partition))
            return False
        if seen == place:
            return False
        self.dropped += 1
        return True

    def without_duplicates(self, messages: list[Message[Any, Any]]) -> list[Message[Any, Any]]:
        return [message for message in messages if not self.is_duplicate(message)]

    def forget(self) -> None:
        """Forget all messages; those that were dropped stay counted."""
        self._seen.clear()
        self._of_partition.clear()

    def _identity(self, message: Message[Any, Any]) -> Identity | None:
        if self._header is not None:
            value = message.header(self._header) if message.headers else None
            return None if value is None else (message.topic, value)
        if message.producer_id < 0 or message.sequence < 0:
            return None
        # A producer that does not know what became of its messages starts a new epoch, with new numbers (KIP-360).
        return message.topic, message.partition, message.producer_id, message.producer_epoch, message.sequence

    def _remember(self, identity: Identity, place: tuple[str, int, int], key: TopicPartition) -> None:
        self._seen[identity] = place
        window = self._of_partition.setdefault(key, deque())
        window.append(identity)
        if len(window) > self._per_partition:
            del self._seen[window.popleft()]
        elif len(self._seen) > self._total:
            # The oldest of all is the oldest of its partition.
            _, (topic, partition, _) = self._seen.popitem(last=False)
            window = self._of_partition[TopicPartition(topic, partition)]
            window.popleft()
            if not window:
                del self._of_partition[TopicPartition(topic, partition)]
