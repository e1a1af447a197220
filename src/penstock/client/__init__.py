"""The client has producers, consumers and administration on asyncio; `penstock.client.sync` has them for callers that
block. They speak Kafka's protocol, so that they work with Apache Kafka as well.

What is exported here is imported when it is first asked for: a command line that lists topics needs no consumer.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin as Admin
    from penstock.client.admin.topics import NewTopic as NewTopic
    from penstock.client.cluster.outages import ConnectionEvent as ConnectionEvent
    from penstock.client.consumer.consumer import Consumer as Consumer
    from penstock.client.consumer.deduplication import Deduplicator as Deduplicator
    from penstock.client.errors import BrokerError as BrokerError
    from penstock.client.errors import BufferFullError as BufferFullError
    from penstock.client.errors import ClientError as ClientError
    from penstock.client.errors import CorruptBatchError as CorruptBatchError
    from penstock.client.errors import MissingMessageError as MissingMessageError
    from penstock.client.errors import NoBrokerError as NoBrokerError
    from penstock.client.errors import PushError as PushError
    from penstock.client.errors import TimedOutError as TimedOutError
    from penstock.client.errors import UnknownTopicError as UnknownTopicError
    from penstock.client.message import Message as Message
    from penstock.client.message import MessageId as MessageId
    from penstock.client.message import RecordMetadata as RecordMetadata
    from penstock.client.metadata import TopicPartition as TopicPartition
    from penstock.client.producer.bulk_result import BatchError as BatchError
    from penstock.client.producer.bulk_result import BatchResult as BatchResult
    from penstock.client.producer.bulk_result import NewMessage as NewMessage
    from penstock.client.producer.deliveries import SendFuture as SendFuture
    from penstock.client.producer.producer import Producer as Producer
    from penstock.client.serializers import BYTES as BYTES
    from penstock.client.serializers import JSON as JSON
    from penstock.client.serializers import STRING as STRING
    from penstock.client.serializers import Json as Json
    from penstock.client.serializers import SerializationError as SerializationError
    from penstock.client.settings import SettingsError as SettingsError
    from penstock.client.stats import ClientStats as ClientStats
    from penstock.client.stats import ConsumerStats as ConsumerStats
    from penstock.client.stats import ProducerStats as ProducerStats

_HOMES = {
    "Producer": "producer.producer",
    "Consumer": "consumer.consumer",
    "Admin": "admin.admin",
    "Message": "message",
    "MessageId": "message",
    "RecordMetadata": "message",
    "NewMessage": "producer.bulk_result",
    "BatchResult": "producer.bulk_result",
    "BatchError": "producer.bulk_result",
    "SendFuture": "producer.deliveries",
    "TopicPartition": "metadata",
    "NewTopic": "admin.topics",
    "Deduplicator": "consumer.deduplication",
    "ClientStats": "stats",
    "ProducerStats": "stats",
    "ConsumerStats": "stats",
    "ConnectionEvent": "cluster.outages",
    "BYTES": "serializers",
    "STRING": "serializers",
    "JSON": "serializers",
    "Json": "serializers",
    "ClientError": "errors",
    "BrokerError": "errors",
    "MissingMessageError": "errors",
    "CorruptBatchError": "errors",
    "PushError": "errors",
    "BufferFullError": "errors",
    "TimedOutError": "errors",
    "NoBrokerError": "errors",
    "UnknownTopicError": "errors",
    "SettingsError": "settings",
    "SerializationError": "serializers",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
