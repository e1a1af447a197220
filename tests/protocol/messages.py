"""Random messages of any class and version, drawn from the schema rows: what the codec's tests feed it with."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from penstock.protocol.apis import all_apis
from penstock.protocol.schema import ZERO_UUID, Message, Row
from penstock.protocol.schemas.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription, EndTxnMarker
from penstock.protocol.schemas.headers import RequestHeader, ResponseHeader

M = TypeVar("M", bound=Message)
Draw: TypeAlias = Callable[[Random], Any]
Draws: TypeAlias = Mapping[tuple[type[Message], str], Draw]

HEADERS: tuple[type[Message], ...] = (RequestHeader, ResponseHeader)
EMBEDDED: tuple[type[Message], ...] = (ConsumerProtocolSubscription, ConsumerProtocolAssignment, EndTxnMarker)
NO_DRAWS: Draws = MappingProxyType({})


def all_messages() -> list[type[Message]]:
    """Every class that has a schema of its own: requests, responses, headers and what is embedded in bytes."""
    return [cls for api in all_apis() for cls in (api.request, api.response)] + [*HEADERS, *EMBEDDED]


def versions_of(cls: type[Message]) -> range:
    return range(cls.schema.versions.first, cls.schema.versions.last + 1)


def all_versions() -> Iterator[tuple[type[Message], int]]:
    return ((cls, version) for cls in all_messages() for version in versions_of(cls))


def random_message(cls: type[M], version: int, rng: Random, draws: Draws = NO_DRAWS) -> M:
    """A message whose round trip in `version` is exact: fields that the version lacks keep their defaults.

    `draws` replaces the values of single fields, where something besides our own codec has to be able to hold them.
    """
    return cls(**{field.name: _random_value(cls, field, version, rng, draws) for field in fields_of(cls, version)})


def full_message(cls: type[M], version: int, rng: Random) -> M:
    """A message that has all its version has: no null, no default, and one element in every array."""
    values = {}
    for name, row, _, _ in fields_of(cls, version):
        default = row.default_value()
        element = row.element
        while True:
            value = full_message(element, version, rng) if not isinstance(element, str) else DRAWS[element](rng)
            if value != default:
                break
        values[name] = [value] if row.is_array else value
    return cls(**values)


def structs_in(message: Message, version: int) -> Iterator[Message]:
    """The message itself and every struct in it."""
    yield message
    for name, row, _, _ in fields_of(type(message), version):
        value = getattr(message, name)
        if isinstance(row.element, str) or value is None:
            continue
        for inner in value if row.is_array else [value]:
            yield from structs_in(inner, version)


class Field(NamedTuple):
    """A row as one version sees it."""

    name: str
    row: Row
    is_tagged: bool
    is_nullable: bool


@cache
def fields_of(cls: type[Message], version: int) -> tuple[Field, ...]:
    """The fields that are on the wire in `version`."""
    return tuple(
        Field(name, row, version in row.tagged, version in row.nullable)
        for name, row in cls.schema.rows.items()
        if version in row.versions
    )


def _random_value(cls: type[Message], field: Field, version: int, rng: Random, draws: Draws) -> Any:
    row = field.row
    if field.is_tagged and rng.random() < 0.5:
        return row.default_value()
    if field.is_nullable and rng.random() < 0.25:
        return None
    element = row.element
    if not isinstance(element, str):
        if row.is_array:
            return [random_message(element, version, rng, draws) for _ in range(rng.randrange(4))]
        return random_message(element, version, rng, draws)
    draw = draws.get((cls, field.name)) or DRAWS[element]
    if row.is_array:
        # Now and then more elements than a varint of one byte can count.
        count = 130 if rng.random() < 0.01 else rng.randrange(4)
        return [draw(rng) for _ in range(count)]
    return draw(rng)


def draw_integer(bits: int, *, signed: bool = True) -> Draw:
    """The edges of the range as often as what lies between them."""
    lowest, highest = (-1 << bits - 1, (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    edges = (lowest, highest, 0, 1, -1 if signed else 2, 127, highest // 2)

    def draw(rng: Random) -> int:
        return rng.choice(edges) if rng.random() < 0.5 else lowest + rng.getrandbits(bits)

    return draw


STRINGS = ("", "a", "orders", "Größe", "データ", "🦀 and 𝔘", "\0", "x" * 126, "x" * 127, "ü" * 100)
FLOATS = (0.0, -0.0, 1.5, -1e300, 5e-324, float("inf"), float("-inf"))


def _draw_bytes(rng: Random) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 3, 16, 126, 127, 200)))


DRAWS: dict[str, Draw] = {
    "bool": lambda rng: rng.random() < 0.5,
    "int8": draw_integer(8),
    "int16": draw_integer(16),
    "uint16": draw_integer(16, signed=False),
    "int32": draw_integer(32),
    "uint32": draw_integer(32, signed=False),
    "int64": draw_integer(64),
    "float64": lambda rng: rng.choice(FLOATS) if rng.random() < 0.5 else rng.uniform(-1e9, 1e9),
    "uuid": lambda rng: ZERO_UUID if rng.random() < 0.25 else rng.randbytes(16),
    "string": lambda rng: rng.choice(STRINGS),
    "bytes": _draw_bytes,
    "records": lambda rng: memoryview(_draw_bytes(rng)),
}
