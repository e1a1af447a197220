"""The client: producers, consumers and administration on asyncio; `penstock.client.sync` has the same for callers that
block. They speak Kafka's protocol, so that they work with Apache Kafka as well.

What is exported here is imported when it is first asked for: a command line that lists topics needs no consumer.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client.admin import NewTopic as NewTopic
    from penstock.client.administration import Admin as Admin
    from penstock.client.batch_results import BatchError as BatchError
    from penstock.client.batch_results import BatchResult as BatchResult
    from penstock.client.batch_results import NewMessage as NewMessage
    from penstock.client.consumer import Consumer as Consumer
    from penstock.client.deduplication import Deduplicator as Deduplicator
    from penstock.client.deliveries import SendFuture as SendFuture
    from penstock.client.errors import BrokerError as BrokerError
    from penstock.client.errors import BufferFullError as BufferFullError
    from penstock.client.errors import ClientError as ClientError
    from penstock.client.errors import MissingMessageError as MissingMessageError
    from penstock.client.errors import PushError as PushError
    from penstock.client.message import Message as Message
    from penstock.client.message import MessageId as MessageId
    from penstock.client.message import RecordMetadata as RecordMetadata
    from penstock.client.metadata import TopicPartition as TopicPartition
    from penstock.client.producer import Producer as Producer
    from penstock.client.serializers import BYTES as BYTES
    from penstock.client.serializers import JSON as JSON
    from penstock.client.serializers import STRING as STRING
    from penstock.client.serializers import Json as Json
    from penstock.client.serializers import SerializationError as SerializationError
    from penstock.client.settings import SettingsError as SettingsError

_HOMES = {
    "Producer": "producer",
    "Consumer": "consumer",
    "Admin": "administration",
    "Message": "message",
    "MessageId": "message",
    "RecordMetadata": "message",
    "NewMessage": "batch_results",
    "BatchResult": "batch_results",
    "BatchError": "batch_results",
    "SendFuture": "deliveries",
    "TopicPartition": "metadata",
    "NewTopic": "admin",
    "Deduplicator": "deduplication",
    "BYTES": "serializers",
    "STRING": "serializers",
    "JSON": "serializers",
    "Json": "serializers",
    "ClientError": "errors",
    "BrokerError": "errors",
    "MissingMessageError": "errors",
    "PushError": "errors",
    "BufferFullError": "errors",
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
