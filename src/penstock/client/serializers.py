"""Serializers turn the user's keys and values into bytes and back: bytes, text, JSON, or types of the user's own."""

from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, overload

import msgspec

if TYPE_CHECKING:
    # Of Python 3.13: the types of keys and values where no serializer is given.
    from typing_extensions import TypeVar as TypeVarWithDefault

    K = TypeVarWithDefault("K", default=bytes)
    V = TypeVarWithDefault("V", default=bytes)
    R = TypeVarWithDefault("R", default=V | None)
else:
    K = TypeVar("K")
    V = TypeVar("V")
    R = TypeVar("R")

T = TypeVar("T")
In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)


class Reader(Generic[K, V, R]):
    """The base of consumers, by the types that their deserializers make: `Consumer[str, Order]` has keys of type
    `str | None` and values of type `Order | None`, as a null stays a null. The third type is that of values as they are
    returned; it follows from the second, except with `JSON`, whose values may be anything."""

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: Any) -> Any:
            # Python before 3.13 knows no defaults of type variables, so that all three would have to be given.
            given = types if isinstance(types, tuple) else (types,)
            return super().__class_getitem__((*given, *[Any] * (3 - len(given))))


class Serializer(Protocol[In_contra]):
    """Turns a key or a value into bytes. None never comes here: a null stays a null (a tombstone to compaction)."""

    def serialize(self, topic: str, data: In_contra) -> bytes: ...


class Deserializer(Protocol[Out_co]):
    """Turns bytes back. None never comes here."""

    def deserialize(self, topic: str, data: bytes) -> Out_co: ...


class SerializationError(ValueError):
    """A key or a value could not be written, or what was read is not what it should be. Of a message that a consumer
    has read, `message` has key and value as bytes, and `message_id` says where it is; both are None otherwise."""

    message: Any = None
    message_id: Any = None


class Bytes:
    """Bytes as they are: the default of producers and consumers.

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

    Types that JSON does not have are written as what it has: a set or a tuple as a list, a Decimal, a datetime, a UUID
    and bytes (Base64) as text. With a type that names them they are read as what they were; without one, as the list or
    the text. NaN and infinite floats are refused.

    >>> JSON.serialize("orders", {"paid": True})
    b'{"paid":true}'
    >>> JSON.deserialize("orders", JSON.serialize("orders", {"tags": {"new"}}))
    {'tags': ['new']}
    >>> Json(dict[str, set[str]]).deserialize("orders", JSON.serialize("orders", {"tags": {"new"}}))
    {'tags': {'new'}}
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
            written = self._encoder.encode(data)
            # JSON has no such numbers: the encoder writes null, and a reader would never know.
            if b"null" in written and _has_no_number(msgspec.to_builtins(data)):
                raise ValueError("it has a float that is NaN or infinite: write None, or text, in its place")
            return written
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(f"a message for {topic!r} cannot be written as JSON: {error}") from None

    def deserialize(self, topic: str, data: bytes) -> T:
        try:
            return self._decoder.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise SerializationError(f"a message of {topic!r} is not the JSON that it should be: {error}") from None


class UntypedJson(Json[Any]):
    """JSON of any kind: what is read has no type that a checker would know."""

    def __init__(self) -> None:
        super().__init__(Any)


def _has_no_number(data: Any) -> bool:
    """Whether there is a float in it that is no number, or infinite."""
    match data:
        case float():
            return not isfinite(data)
        case dict():
            return any(map(_has_no_number, data.values())) or any(map(_has_no_number, data))
        case list() | tuple() | set() | frozenset():
            return any(map(_has_no_number, data))
        case _:
            return False


BYTES: Final = Bytes()
STRING: Final = String()
JSON: Final = UntypedJson()
ANY_BYTES: Final[Any] = BYTES
"""The default where the types of keys and values follow from the serializers that are given."""
