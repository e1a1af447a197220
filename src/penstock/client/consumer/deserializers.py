"""`Deserializers` makes keys and values out of bytes, and says what is wrong with a message of which it cannot."""

from typing import Any, Final

from penstock.client.consumer.message_reader import RawMessage
from penstock.client.message import Message
from penstock.client.serializers import Bytes, Deserializer, SerializationError


class DeserializationError(SerializationError):
    """A message could not be deserialized. Polls go on after it; `message` has its key and value as bytes."""

    def __init__(self, message: RawMessage, error: Exception) -> None:
        super().__init__(
            f"message {message.id} cannot be deserialized: {error}; the next poll goes on behind it, and `seek` to "
            f"{message.id} would come back to it"
        )
        self.message = message
        self.message_id = message.id


class Deserializers:
    """Makes keys and values out of bytes."""

    def __init__(self, key: Deserializer[Any], value: Deserializer[Any]) -> None:
        self._key = key
        self._value = value

    @property
    def do_nothing(self) -> bool:
        return type(self._key) is Bytes and type(self._value) is Bytes

    def read(self, messages: list[RawMessage]) -> tuple[list[Message[Any, Any]], DeserializationError | None]:
        """The messages up to the first that cannot be read, and why it cannot."""
        read_key, read_value = self._key.deserialize, self._value.deserialize
        read: list[Message[Any, Any]] = []
        for message in messages:
            topic, partition, offset, timestamp, key, value, *rest = message
            try:
                if key is not None:
                    key = read_key(topic, key)
                if value is not None:
                    value = read_value(topic, value)
            except Exception as error:
                return read, DeserializationError(message, error)
            read.append(_new(Message, (topic, partition, offset, timestamp, key, value, *rest)))
        return read, None


# NamedTuple's own constructor is a Python function and costs three times as much.
_new: Final[Any] = tuple.__new__
