"""From the user's keys and values to bytes and back: bytes, text, JSON, or anything of the user's own."""

from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, overload

import msgspec

if TYPE_CHECKING:
    # Of Python 3.13: what keys and values are where nobody gives a serializer.
    from typing_extensions import TypeVar as TypeVarWithDefault

    K = TypeVarWithDefault("K", default=bytes)
    V = TypeVarWithDefault("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")

T = TypeVar("T")
In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)


class Serializer(Protocol[In_contra]):
    """Turns a key or a value into bytes. None never comes here: a null stays a null (a tombstone to compaction)."""

    def serialize(self, topic: str, data: In_contra) -> bytes: ...


class Deserializer(Protocol[Out_co]):
    """Turns bytes back. None never comes here."""

    def deserialize(self, topic: str, data: bytes) -> Out_co: ...


class SerializationError(ValueError):
    """A key or a value could not be written, or what was read is not what it should be."""


class Bytes:
    """Bytes as they are: what producers and consumers use unless told.

    >>> BYTES.serialize("orders", b"paid")
    b'paid'
    """

    def serialize(self, topic: str, data: bytes | bytearray | memoryview) -> bytes:
        if isinstance(data, bytes):
            return data
        if isinstance(data, bytearray | memoryview):
            return bytes(data)
        raise SerializationError(
            f"a message for {topic!r} is of type {type(data).__name__}, not bytes: encode it, or give the producer "
            "a serializer, such as penstock.client.STRING or JSON"
        )

    def deserialize(self, topic: str, data: bytes) -> bytes:
        return data


class String:
    """Text as UTF-8.

    >>> STRING.deserialize("orders", STRING.serialize("orders", "größe"))
    'größe'
    """

    def serialize(self, topic: str, data: str) -> bytes:
        if not isinstance(data, str):
            raise SerializationError(f"a message for {topic!r} is of type {type(data).__name__}, not str")
        return data.encode()

    def deserialize(self, topic: str, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise SerializationError(f"a message of {topic!r} is no UTF-8 text: {error}") from None


class Json(Generic[T]):
    """JSON; with a type (a dataclass, a msgspec.Struct, `list[int]` …) what is read is checked against it and of it.

    >>> JSON.serialize("orders", {"paid": True})
    b'{"paid":true}'
    >>> Json(dict[str, int]).deserialize("orders", b'{"amount": 3}')
    {'amount': 3}
    """

    @overload
    def __init__(self: "Json[Any]") -> None: ...

    @overload
    def __init__(self, type: type[T]) -> None: ...

    def __init__(self, type: Any = Any) -> None:
        self._encoder = msgspec.json.Encoder()
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(type)

    def serialize(self, topic: str, data: T) -> bytes:
        try:
            return self._encoder.encode(data)
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(f"a message for {topic!r} cannot be written as JSON: {error}") from None

    def deserialize(self, topic: str, data: bytes) -> T:
        try:
            return self._decoder.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise SerializationError(f"a message of {topic!r} is not the JSON that it should be: {error}") from None


BYTES: Final = Bytes()
STRING: Final = String()
JSON: Final[Json[Any]] = Json()
ANY_BYTES: Final[Any] = BYTES
"""The default where the types of keys and values follow from the serializers that are given."""
