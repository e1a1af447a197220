"""`Message` is what a consumer returns; `MessageId` and `RecordMetadata` say where a message is."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Generic, NamedTuple, Self, TypeAlias, TypeVar

from penstock.client.metadata import TopicPartition

K = TypeVar("K")
V = TypeVar("V")

Headers: TypeAlias = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]
"""The headers of a message to be sent: pairs of name and value, or a dict if no name comes twice."""

_MESSAGE_ID: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})@(0|[1-9][0-9]{0,18})")


class MessageId(NamedTuple):
    """Where a message is, for good: it prints as TOPIC-PARTITION@OFFSET.

    >>> str(MessageId("orders", 3, 17))
    'orders-3@17'
    >>> MessageId.parse("orders-3@17").offset
    17
    """

    topic: str
    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _MESSAGE_ID.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{text!r} is no message id: one is written as TOPIC-PARTITION@OFFSET, such as orders-3@17"
            )
        return cls(match[1], int(match[2]), int(match[3]))

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


class RecordMetadata(NamedTuple):
    """Where a sent message has gone. The offset is -1 with acks=0: the broker does not report it.

    >>> str(RecordMetadata("orders", 3, 17, 1_700_000_000_000).message_id)
    'orders-3@17'
    """

    topic: str
    partition: int
    offset: int
    timestamp: int

    @property
    def message_id(self) -> MessageId:
        return MessageId(self.topic, self.partition, self.offset)


class Message(NamedTuple, Generic[K, V]):
    """A message that was read, its key and value as the consumer's deserializers made them.

    >>> message = Message("orders", 3, 17, 1_700_000_000_000, b"k", b"v", (("trace", b"1"),), size=9, crc=0)
    >>> message.id, message.header("trace")
    (MessageId(topic='orders', partition=3, offset=17), b'1')
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970; -1 is none."""
    key: K
    value: V
    headers: tuple[tuple[str, bytes | None], ...] = ()
    size: int = 0
    """Bytes of key, value and headers as they were stored."""
    crc: int = 0
    """CRC-32C of the batch that it came in, which was checked: Kafka's format has none for a single record."""
    leader_epoch: int = -1
    producer_id: int = -1
    """The id of an idempotent producer, with the sequence number that it gave the message; else both are -1."""
    sequence: int = -1
    is_log_append_time: bool = False
    """Whether the timestamp is the broker's, and not the producer's."""
    producer_epoch: int = -1
    """Sequence numbers start again in each epoch of a producer."""

    @property
    def id(self) -> MessageId:
        return MessageId(self.topic, self.partition, self.offset)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def header(self, name: str) -> bytes | None:
        """The value of the last header of a name; None if there is none."""
        return next((value for key, value in reversed(self.headers) if key == name), None)
